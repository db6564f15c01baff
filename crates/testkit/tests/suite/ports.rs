//! Tests of several ports of one unit: an event at one port ends commands at all ports.

use std::time::Duration;

use crate::rig::{NAMES, Rig, config};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::{FINAL, NO_TAG, Pdu};
use iscsi_testkit::scsi::{PortGroup, PortGroups, Sense, TargetPort, Unit, status};

const IGNORE: u8 = 6;
const PREEMPT_AND_ABORT: u8 = 5;
const WRITE_EXCLUSIVE: u8 = 1;
const ALL_TG_PT: u8 = 4;

/// An array whose ports execute each write late.
struct Array {
    unit: Unit,
    groups: PortGroups,
}

impl Array {
    fn new() -> Self {
        let unit = config().units.remove(&0).unwrap();
        Self { unit, groups: PortGroups::new([PortGroup::new(1, [1, 2, 3])]) }
    }

    fn through(&self, port: u16, isid: u8) -> Rig {
        let mut config = config()
            .with_unit(0, self.unit.clone())
            .with_port(TargetPort::new(self.groups.clone(), port));
        config.execution_delays = vec![Duration::from_secs(1)];
        let mut rig = Rig::connect(config);
        rig.isid[5] = isid;
        assert_eq!(rig.login_request(1, 3, FINAL, &NAMES).login_status(), 0);
        rig
    }
}

/// Starts a write, which is executed late.
fn begin(rig: &mut Rig) {
    let write = rig.write(0, 1, &[1; 512]);
    rig.put(write);
    assert_eq!((rig.try_next(), rig.target.put_off_commands()), (None, 1));
}

/// Returns the number of writes that still wait to be executed, after all pending PDUs were received.
fn left(rig: &mut Rig) -> usize {
    assert_eq!(rig.try_next(), None, "without TAS nothing is said of what ends");
    rig.target.put_off_commands()
}

fn register(rig: &mut Rig, key: u64, flags: u8) {
    assert_eq!(out(rig, IGNORE, [0, key], flags), status::GOOD);
}

fn out(rig: &mut Rig, action: u8, keys: [u64; 2], flags: u8) -> u8 {
    let mut list = keys.map(u64::to_be_bytes).concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    let mut command =
        rig.command(0xa0, &[0x5f, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, 24], 24, &list);
    // With the attribute ORDERED the command has a fixed place in the order, so it is not delayed.
    command.header[1] = command.header[1] & !7 | 2;
    rig.put(command);
    rig.next().status()
}

/// Returns the sense of TEST UNIT READY; `None` if it ends with GOOD.
fn attention(rig: &mut Rig) -> Option<Sense> {
    let ready = rig.command(0x80, &[0], 0, &[]);
    rig.put(ready);
    let response: Pdu = rig.next();
    let fixed = response.data.get(2..)?;
    Some(Sense::new(fixed[2], fixed[12], fixed[13]))
}

/// SPC-4 §5.13.11.5: PREEMPT AND ABORT ends the commands of the nexuses that lose their registration, at
/// every port, and no other commands.
#[test]
fn preempt_and_abort_reaches_every_port() {
    for is_for_all_ports in [false, true] {
        let array = Array::new();
        let [mut by, mut bystander] = [array.through(1, 1), array.through(1, 3)];
        let [mut second, mut third] = [2, 3].map(|port| array.through(port, 2));
        register(&mut by, 0xa, 0);
        register(&mut second, 0xb, if is_for_all_ports { ALL_TG_PT } else { 0 });
        for rig in [&mut second, &mut third, &mut bystander] {
            begin(rig);
        }
        assert_eq!(out(&mut by, PREEMPT_AND_ABORT, [0xa, 0xb], 0), status::GOOD);
        let others = usize::from(!is_for_all_ports);
        assert_eq!([left(&mut second), left(&mut third), left(&mut bystander)], [0, others, 1]);
        let told = Some(Sense::REGISTRATIONS_PREEMPTED);
        let told_there = told.filter(|_| is_for_all_ports);
        assert_eq!([attention(&mut second), attention(&mut second)], [told, None]);
        assert_eq!([attention(&mut third), attention(&mut third)], [told_there, None]);
        assert_eq!([attention(&mut by), attention(&mut bystander)], [None, None]);
    }
}

/// SAM-5 §7.5, §7.7: a reset, and CLEAR TASK SET, end the commands at all ports. A session that starts later is
/// not informed.
#[test]
fn a_reset_reaches_every_port() {
    const CLEAR_TASK_SET: u8 = 4;
    const LOGICAL_UNIT_RESET: u8 = 5;
    for (function, told) in
        [(CLEAR_TASK_SET, Sense::COMMANDS_CLEARED), (LOGICAL_UNIT_RESET, Sense::UNIT_RESET)]
    {
        let array = Array::new();
        let [mut by, mut other] = [(1, 1), (2, 2)].map(|(port, isid)| array.through(port, isid));
        for rig in [&mut by, &mut other] {
            begin(rig);
        }
        let mut request = by.request(Opcode::TaskManagementRequest);
        (request.header[0], request.header[1]) = (request.header[0] | 0x40, FINAL | function);
        request.set_u32(20, NO_TAG);
        by.cmd_sn -= 1;
        by.put(request);
        assert_eq!(by.next().response(), 0);
        let mut later = array.through(2, 3);
        assert_eq!([left(&mut by), left(&mut other)], [0, 0]);
        begin(&mut later);
        assert_eq!([attention(&mut other), attention(&mut other)], [Some(told), None]);
        assert_eq!([attention(&mut by), attention(&mut later)], [None, None]);
        assert_eq!(left(&mut later), 1);
        assert!(array.unit.disk.holds(0, &[0; 512]));
    }
}
