//! Requests of all kinds for tests with faults: reads and writes with all kinds of data PDUs, a ping, an
//! abort.

use bytes::BytesMut;
use iscsi_pdu::Itt;
use iscsi_pdu::scsi::{Cdb, Lun, Status};
use iscsi_session::{Command, Config, DigestOffer};
use iscsi_testkit::config::TargetConfig;

use crate::pair::{BLOCK, Pair, config, pattern, read, target_config, write};

pub(crate) const BLOCKS: u64 = 64;

/// A command and its expected result.
struct Expected {
    itt: Itt,
    /// Data that a read must return; `None` for commands whose data is not checked.
    data: Option<Vec<u8>>,
}

pub(crate) struct Traffic {
    expected: Vec<Expected>,
}

/// Returns a target with small bursts and PDUs, so that every kind of data PDU occurs.
pub(crate) fn small_target() -> TargetConfig {
    let mut target = target_config(BLOCKS);
    target.record = false;
    target.keys.max_recv_data_segment_length = Some(512);
    target.keys.first_burst_length = 1024;
    target.keys.max_burst_length = 1024;
    target.keys.initial_r2t = false;
    target.keys.max_outstanding_r2t = 2;
    target.data_in.pdu = Some(700);
    target.ping_every = 2;
    target
}

pub(crate) fn with_digests() -> Config {
    let mut config = config();
    config.offer = config
        .offer
        .with_header_digest(DigestOffer::Required)
        .with_data_digest(DigestOffer::Required);
    config
}

impl Traffic {
    /// Submits all requests together. Reads use blocks that no write changes.
    pub(crate) fn submit(pair: &mut Pair) -> Self {
        let disk = pair.target.disk(0).unwrap();
        let mut expected = Vec::new();
        for (lba, blocks) in [(0, 1), (1, 5)] {
            let data = disk.read(u64::from(lba) * BLOCK as u64, usize::from(blocks) * BLOCK);
            let itt = pair.submit(read(lba, blocks));
            expected.push(Expected { itt, data: Some(data.to_vec()) });
        }
        for (lba, blocks) in [(20, 1), (24, 7)] {
            let itt = pair.submit(write(lba, pattern(blocks * BLOCK, u64::from(lba))));
            expected.push(Expected { itt, data: None });
        }
        let sense = Command::new(Lun::ZERO, Cdb::read_10(1000, 1)).with_read(BytesMut::zeroed(512));
        expected.push(Expected { itt: pair.submit(sense), data: None });
        let given_up = pair.submit(read(2, 1));
        pair.session.abort(given_up, pair.now);
        expected.push(Expected { itt: given_up, data: None });
        Self { expected }
    }

    /// Checks that every command has ended, and that no read with status GOOD returned wrong bytes.
    pub(crate) fn check(&self, pair: &Pair) {
        for expected in &self.expected {
            let result = pair.completed.get(&expected.itt).expect("a command never ended");
            if let (Ok(done), Some(data)) = (result, &expected.data)
                && done.status == Status::GOOD
            {
                assert_eq!(&done.data, data, "GOOD with wrong data");
            }
        }
    }

    pub(crate) fn all_ended(&self, pair: &Pair) -> bool {
        self.expected.iter().all(|expected| pair.completed.contains_key(&expected.itt))
    }

    /// Checks that written data is on the disk if its command is GOOD.
    pub(crate) fn check_disk(&self, pair: &Pair) {
        let disk = pair.target.disk(0).unwrap();
        for (at, (lba, blocks)) in [(2, (20u64, 1)), (3, (24, 7))] {
            let good = matches!(&pair.completed[&self.expected[at].itt], Ok(done) if done.status == Status::GOOD);
            let data = pattern(blocks * BLOCK, lba);
            assert!(
                !good || disk.holds(lba * BLOCK as u64, &data),
                "GOOD for a write that is not there"
            );
        }
    }

    /// Returns all results as text, so that two runs can be compared.
    pub(crate) fn outcome(&self, pair: &Pair) -> String {
        let one = |expected: &Expected| format!("{:?}\n", pair.completed.get(&expected.itt));
        self.expected.iter().map(one).collect()
    }
}
