//! The object on standard output.

use serde_json::Value;

use crate::support::{Folder, Rig, block_copy, object, pattern, succeeds};

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_everything_about_a_copy_to_a_unit() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(300_000));
    let options = ["--json", "--verify", "--io-size", "64k", "--queue-depth", "3"];
    let output = block_copy(&[&[source.as_str(), &rig.url()][..], &options].concat());
    assert!(succeeds(&output).contains("read back equal"));
    let report = object(&output);

    assert_eq!(report["bytes"], 300_000);
    assert_eq!(report["sessions"], 1);
    assert_eq!(report["sessions_peak"], 1);
    assert!(!report["sessions_reason"].as_str().unwrap().is_empty());
    assert_eq!(report["notes"], serde_json::json!([]));
    assert_eq!(report["connections"], 1);
    assert_eq!(report["queue_depth"], 3);
    assert_eq!(report["io_size"], 65_536);
    assert_eq!(report["retries"], 0);
    assert_eq!(report["reconnects"], 0);
    assert_eq!(report["verified"], true);
    let seconds = report["seconds"].as_f64().unwrap();
    let goodput = report["goodput_mbit_per_s"].as_f64().unwrap();
    assert!((goodput * seconds - 2.4).abs() < 1e-6, "{goodput} Mbit/s in {seconds} s");
    assert!(report["rtt_ms"].as_f64().unwrap() > 0.0);
    assert!(report["cpu_seconds"].as_f64().unwrap() > 0.0);
    assert!(report["samples_mbit_per_s"].is_array());

    let plan = &report["plan"];
    assert_eq!(plan["queue_depth"]["value"], 3);
    assert!(plan["queue_depth"]["reason"].as_str().unwrap().contains("--queue-depth"));
    assert!(plan["io_size"]["reason"].as_str().unwrap().contains("--io-size"));
    assert_eq!(plan["source"]["kind"], "file");
    assert_eq!(plan["destination"]["name"], rig.url());
    assert_eq!(plan["destination"]["negotiated"]["FirstBurstLength"], 262_144);
    assert_eq!(plan["destination"]["negotiated"]["InitialR2T"], false);
    let tuning = &plan["destination"]["tuning"];
    assert_eq!(tuning["policy"]["value"], "auto");
    for choice in tuning.as_object().unwrap().values() {
        assert!(!choice["reason"].as_str().unwrap().is_empty(), "{tuning}");
    }

    let [diagnosis] = report["diagnosis"].as_array().unwrap().as_slice() else {
        panic!("one end is a unit: {report}");
    };
    assert_eq!(diagnosis["end"], "destination");
    assert!(diagnosis["goodput_mbit_per_s"].as_f64().unwrap() > 0.0);
    for finding in diagnosis["findings"].as_array().unwrap() {
        assert!((0.0..=1.0).contains(&finding["share"].as_f64().unwrap()), "{finding}");
    }
    assert_eq!(report.as_object().unwrap().len(), 18);
}

#[test]
fn without_a_unit_there_is_no_session_and_no_round_trip() {
    let folder = Folder::new();
    let source = folder.file("image", b"something");
    let output = block_copy(&[&source, &folder.path("copy"), "--json", "--progress", "none"]);
    assert_eq!(succeeds(&output), "");
    let report = object(&output);
    assert_eq!(report["bytes"], 9);
    assert_eq!(report["verified"], false);
    assert_eq!(report["sessions"], 0);
    assert_eq!(report["connections"], 0);
    assert_eq!(report["sessions_reason"], Value::Null);
    assert_eq!(report["rtt_ms"], Value::Null);
    assert_eq!(report["diagnosis"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_were_sent_again_are_counted() {
    let rig = Rig::start(512, 1 << 20).await;
    let folder = Folder::new();
    let source = folder.file("image", &pattern(4096));
    // The first commands of a session are those that ask the unit what it is.
    rig.server.with(|target| {
        target.end_next_with(iscsi_testkit::target::Outcome::status(0x08));
    });
    let output = block_copy(&[&source, &rig.url(), "--json"]);
    assert!(succeeds(&output).contains("1 commands sent again"));
    assert_eq!(object(&output)["retries"], 1);
}
