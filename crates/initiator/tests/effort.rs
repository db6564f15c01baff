//! Commands that succeed although they did not end in GOOD at once: the unit had to try hard, or the link damaged data.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use bytes::Bytes;
use iscsi_initiator::scsi::Status;
use iscsi_initiator::{Disk, Error, Options, Sessions};
use iscsi_testkit::config::DigestPolicy;
use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::scsi::Sense;
use iscsi_testkit::target::{Outcome, Target};
use support::{Rig, initiator, pattern, soon};

const BLOCKS: u64 = 4096;
const LEN: usize = 64 << 10;
const STATUS: usize = 3;

/// Fixed format, behind its length (RFC 7143 §11.4.7.2).
fn sense(response_code: u8, key: u8) -> Bytes {
    let mut bytes = [0; 20];
    (bytes[1], bytes[2], bytes[4], bytes[9]) = (18, response_code, key, 10);
    // RECOVERED DATA WITH RETRIES.
    (bytes[14], bytes[15]) = (0x17, 0x01);
    Bytes::copy_from_slice(&bytes)
}

async fn open(rig: &Rig, query: &str) -> Disk {
    let mut options = Options::default();
    options.sessions = Sessions::Fixed(1);
    soon(initiator(options).disk(rig.unit_url(0, query))).await.unwrap()
}

/// A unit whose statuses come in responses of their own.
async fn start() -> Rig {
    Rig::start(512, BLOCKS, |config| config.data_in.separate_status = true).await
}

/// The next response says CHECK CONDITION, with these sense data.
fn answer_next(rig: &Rig, sense: Bytes) {
    rig.server.with(|target| {
        let next = target.sent(Opcode::ScsiResponse);
        let edit = |effect| Fault::sending(Opcode::ScsiResponse, next, effect);
        let status = Effect::SetByte { at: STATUS, value: Status::CHECK_CONDITION.0 };
        target.config_mut().faults.extend([edit(status), edit(Effect::SetData(sense))]);
    });
}

/// SPC-4 §4.5.6: the command completed successfully.
#[tokio::test]
async fn a_recovered_error_is_a_success() {
    let rig = start().await;
    let disk = open(&rig, "").await;
    let data = pattern(LEN, 3);
    answer_next(&rig, sense(0x70, 0x1));
    soon(disk.write_at(0, data.clone())).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    answer_next(&rig, sense(0x70, 0x1));
    assert_eq!(soon(disk.read_at(0, LEN)).await.unwrap(), data);
    answer_next(&rig, sense(0x70, 0x1));
    soon(disk.flush()).await.unwrap();
    assert_eq!(disk.retries(), 0, "nothing had to be sent again");
    rig.assert_clean();
}

/// A deferred error speaks of another command: this one is sent again.
#[tokio::test]
async fn a_deferred_recovered_error_is_no_success() {
    let rig = start().await;
    let disk = open(&rig, "").await;
    let data = pattern(LEN, 5);
    answer_next(&rig, sense(0x71, 0x1));
    soon(disk.write_at(0, data.clone())).await.unwrap();
    assert!(rig.disk.holds(0, &data));
    let writes =
        |target: &mut Target| target.commands().iter().filter(|it| it.cdb[0] == 0x8a).count();
    assert_eq!(rig.server.with(writes), 2);
}

/// The status stands only for the bytes that moved.
#[tokio::test]
async fn a_recovered_error_without_the_data_is_none() {
    let rig = start().await;
    let disk = open(&rig, "").await;
    rig.server.with(|target| target.end_next_with(Outcome::check(Sense::new(1, 0x17, 1))));
    let error = soon(disk.read_at(0, LEN)).await.unwrap_err();
    assert!(matches!(error, Error::Length { moved: 0, .. }), "{error:?}");
}

/// RFC 7143 §7.8: what came damaged is thrown away, and the command given up; another try brings it. That a response of its
/// own says GOOD before the target has given it up changes nothing.
#[tokio::test]
async fn a_read_whose_data_came_damaged_is_sent_again() {
    for separate_status in [false, true] {
        let rig = Rig::start(512, BLOCKS, |config| {
            config.keys.header_digest = DigestPolicy::Require;
            config.keys.data_digest = DigestPolicy::Require;
            config.data_in.separate_status = separate_status;
        })
        .await;
        let query = "?header_digest=crc32c&data_digest=crc32c&max_recv_data_segment=8192";
        let disk = open(&rig, query).await;
        let data = pattern(LEN, 7);
        soon(disk.write_at(0, data.clone())).await.unwrap();
        rig.server.with(|target| {
            let next = target.sent(Opcode::DataIn);
            let damage = Fault::sending(Opcode::DataIn, next, Effect::CorruptDataDigest);
            target.config_mut().faults.push(damage);
        });
        assert_eq!(soon(disk.read_at(0, LEN)).await.unwrap(), data);
        assert_eq!(disk.retries(), 1);
    }
}
