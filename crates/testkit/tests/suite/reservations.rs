//! Tests of the persistent reservations of a unit that several nexuses reach. libiscsi's own tests
//! (`ci/libiscsi-tests`) check them with another initiator.

use crate::rig::{NAMES, Rig, config};
use iscsi_testkit::pdu::Pdu;
use iscsi_testkit::scsi::{PortGroup, PortGroups, Sense, TargetPort, Unit, status};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const IGNORE: u8 = 6;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
const EXCLUSIVE_ACCESS_ALL: u8 = 8;

/// Logs in through two ports of one array, from the same host with the same ISID.
fn two_ports() -> ([Rig; 2], Unit) {
    let unit = config().units.remove(&0).unwrap();
    let groups = PortGroups::new([PortGroup::new(1, [1, 2])]);
    let through = |port| {
        let config = config().with_unit(0, unit.clone());
        Rig::login(config.with_port(TargetPort::new(groups.clone(), port)), &[])
    };
    ([through(1), through(2)], unit)
}

fn run(rig: &mut Rig, flags: u8, cdb: &[u8], edtl: u32, data: &[u8]) -> Pdu {
    let command = rig.command(flags, cdb, edtl, data);
    rig.put(command);
    rig.next()
}

/// Sends PERSISTENT RESERVE OUT with these flags in byte 20, and returns the status and the sense data, if
/// there are any.
fn out(rig: &mut Rig, action: u8, kind: u8, keys: [u64; 2], flags: u8) -> (u8, Option<Sense>) {
    let mut list = keys.map(u64::to_be_bytes).concat();
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    let response = run(rig, 0xa0, &[0x5f, action, kind, 0, 0, 0, 0, 0, 24], 24, &list);
    (response.status(), sense(&response))
}

fn change(rig: &mut Rig, action: u8, kind: u8, key: u64, action_key: u64) -> u8 {
    out(rig, action, kind, [key, action_key], 0).0
}

fn ask(rig: &mut Rig, action: u8) -> Vec<u8> {
    run(rig, 0xc0, &[0x5e, action, 0, 0, 0, 0, 0, 0, 255], 255, &[]).data.to_vec()
}

fn sense(response: &Pdu) -> Option<Sense> {
    let fixed = response.data.get(2..)?;
    Some(Sense::new(fixed[2], fixed[12], fixed[13]))
}

/// Returns the sense of TEST UNIT READY; `None` if it ends with GOOD.
fn ready(rig: &mut Rig) -> Option<Sense> {
    sense(&run(rig, 0x80, &[0], 0, &[]))
}

fn write(rig: &mut Rig) -> u8 {
    run(rig, 0xa0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], 512, &[7; 512]).status()
}

fn read(rig: &mut Rig) -> u8 {
    let first = run(rig, 0xc0, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1], 512, &[]);
    first.status()
}

/// SPC-4 §5.13.7: each nexus has a key; a command with another key than the registered one ends with
/// RESERVATION CONFLICT.
#[test]
fn a_nexus_registers() {
    let ([mut first, mut second], unit) = two_ports();
    assert_eq!(change(&mut first, REGISTER, 0, 1, 2), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut first, REGISTER, 0, 0, 0xa), status::GOOD);
    assert_eq!(change(&mut first, REGISTER, 0, 0, 0xb), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut second, IGNORE, 0, 9, 0xb), status::GOOD);
    assert_eq!(unit.reservations.keys(), [0xa, 0xb], "the other port is another nexus");
    assert_eq!(ask(&mut second, 0), [&[0, 0, 0, 2, 0, 0, 0, 16][..], &keys(&[0xa, 0xb])].concat());
    assert_eq!(change(&mut first, REGISTER, 0, 0xa, 0xc), status::GOOD);
    assert_eq!(change(&mut second, IGNORE, 0, 0, 0), status::GOOD);
    assert_eq!((unit.reservations.keys(), unit.reservations.generation()), (vec![0xc], 4));
}

fn keys(keys: &[u64]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_be_bytes()).collect()
}

