//! Tests of commands that are ended while they wait to be executed, and have written some of their blocks.

use std::time::{Duration, Instant};

use crate::rig::{Rig, config};
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::status;

const BLOCKS: u8 = 16;
const OLD: u8 = 1;
const FUA: u8 = 0x08;

#[expect(clippy::disallowed_methods, reason = "an Instant comes from a clock")]
fn start() -> Instant {
    Instant::now()
}

/// Logs in to a target that executes commands one second late and tears them. Its blocks hold [`OLD`].
fn torn(seed: Option<u64>) -> (Rig, RamDisk) {
    let mut config = config();
    config.execution_delays = vec![Duration::from_secs(1)];
    config.torn_commands = seed;
    let rig = Rig::login(config, &[]);
    let disk = rig.target.disk(0).unwrap();
    disk.write(0, &[OLD; 512 * BLOCKS as usize]);
    (rig, disk)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Same,
    SameUnmapped,
    Unmap,
}

const KINDS: [Kind; 4] = [Kind::Write, Kind::Same, Kind::SameUnmapped, Kind::Unmap];

impl Kind {
    /// Sends the command for all blocks, and returns the byte that fills each block after the command's
    /// execution.
    fn send(self, rig: &mut Rig) -> u8 {
        let (cdb, data, new) = match self {
            Self::Write => {
                (vec![0x2a, 0, 0, 0, 0, 0, 0, 0, BLOCKS], vec![2; 512 * usize::from(BLOCKS)], 2)
            }
            Self::Same => (vec![0x41, 0, 0, 0, 0, 0, 0, 0, BLOCKS], vec![2; 512], 2),
            Self::SameUnmapped => (vec![0x41, 8, 0, 0, 0, 0, 0, 0, BLOCKS], vec![0; 512], 0),
            Self::Unmap => {
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, BLOCKS, 0, 0, 0, 0]);
                (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24], list, 0)
            }
        };
        let length = u32::try_from(data.len()).unwrap();
        let command = rig.command(0xa0, &cdb, length, &data);
        rig.put(command);
        rig.target.advance(start());
        assert_eq!(rig.target.put_off_commands(), 1, "{self:?}");
        new
    }
}

/// Events that end commands that wait to be executed.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Reinstatement,
    Restart,
}

impl End {
    fn meet(self, mut rig: Rig) {
        match self {
            Self::Reset => {
                let mut reset = rig.request(Opcode::TaskManagementRequest);
                reset.header[1] |= 5;
                rig.put(reset);
                assert_eq!(rig.next().response(), 0);
            }
            Self::Reinstatement => {
                rig.target.disconnected(rig.id);
                rig = rig.log_in_again();
            }
            Self::Restart => rig.target.restart(),
        }
        assert_eq!(rig.target.put_off_commands(), 0);
    }
}

/// Returns the number of blocks that a command has written when the event `end` ends it.
fn written(kind: Kind, end: End, seed: Option<u64>) -> usize {
    let (mut rig, disk) = torn(seed);
    let new = kind.send(&mut rig);
    end.meet(rig);
    let blocks = (0..u64::from(BLOCKS)).map(|lba| disk.read(lba * 512, 512));
    let is_new = |block: bytes::Bytes| {
        assert!(block == [OLD; 512][..] || block == [new; 512][..], "a block is torn");
        block[0] == new
    };
    blocks.map(is_new).filter(|is_new| *is_new).count()
}

/// SAM-5 §5.5, §7.5: the standard does not say how much of an ended command is executed, so any of its blocks
/// may be written.
#[test]
fn a_command_that_is_ended_has_written_none_some_or_all_of_its_blocks() {
    for kind in KINDS {
        for end in [End::Reset, End::Reinstatement, End::Restart] {
            assert_eq!(written(kind, end, None), 0, "{kind:?}, {end:?}");
            let counts: Vec<_> = (0..64).map(|seed| written(kind, end, Some(seed))).collect();
            assert!(counts.contains(&0) && counts.contains(&usize::from(BLOCKS)), "{counts:?}");
            assert!(counts.iter().any(|count| (1..usize::from(BLOCKS)).contains(count)));
        }
    }
}

/// SBC-3 §5.32: data written with FUA are durable once the status has arrived, even if a loss of power loses
/// other blocks.
#[test]
fn a_partial_loss_of_power_never_takes_what_fua_has_put_on_the_medium() {
    for seed in 0..64u64 {
        let mut rig = Rig::login(config(), &[]);
        let disk = rig.target.disk(0).unwrap();
        disk.set_cache(Cache::Volatile);
        for (lba, flags) in [(0, 0), (1, FUA), (2, 0), (3, FUA), (4, 0)] {
            let cdb = [0x2a, flags, 0, 0, 0, lba, 0, 0, 1];
            let write = rig.command(0xa0, &cdb, 512, &[lba + 1; 512]);
            rig.put(write);
            assert_eq!(rig.next().status(), status::GOOD);
        }
        disk.lose_power_but(|lba| seed >> lba & 1 == 1);
        let left: Vec<_> = (0..5).map(|lba| disk.read(lba * 512, 1)[0]).collect();
        let kept = |lba: u8| if seed >> lba & 1 == 1 { lba + 1 } else { 0 };
        assert_eq!(left, [kept(0), 2, kept(2), 4, kept(4)]);
    }
}
