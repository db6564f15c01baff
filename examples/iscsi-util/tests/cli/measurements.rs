//! Tests of pings and loads.

use iscsi_testkit::fault::{Effect, Fault};
use iscsi_testkit::opcode::Opcode;

use crate::support::{BLOCK, MIB, Rig, TARGET, iscsi_util, json_of, object, stderr, text_of};

const READS: [u8; 2] = [0x28, 0x88];

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_counted_and_told_in_order() {
    let rig = Rig::start(BLOCK, MIB).await;
    let url = rig.at(&format!("/{TARGET}"));
    let object = json_of(&["ping", &url, "--count", "5", "--interval", "0"]);
    assert_eq!((&object["answers"], object["pings_ms"].as_array().unwrap().len()), (&5.into(), 5));
    let times =
        ["min_ms", "median_ms", "p99_ms", "max_ms"].map(|name| object[name].as_f64().unwrap());
    assert!(times[0] > 0.0 && times.is_sorted(), "{times:?}");

    let output = iscsi_util(&["ping", &url, "--count", "2", "--interval", "0.001"]);
    let said = stderr(&output);
    assert!(said.starts_with("1: ") && said.contains("\n2: "), "{said}");
    let quiet = ["ping", &url, "--count", "2", "--interval", "0", "--quiet"];
    assert_eq!(stderr(&iscsi_util(&quiet)), "");
    assert!(text_of(&quiet).starts_with("2 answers, min "));
    rig.assert_logged_out();
}

/// If the session is lost, the report has the round trips that were measured before.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_lost_ends_the_pings() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.faults = vec![Fault::receiving(Opcode::NopOut, 2, Effect::Close)];
    })
    .await;
    let output = iscsi_util(&["ping", &rig.url(), "--count", "9", "--interval", "0", "--json"]);
    assert_eq!(output.status.code(), Some(75));
    let object = object(&output);
    assert_eq!((&object["answers"], &object["kind"]), (&2.into(), &"network".into()), "{object}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_counted_as_the_target_counts_them() {
    let rig = Rig::start(BLOCK, MIB).await;
    let options = ["--seconds", "1", "--depth", "4", "--size", "64k"];
    let object = json_of(&[&["perf", &rig.url()][..], &options].concat());
    let number = |name: &str| object[name].as_u64().unwrap();
    let reads: usize = READS.iter().map(|code| rig.seen(*code)).sum();
    assert_eq!(number("requests"), reads as u64);
    assert_eq!(number("bytes"), number("requests") * 65_536);
    assert_eq!(
        (number("io_size_bytes"), number("queue_depth"), number("sessions")),
        (65_536, 4, 1)
    );
    assert_eq!((&object["direction"], &object["pattern"]), (&"read".into(), &"sequential".into()));
    assert!(object["flush_ms"].is_null());
    let rate = number("bytes") as f64 * 8.0 / 1e6 / object["seconds"].as_f64().unwrap();
    assert!((object["mbit_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6);
    let latency = |name: &str| object["latency_ms"][name].as_f64().unwrap();
    let latencies = ["min", "p50", "p90", "p99", "p99_9", "max"].map(latency);
    assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{latencies:?}");
    rig.assert_logged_out();
}

#[tokio::test(flavor = "multi_thread")]
async fn random_reads_take_as_many_sessions_as_they_are_told() {
    let rig = Rig::start(BLOCK, MIB).await;
    let options = ["--seconds", "1", "--random", "--sessions", "3"];
    let text = text_of(&[&["perf", &rig.url()][..], &options].concat());
    assert!(
        text.starts_with("load      read, random, 4 KiB each, 32 in flight\nsessions  3\n"),
        "{text}"
    );
    assert!(text.contains("Mbit/s\nlatency   min "), "{text}");
    rig.assert_logged_out();
}

/// If a read fails, the report has the measurements made before.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_fails_ends_the_load() {
    let rig = Rig::start_with(BLOCK, MIB, |config| {
        config.faults = vec![Fault::medium_error(1024..1032)];
    })
    .await;
    let options = ["--seconds", "3600", "--depth", "1", "--size", "4k", "--json"];
    let output = iscsi_util(&[&["perf", &rig.url()][..], &options].concat());
    assert_eq!(output.status.code(), Some(69));
    let object = object(&output);
    assert_eq!((&object["complete"], &object["kind"]), (&false.into(), &"target".into()));
    assert!(object["error"].as_str().unwrap().contains("READ (16) failed"), "{object}");
    assert_eq!(object["bytes"], MIB / 2);
    rig.assert_logged_out();
}