/// SPC-4 §5.13.1: registrations survive the end of a session, but survive a loss of power only with APTPL.
#[test]
fn what_a_registration_outlasts() {
    let mut rig = Rig::login(config(), &[]);
    let reservations = rig.target.config_mut().units[&0].reservations.clone();
    assert_eq!(change(&mut rig, REGISTER, 0, 0, 0xa), status::GOOD);
    rig.target.drop_connections();
    let mut rig = rig.log_in_again();
    assert_eq!(change(&mut rig, REGISTER, 0, 0, 0xb), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut rig, RESERVE, EXCLUSIVE_ACCESS, 0xa, 0), status::GOOD);
    rig.target.restart();
    assert_eq!((reservations.keys(), reservations.holder()), (vec![], None));

    let mut rig = rig.log_in_again();
    ready(&mut rig);
    assert_eq!(out(&mut rig, REGISTER, 0, [0, 0xa], 1).0, status::GOOD);
    assert_eq!(change(&mut rig, RESERVE, EXCLUSIVE_ACCESS, 0xa, 0), status::GOOD);
    rig.target.restart();
    assert_eq!(reservations.keys(), [0xa]);
    assert_eq!(reservations.holder(), Some((EXCLUSIVE_ACCESS, 0xa)));
}

/// SPC-4 tables 62 and 63: the type of the reservation decides which nexuses may read and write.
#[test]
fn conflicts_by_type() {
    let (good, conflict) = (status::GOOD, status::RESERVATION_CONFLICT);
    for (kind, [stranger_reads, registrant_reads, registrant_writes]) in [
        (1, [good, good, conflict]),
        (3, [conflict, conflict, conflict]),
        (5, [good, good, good]),
        (6, [conflict, good, good]),
        (7, [good, good, good]),
        (8, [conflict, good, good]),
    ] {
        let ([mut holder, mut other], _) = two_ports();
        assert_eq!(change(&mut holder, REGISTER, 0, 0, 0xa), good);
        assert_eq!(change(&mut holder, RESERVE, kind, 0xa, 0), good);
        assert_eq!((read(&mut holder), write(&mut holder)), (good, good), "type {kind}");
        let stranger = (read(&mut other), write(&mut other));
        assert_eq!(stranger, (stranger_reads, conflict), "type {kind}");
        let flush = run(&mut other, 0x80, &[0x35], 0, &[]).status();
        assert_eq!(flush, conflict, "type {kind}");
        assert_eq!(ready(&mut other), None, "type {kind}");
        assert_eq!(change(&mut other, REGISTER, 0, 0, 0xb), good);
        let registrant = (read(&mut other), write(&mut other));
        assert_eq!(registrant, (registrant_reads, registrant_writes), "type {kind}");
        assert!(!holder.target.disk(0).unwrap().holds(0, &[0; 512]), "type {kind}");
    }
}

/// SPC-4 §5.13.10, §5.13.11.2: a release ends the reservation, and informs the nexuses that it concerns.
#[test]
fn a_reservation_is_released() {
    let ([mut holder, mut other], unit) = two_ports();
    change(&mut holder, REGISTER, 0, 0, 0xa);
    change(&mut other, REGISTER, 0, 0, 0xb);
    let kind = WRITE_EXCLUSIVE_REGISTRANTS;
    assert_eq!(change(&mut holder, RESERVE, kind, 0xa, 0), status::GOOD);
    assert_eq!(change(&mut holder, RESERVE, kind, 0xa, 0), status::GOOD, "it has it");
    assert_eq!(change(&mut holder, RESERVE, 1, 0xa, 0), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut other, RESERVE, kind, 0xb, 0), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut other, RELEASE, kind, 0xb, 0), status::GOOD, "not its own");
    assert_eq!(
        ask(&mut other, 1)[4..],
        [&[0, 0, 0, 16][..], &keys(&[0xa]), &[0, 0, 0, 0, 0, 5, 0, 0]].concat()
    );
    let wrong = out(&mut holder, RELEASE, 1, [0xa, 0], 0);
    assert_eq!(wrong, (status::CHECK_CONDITION, Some(Sense::INVALID_RELEASE)));
    assert_eq!(change(&mut holder, RELEASE, kind, 0xa, 0), status::GOOD);
    assert_eq!(unit.reservations.holder(), None);
    assert_eq!((ready(&mut other), ready(&mut holder)), (Some(Sense::RESERVATIONS_RELEASED), None));
    assert_eq!(ask(&mut other, 1)[4..], [0; 4]);

    change(&mut holder, RESERVE, kind, 0xa, 0);
    assert_eq!(change(&mut holder, REGISTER, 0, 0xa, 0), status::GOOD, "with its registration");
    assert_eq!((unit.reservations.holder(), unit.reservations.keys()), (None, vec![0xb]));
    assert_eq!(ready(&mut other), Some(Sense::RESERVATIONS_RELEASED));
}

