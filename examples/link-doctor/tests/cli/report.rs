//! Tests of the report as readable text.

use std::time::Duration;

use crate::support::{
    MIB, TARGET, assert_untouched, complains, link_doctor, program, start, start_with, stderr,
    stdout, succeeds,
};

#[tokio::test(flavor = "multi_thread")]
async fn it_has_every_part_and_nothing_is_written() {
    let rig = start(8 * MIB).await;
    let output = link_doctor(&[&rig.url(), "--seconds", "1"]);
    let report = succeeds(&output);
    for part in [
        "Who\n",
        TARGET,
        "8 MiB in blocks of 512",
        "Agreed at login",
        "FirstBurstLength                   262144   bytes of a write that go unasked",
        "round trip by TCP",
        "round trip by ping",
        "longest segment",
        "interface",
        "This host\n",
        "The plan\n",
        "queue depth",
        "Granted by the kernel\n",
        "Read test\n",
        "What the session waited for\n",
        "Writes (none was made)",
        "command window",
        "In short\n  reads were held back by",
        "  writes would be held back by",
    ] {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }
    let progress = stderr(&output);
    assert!(progress.contains("reading for 1 s; nothing is written"), "{progress}");
    assert!(
        progress.lines().any(|line| line.contains("bit/s") && line.ends_with("ms")),
        "{progress}"
    );
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_unit_only_the_link() {
    let rig = start(MIB).await;
    let report = succeeds(&link_doctor(&[&rig.at(&format!("/{TARGET}"))]));
    assert!(report.contains("none: the URL names no unit; add its number"), "{report}");
    assert!(report.contains("round trip by ping"), "{report}");
    assert!(report.contains("writes would be held back by"), "{report}");
    assert!(!report.contains("reads were held back"), "{report}");
    let commands = rig.server.with(|target| target.commands().len());
    assert_eq!(commands, 0, "no unit was named, and one was asked");
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_takes_longer_than_tcp_is_told() {
    let rig = start_with(8 * MIB, Duration::from_millis(40), |_| {}).await;
    let report = succeeds(&link_doctor(&[&rig.url(), "--seconds", "1"]));
    assert!(report.contains("more than TCP: the target's software, or a proxy"), "{report}");
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_of_one_block_is_read_all_the_same() {
    let rig = start(512).await;
    let report = succeeds(&link_doctor(&[&rig.url(), "--seconds", "1", "--depth", "2"]));
    assert!(report.contains("2 x 512 bytes"), "{report}");
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_cannot_be_read_leaves_the_link_explained() {
    // A unit of 0 blocks reports its last block as 2^64 - 1, so it claims 2^64 blocks. It refuses to read any
    // of them.
    let rig = start(0).await;
    let output = link_doctor(&[&rig.url(), "--seconds", "3600"]);
    complains(&output, 69, &["the read test ended early", "LOGICAL BLOCK ADDRESS OUT OF RANGE"]);
    let report = stdout(&output);
    assert!(report.contains("round trip by ping"), "{report}");
    assert!(report.contains("arrived         nothing"), "{report}");
    assert!(report.contains("not complete: the read test ended early"), "{report}");
    assert!(!report.contains("reads were held back"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_congestion_control_that_is_not_there_is_explained_and_not_used() {
    let rig = start(MIB).await;
    let url = rig.at(&format!("/{TARGET}"));
    let report = succeeds(&link_doctor(&[&url, "--congestion", "no-such"]));
    assert!(report.contains("this kernel has no no-such"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_log_says_what_else_is_told() {
    let rig = start(MIB).await;
    let mut command = program(&[&rig.at(&format!("/{TARGET}"))]);
    let output = command.env("RUST_LOG", "iscsi_session=debug").output().unwrap();
    succeeds(&output);
    assert!(stderr(&output).contains(" DEBUG iscsi_session::"), "{}", stderr(&output));
    assert_untouched(&rig);
}

/// A closed standard error does not change the report.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_needs_to_listen() {
    let rig = start(MIB).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = program(&[&rig.at(&format!("/{TARGET}"))]).stderr(writer).output().unwrap();
    assert!(succeeds(&output).contains("round trip by ping"));
}
