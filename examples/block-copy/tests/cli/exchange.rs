//! Tests of a unit that is replaced by another unit during a copy, without a report from the target.

use std::io::Write;
use std::process::{Child, Stdio};

use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::Unit;

use crate::support::{Rig, ends, fails, pattern, program, until};

const CHUNK: usize = 4096;
const BLOCKS: u64 = 1 << 15;
/// Number of blocks, more than the program reads ahead while its own output is not read.
const MANY_BLOCKS: u64 = 1 << 18;
const SENTENCE: &str = "leads to another unit";

fn start(from: &str, to: &str) -> Child {
    let mut command = program(&[from, to, "--io-size", "4k", "--progress", "none"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn exchange(rig: &Rig) {
    exchange_for(rig, RamDisk::new(512, BLOCKS));
}

fn exchange_for(rig: &Rig, disk: RamDisk) {
    let unit = Unit::new(disk).with_identity("0002", 0x3000_0000_0000_0002);
    rig.server.with(|target| target.config_mut().units.insert(0, unit));
}

/// If another unit replaces the destination during a copy, the rest of the data goes to that unit. The copy
/// must fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_to_a_unit_that_was_exchanged_fails() {
    let rig = Rig::start(512, BLOCKS).await;
    let mut child = start("-", &rig.url());
    let mut input = child.stdin.take().unwrap();
    let data = pattern(2 * CHUNK);
    input.write_all(&data[..CHUNK]).unwrap();
    until(&mut child, || rig.disk.holds(0, &data[..CHUNK])).await;
    exchange(&rig);
    input.write_all(&data[CHUNK..]).unwrap();
    drop(input);
    fails(&ends(child).await, 69, &["destination", SENTENCE, "everything was copied"]);
}

/// A unit that has replaced the destination refuses a write. The reported error is the replacement, which is
/// the cause.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_a_unit_that_was_exchanged_names_the_exchange() {
    let rig = Rig::start(512, BLOCKS).await;
    let mut child = start("-", &rig.url());
    let mut input = child.stdin.take().unwrap();
    let data = pattern(2 * CHUNK);
    input.write_all(&data[..CHUNK]).unwrap();
    until(&mut child, || rig.disk.holds(0, &data[..CHUNK])).await;
    let protected = RamDisk::new(512, BLOCKS);
    protected.set_read_only(true);
    exchange_for(&rig, protected);
    input.write_all(&data[CHUNK..]).unwrap();
    drop(input);
    fails(&ends(child).await, 69, &["destination", SENTENCE, "the destination is incomplete"]);
}

/// If another unit replaces the source during a copy, data may come from that unit, so the copy must fail. The
/// unit is replaced while the program waits for the reader of its output.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_from_a_unit_that_was_exchanged_fails() {
    let rig = Rig::start(512, MANY_BLOCKS).await;
    rig.disk.fill(3);
    let mut child = start(&rig.url(), "-");
    let is_read = |cdb: [u8; 16]| matches!(cdb[0], 0x28 | 0x88);
    let has_read =
        || rig.server.with(|target| target.commands().iter().any(|command| is_read(command.cdb)));
    until(&mut child, has_read).await;
    exchange_for(&rig, RamDisk::new(512, MANY_BLOCKS));
    let output = ends(child).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("source") && said.contains(SENTENCE), "{said}");
}