/// SPC-4 §5.13.11.4: PREEMPT takes over the reservation, and informs the nexuses that lose their
/// registration.
#[test]
fn a_holder_is_preempted() {
    let ([mut holder, mut other], unit) = two_ports();
    change(&mut holder, REGISTER, 0, 0, 0xa);
    change(&mut holder, RESERVE, WRITE_EXCLUSIVE, 0xa, 0);
    assert_eq!(change(&mut other, PREEMPT, 1, 0xb, 0xa), status::RESERVATION_CONFLICT);
    change(&mut other, REGISTER, 0, 0, 0xb);
    assert_eq!(
        change(&mut other, PREEMPT, EXCLUSIVE_ACCESS, 0xb, 0xc),
        status::RESERVATION_CONFLICT
    );
    let nothing = out(&mut other, PREEMPT, 1, [0xb, 0], 0);
    assert_eq!(nothing, (status::CHECK_CONDITION, Some(Sense::INVALID_PARAMETER)));
    assert_eq!(change(&mut other, PREEMPT, EXCLUSIVE_ACCESS, 0xb, 0xa), status::GOOD);
    assert_eq!(unit.reservations.holder(), Some((EXCLUSIVE_ACCESS, 0xb)));
    assert_eq!(unit.reservations.keys(), [0xb]);
    assert_eq!(write(&mut holder), status::CHECK_CONDITION, "the attention comes first");
    assert_eq!(write(&mut holder), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut holder, REGISTER, 0, 0xa, 0xa), status::RESERVATION_CONFLICT);
}

/// SAM-5 §5.14.1: a lost nexus does not receive the unit attentions that waited for it, but its registration
/// stays removed.
#[test]
fn a_lost_nexus_is_not_told() {
    let mut rig = Rig::login(config(), &[]);
    let reservations = rig.target.config_mut().units[&0].reservations.clone();
    change(&mut rig, REGISTER, 0, 0, 0xa);
    reservations.register_by_another(0xf);
    assert!(reservations.preempt_by_another(0xa, WRITE_EXCLUSIVE));
    assert!(!reservations.preempt_by_another(0xa, WRITE_EXCLUSIVE), "it is gone");
    let mut rig = rig.log_in_again();
    assert_eq!(ready(&mut rig), None);
    assert_eq!(change(&mut rig, REGISTER, 0, 0xa, 0xa), status::RESERVATION_CONFLICT);
    assert!(reservations.reserve_by_another(WRITE_EXCLUSIVE));
    assert_eq!(write(&mut rig), status::RESERVATION_CONFLICT);
}

/// SPC-4 §5.13.11.4: if all registrants hold the reservation, PREEMPT with key 0 removes all other
/// registrations.
#[test]
fn all_registrants_are_preempted() {
    let ([mut first, mut second], unit) = two_ports();
    change(&mut first, REGISTER, 0, 0, 0xa);
    change(&mut second, REGISTER, 0, 0, 0xb);
    change(&mut first, RESERVE, EXCLUSIVE_ACCESS_ALL, 0xa, 0);
    assert_eq!(ask(&mut first, 1)[8..16], [0; 8], "no one key holds it");
    change(&mut first, REGISTER, 0, 0xa, 0);
    assert_eq!(unit.reservations.holder(), Some((EXCLUSIVE_ACCESS_ALL, 0xb)));
    change(&mut first, REGISTER, 0, 0, 0xa);
    assert_eq!(change(&mut first, PREEMPT, WRITE_EXCLUSIVE, 0xa, 0), status::GOOD);
    assert_eq!(unit.reservations.holder(), Some((WRITE_EXCLUSIVE, 0xa)));
    assert_eq!(ready(&mut second), Some(Sense::REGISTRATIONS_PREEMPTED));
}

