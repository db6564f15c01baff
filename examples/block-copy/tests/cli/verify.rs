//! Tests of the verification: it finds data that the unit has changed, and reports the offset.

use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;

use crate::support::{Folder, Rig, block_copy, block_copy_with_input, fails, pattern, succeeds};

const CHUNK: usize = 4096;
const OPTIONS: [&str; 7] =
    ["--verify", "--io-size", "4k", "--queue-depth", "1", "--progress", "none"];
/// Offset within the chunk of the byte that the unit changes.
const BYTE: usize = 1234;

/// Kind of source.
#[derive(Clone, Copy)]
enum From {
    File,
    Input,
}

/// Starts a unit that changes one byte of the third chunk. The tests use a queue depth of one, and a write of a
/// chunk is one PDU, so the chunks arrive in order.
async fn corrupting(image: &[u8], from: From) -> Rig {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", image);
    let url = rig.url();
    // The index of the first write depends on the commands before it, so a copy without the fault counts them.
    succeeds(&match from {
        From::File => block_copy(&[&[source.as_str(), &url], &OPTIONS[..]].concat()),
        From::Input => block_copy_with_input(&[&["-", &url], &OPTIONS[..]].concat(), image),
    });
    let first_write = rig.server.with(|target| {
        let is_write = |cdb: [u8; 16]| matches!(cdb[0], 0x2a | 0x8a);
        target.commands().iter().position(|command| is_write(command.cdb)).unwrap()
    });
    let mut chunk = image[2 * CHUNK..3 * CHUNK].to_vec();
    chunk[BYTE] ^= 1;
    let nth = u32::try_from(first_write + 2).unwrap();
    let fault = Fault::receiving(Opcode::ScsiCommand, nth, Effect::SetData(chunk.into()));
    Rig::start_with(512, 1 << 20, |config| config.faults.push(fault)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn it_names_the_first_byte_that_differs() {
    let image = pattern(5 * CHUNK);
    let rig = corrupting(&image, From::File).await;
    let folder = Folder::new();
    let source = folder.file("image", &image);
    let output = block_copy(&[&[source.as_str(), &rig.url()], &OPTIONS[..]].concat());
    let at = format!("at byte {};", 2 * CHUNK + BYTE);
    fails(&output, 65, &["verification failed", &at, "was written and flushed; copy again"]);
    assert!(!rig.disk.holds(0, &image), "the unit is as it should be");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_names_the_chunk_if_the_source_is_gone() {
    let image = pattern(5 * CHUNK);
    let rig = corrupting(&image, From::Input).await;
    let output = block_copy_with_input(&[&["-", &rig.url()], &OPTIONS[..]].concat(), &image);
    let at = format!("in the {CHUNK} bytes at byte {};", 2 * CHUNK);
    fails(&output, 65, &["verification failed", &at]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_it_nobody_notices() {
    let image = pattern(5 * CHUNK);
    let rig = corrupting(&image, From::File).await;
    let folder = Folder::new();
    let source = folder.file("image", &image);
    let output = block_copy(&[&[source.as_str(), &rig.url()], &OPTIONS[1..]].concat());
    succeeds(&output);
    assert!(!rig.disk.holds(0, &image), "the fault did not happen");
}
