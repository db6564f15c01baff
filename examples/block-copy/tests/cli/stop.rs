//! Tests of copies that are stopped while their writes are in flight: the writes are completed and flushed, and
//! none of them is aborted.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::control::connect;
use crate::support::{Folder, Rig, ends, pattern, program, signal, until};

/// Bytes of a write. At the limit of 20 Mbit/s it is sent in three parts.
const IO: usize = 256 << 10;
const LEN: usize = 16 * IO;
/// Delay of the target, longer than a part of a write waits for its rate: one part is in flight while the
/// others wait.
const FAR: Duration = Duration::from_millis(150);

/// Starts a copy from a pipe that stays open, with text messages.
fn start(rig: &Rig, options: &[&str]) -> Child {
    let url = rig.url();
    let ends = ["-", &url, "--io-size", "256k", "--sessions", "1", "--progress", "plain"];
    let mut command = program(&[&ends[..], options].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A write in flight must not be aborted: it may have received the report of a reset. Then the flush would have
/// to count all writes as lost.
#[tokio::test(flavor = "multi_thread")]
async fn writes_in_flight_are_completed_and_none_is_aborted() {
    // One write at a time, and several.
    let one = ["--rate-limit", "20mbit", "--queue-depth", "1"];
    let several = ["--rate-limit", "20mbit"];
    for (options, is_paused, name) in [
        (&[][..], false, "-INT"),
        (&[][..], true, "-TERM"),
        (&one[..], false, "-INT"),
        (&one[..], true, "-TERM"),
        (&several[..], false, "-INT"),
        (&several[..], true, "-TERM"),
    ] {
        // When the copy stops, parts of writes that wait for their rate are refused, and so these writes fail. If
        // several writes were in flight, each of them may fail.
        let is_whole = options != several;
        let case = format!("{options:?}, {is_paused}, {name}");
        let rig = Rig::start_far(512, LEN as u64, FAR).await;
        let folder = Folder::new();
        let socket = folder.path("control");
        let mut child = start(&rig, &[options, &["--control", &socket]].concat());
        let mut orders = connect(&socket).await;
        let mut input = child.stdin.take().unwrap();
        let writing = std::thread::spawn(move || {
            // The program ends before it has read everything, so this write is expected to fail.
            drop(input.write_all(&pattern(LEN)));
            input
        });
        until(&mut child, || rig.written() >= IO as u64).await;
        if is_paused {
            orders.give("pause");
        }
        signal(&child, name);
        let output = ends(child).await;
        drop(writing.join().unwrap());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{case}: {said}");
        assert!(!is_whole || said.contains("were written and flushed"), "{case}: {said}");
        assert!(!said.contains("lost"), "{case}: {said}");
        assert_eq!(rig.server.with(|target| target.functions_carried_out()), 0, "{case}");
        assert_eq!(rig.server.with(|target| target.sessions()), 0, "{case}");
        rig.assert_clean();
    }
}