#[test]
fn all_is_cleared() {
    let ([mut first, mut second], unit) = two_ports();
    change(&mut first, REGISTER, 0, 0, 0xa);
    change(&mut second, REGISTER, 0, 0, 0xb);
    change(&mut first, RESERVE, WRITE_EXCLUSIVE, 0xa, 0);
    assert_eq!(change(&mut second, CLEAR, 0, 0xa, 0), status::RESERVATION_CONFLICT);
    assert_eq!(change(&mut second, CLEAR, 0, 0xb, 0), status::GOOD);
    assert_eq!((unit.reservations.holder(), unit.reservations.keys()), (None, vec![]));
    assert_eq!(ready(&mut first), Some(Sense::RESERVATIONS_PREEMPTED));
    assert_eq!(ready(&mut second), None);
}

/// SPC-4 §5.13.11.5: commands of a nexus that is preempted and aborted end without a status.
#[test]
fn commands_are_aborted() {
    let mut rig = Rig::login(config(), &[]);
    let reservations = rig.target.config_mut().units[&0].reservations.clone();
    let old = rig.id;
    change(&mut rig, REGISTER, 0, 0, 0xa);
    let command = rig.command(0xa0, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1], 512, &[]);
    rig.put(command);
    assert_eq!(rig.target.active_tasks(), 1, "the write waits for its data");
    rig.isid[5] += 1;
    rig.id = rig.target.accept();
    (rig.exp_stat_sn, rig.tsih) = (0, 0);
    assert_eq!(rig.login_request(1, 3, 0x80, &NAMES).login_status(), 0);
    change(&mut rig, REGISTER, 0, 0, 0xb);
    assert_eq!(change(&mut rig, PREEMPT_AND_ABORT, 1, 0xb, 0xa), status::GOOD);
    assert_eq!(reservations.keys(), [0xb]);
    assert_eq!(rig.target.active_tasks(), 0);
    assert!(!rig.target.is_closed(old), "the session goes on");
}

/// SPC-4 §6.16: malformed parameter lists are refused.
#[test]
fn malformed_changes_are_refused() {
    let mut rig = Rig::login(config(), &[]);
    let refused = |sense| (status::CHECK_CONDITION, Some(sense));
    assert_eq!(out(&mut rig, IGNORE, 0, [0, 1], 0x08), refused(Sense::INVALID_PARAMETER));
    assert_eq!(out(&mut rig, 7, 0, [0, 1], 0), refused(Sense::INVALID_FIELD));
    change(&mut rig, REGISTER, 0, 0, 1);
    for kind in [0, 2, 4, 9, 0x11] {
        assert_eq!(out(&mut rig, RESERVE, kind, [1, 0], 0), refused(Sense::INVALID_FIELD));
    }
    let short = run(&mut rig, 0xa0, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 16], 16, &[0; 16]);
    assert_eq!(sense(&short), Some(Sense::PARAMETER_LENGTH));
    let unknown = run(&mut rig, 0xc0, &[0x5e, 4, 0, 0, 0, 0, 0, 0, 255], 255, &[]);
    assert_eq!(sense(&unknown), Some(Sense::INVALID_FIELD));
}

/// SPC-4 §6.15.4, §6.15.5: the unit reports its capabilities, and the port of each registration.
#[test]
fn capabilities_and_full_status() {
    let ([mut first, mut second], _) = two_ports();
    assert_eq!(ask(&mut first, 2), [0, 8, 0x05, 0x80, 0xea, 0x01, 0, 0]);
    out(&mut first, REGISTER, 0, [0, 0xa], 1);
    out(&mut second, REGISTER, 0, [0, 0xb], 1);
    change(&mut second, RESERVE, WRITE_EXCLUSIVE, 0xb, 0);
    assert_eq!(ask(&mut first, 2)[3], 0x81);
    let status = ask(&mut first, 3);
    let descriptor = status[8..].chunks_exact((status.len() - 8) / 2).collect::<Vec<_>>();
    assert_eq!((descriptor[0][12], descriptor[0][13], descriptor[0][19]), (0, 0, 1));
    assert_eq!((descriptor[1][12], descriptor[1][13], descriptor[1][19]), (1, WRITE_EXCLUSIVE, 2));
    let name = b"\x45\0\0\x30iqn.2026-01.org.example:host,i,0x800102030405\0";
    assert_eq!(&descriptor[1][24..24 + name.len()], name);
}
