//! Property test with any mix of commands over one to four connections, any of which may fail at any time:
//! every command ends once, no task is left over, and data written with status GOOD is on the disk.

use std::time::Duration;

use iscsi_pdu::Cid;
use iscsi_pdu::scsi::Status;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::Fault;
use proptest::prelude::*;

use crate::pair::{BLOCK, Cut, Pair, config, pattern, target_config};
use crate::pair::{read, write};

const BLOCKS: u32 = 512;

/// One event of a test case.
#[derive(Clone, Copy, Debug)]
enum Event {
    Write {
        blocks: u32,
    },
    Read {
        blocks: u32,
    },
    /// The caller aborts the command that was submitted `back` commands ago.
    Abort {
        back: usize,
    },
    /// Both sides of the pair exchange the bytes that they have to send, once.
    Step,
    /// Both sides exchange bytes until neither has more to send.
    Rest,
    /// The network breaks a connection.
    Lose {
        cid: u16,
    },
    /// The caller drops a connection.
    Drop {
        cid: u16,
    },
    /// The caller adds a connection.
    Add {
        cid: u16,
    },
    /// Time passes.
    Wait {
        seconds: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..20u32).prop_map(|blocks| Event::Write { blocks }),
        4 => (1..20u32).prop_map(|blocks| Event::Read { blocks }),
        1 => (1..6usize).prop_map(|back| Event::Abort { back }),
        8 => Just(Event::Step),
        1 => Just(Event::Rest),
        2 => (0..4u16).prop_map(|cid| Event::Lose { cid }),
        1 => (0..4u16).prop_map(|cid| Event::Drop { cid }),
        2 => (0..4u16).prop_map(|cid| Event::Add { cid }),
        1 => (0..8u64).prop_map(|seconds| Event::Wait { seconds }),
    ]
}

/// Generates a fault: a connection, by order of acceptance, breaks after a number of bytes in one direction.
fn cut() -> impl Strategy<Value = Fault> {
    (0..6usize, 0..12_000u64, any::<bool>()).prop_map(|(connection, bytes, sent)| {
        let cut = if sent { Fault::cut_after_sent } else { Fault::cut_after_received };
        cut(bytes).on_connection(connection)
    })
}

fn target(terms: u8, window: u32, faults: Vec<Fault>) -> TargetConfig {
    let mut target = target_config(u64::from(BLOCKS));
    target.record = false;
    target.window = window;
    target.keys.initial_r2t = terms & 1 != 0;
    target.keys.immediate_data = terms & 2 != 0;
    target.keys.max_recv_data_segment_length = Some(512);
    target.keys.first_burst_length = 1024;
    target.keys.max_burst_length = 2048;
    target.ping_every = u32::from(terms & 4 != 0) * 3;
    target.data_in.pdu = Some(700);
    target.faults = faults;
    target
}

/// The pair, and the submitted commands: tag, data of a write (`None` for a read) and first block. Each
/// command uses separate blocks, from `next` on.
struct Mix {
    pair: Pair,
    commands: Vec<(iscsi_pdu::Itt, Option<Vec<u8>>, u32)>,
    next: u32,
}

impl Mix {
    fn submit(&mut self, blocks: u32, writes: bool) {
        if self.next + blocks > BLOCKS {
            return;
        }
        let lba = self.next;
        let data = writes.then(|| pattern(blocks as usize * BLOCK, u64::from(lba)));
        let command = match &data {
            Some(data) => write(lba, data.clone()),
            None => read(lba, blocks as u16),
        };
        if let Ok(itt) = self.pair.session.submit(command, self.pair.now) {
            self.commands.push((itt, data, lba));
            self.next += blocks;
        }
    }

    fn act(&mut self, event: Event) {
        let pair = &mut self.pair;
        match event {
            Event::Write { blocks } => self.submit(blocks, true),
            Event::Read { blocks } => self.submit(blocks, false),
            Event::Abort { back } => {
                let at = self.commands.len().checked_sub(back);
                if let Some((itt, ..)) = at.map(|at| &self.commands[at]) {
                    pair.session.abort(*itt, pair.now);
                }
            }
            Event::Step => {
                pair.step();
            }
            Event::Rest => pair.drive(),
            Event::Lose { cid } => pair.break_connection(Cid(cid)),
            // `drop_connection` and `add_connection` may be refused, for example for a CID that is in use.
            Event::Drop { cid } => {
                pair.session.drop_connection(Cid(cid), pair.now).ok();
            }
            Event::Add { cid } => {
                pair.session.add_connection(Cid(cid), pair.now).ok();
            }
            Event::Wait { seconds } => pair.advance(Duration::from_secs(seconds)),
        }
    }

    /// Checks that every command has ended, and that written data with status GOOD is on the disk.
    fn check(&self) -> Result<(), TestCaseError> {
        let disk = self.pair.target.disk(0).unwrap();
        for (itt, written, lba) in &self.commands {
            let Some(result) = self.pair.completed.get(itt) else {
                return Err(TestCaseError::fail(format!("{itt} has not ended")));
            };
            let Ok(done) = result else { continue };
            prop_assert_eq!(done.status, Status::GOOD);
            let offset = u64::from(*lba) * BLOCK as u64;
            prop_assert!(disk.holds(offset, written.as_ref().map_or(&done.data[..], |data| data)));
        }
        prop_assert_eq!(self.pair.completed.len(), self.commands.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// MC-I-04, ERR-06, SEQ-02, SEQ-04, TMF-04 and every rule of the target's checker: commands end once,
    /// whatever happens to their connections.
    #[test]
    fn commands_end_once_whatever_becomes_of_their_connections(
        connections in 1..=4u16,
        terms in any::<u8>(),
        window in 1..12u32,
        cut_at in 1..3000usize,
        half_open in any::<bool>(),
        faults in prop::collection::vec(cut(), 0..3),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut config = config();
        config.offer = config.offer.with_max_connections(8);
        config.timeouts = config.timeouts.with_nop_interval(Some(Duration::from_secs(3))).with_nop_response(Duration::from_secs(3));
        let mut pair = Pair::new(config, target(terms, window, faults));
        pair.cut = Cut::Every(cut_at);
        pair.half_open = half_open;
        pair.drive();
        for cid in 1..connections {
            // This is refused if the leading login has failed.
            pair.session.add_connection(Cid(cid), pair.now).ok();
        }
        let mut mix = Mix { pair, commands: Vec::new(), next: 0 };
        events.into_iter().for_each(|event| mix.act(event));
        mix.pair.drive();
        mix.pair.advance(Duration::from_secs(100));
        mix.check()?;
        let none_left = format!("{:?}", mix.pair.session).contains("tasks: 0");
        prop_assert!(none_left, "{:?}", mix.pair.session);
        mix.pair.session.logout(mix.pair.now);
        mix.pair.drive();
        mix.pair.advance(Duration::from_secs(20));
        prop_assert!(mix.pair.ended.is_some());
        mix.pair.assert_no_violations();
    }
}
