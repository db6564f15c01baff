//! Tests of the JSON object on standard output.

use std::time::Duration;

use iscsi_testkit::config::{Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::Value;

use crate::support::{
    MIB, Rig, TARGET, assert_untouched, complains, link_doctor, object, start, start_with, stderr,
    succeeds,
};

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_everything_in_numbers() {
    let rig = start(8 * MIB).await;
    let options = ["--json", "--seconds", "1", "--bandwidth", "100mbit", "--depth", "3"];
    let output = link_doctor(&[&[rig.url().as_str()][..], &options].concat());
    succeeds(&output);
    let report = object(&output);

    assert_eq!(report["target"], TARGET);
    assert_eq!(report["unit"]["capacity_bytes"], 8 * MIB);
    assert_eq!(report["negotiated"]["InitialR2T"], false);
    assert_eq!(report["negotiated"]["FirstBurstLength"], 262_144);
    assert_eq!(report["negotiated"]["CommandWindow"], 64);
    assert_eq!(report["rtt"]["pings_ms"].as_array().unwrap().len(), 10);
    assert_eq!(report["rtt"]["ping"]["samples"], 10);
    assert!(report["rtt"]["tcp"]["min_ms"].as_f64().unwrap() > 0.0);
    assert!(report["tcp"]["mss_bytes"].as_u64().unwrap() > 500);
    assert_eq!(report["interface"]["name"], "lo");
    assert!(report["encryption"].is_null());
    assert!(report["host"]["tcp_wmem_bytes"][2].as_u64().unwrap() > 0);
    assert_eq!(report["plan"]["bandwidth_mbit_per_s"], 100.0);
    assert_eq!(report["plan"]["bandwidth_basis"], "declared");
    assert!(report["plan"]["io_size_bytes"]["value"].as_u64().unwrap() > 0);
    assert!(report["granted"]["send_buffer_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&report["complete"], &report["error"]), (&Value::Bool(true), &Value::Null));
    assert_untouched(&rig);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_read_test_adds_up() {
    let rig = start(8 * MIB).await;
    let output = link_doctor(&[&rig.url(), "--json", "--seconds", "1", "--depth", "3"]);
    succeeds(&output);
    let read = &object(&output)["read"];
    assert_eq!(read["queue_depth"], 3);
    let number = |name: &str| read[name].as_f64().unwrap();
    let megabits = number("bytes") * 8.0 / 1e6;
    let told = number("goodput_mbit_per_s") * number("seconds");
    assert!((told / megabits - 1.0).abs() < 1e-3, "{told} and {megabits}");
    assert!(read["samples_mbit_per_s"].is_array());
    assert!(read["verdict"].as_str().is_some_and(|verdict| !verdict.is_empty()));
    assert!(read["limit"].is_string());
    assert!(read["diagnosis"].is_array());
}

/// 64 KiB are unsolicited, and the rest is requested in rounds of 256 KiB. Each round takes as long as a ping.
#[tokio::test(flavor = "multi_thread")]
async fn writes_are_calculated_from_what_was_agreed() {
    let rig = start_with(MIB, Duration::from_millis(30), |config| {
        config.keys.first_burst_length = 65_536;
        config.keys.max_burst_length = 262_144;
        config.keys.max_outstanding_r2t = 1;
    })
    .await;
    let url = rig.at(&format!("/{TARGET}"));
    let output = link_doctor(&[&url, "--json", "--depth", "2"]);
    succeeds(&output);
    let report = object(&output);
    assert_eq!((&report["unit"], &report["read"]), (&Value::Null, &Value::Null));
    let write = &report["write"];
    let io_size = write["io_size_bytes"].as_u64().unwrap();
    let round_trips = 1 + (io_size - 65_536).div_ceil(262_144);
    assert_eq!(write["round_trips"], round_trips);
    let number = |name: &str| write[name].as_f64().unwrap();
    assert!(number("rtt_ms") >= 30.0, "{write}");
    assert!((number("write_ms") - number("round_trips") * number("rtt_ms")).abs() < 1e-3);

    let ceilings = write["ceilings"].as_array().unwrap();
    let queue = ceilings.iter().find(|ceiling| ceiling["limit"] == "queue").unwrap();
    let expected = 2.0 * number("io_size_bytes") * 8.0 / 1e3 / number("write_ms");
    let told = queue["mbit_per_s"].as_f64().unwrap();
    assert!((told / expected - 1.0).abs() < 1e-3, "{told} and {expected}");
    assert_eq!(write["lowest"], "queue");
    let remedy = write["remedy"].as_str().unwrap();
    let command = format!("targetcli /iscsi/{TARGET}/tpg1 set parameter ");
    assert!(remedy.contains(&command), "{remedy}");
    assert!(remedy.contains(&format!("FirstBurstLength={io_size}")), "{remedy}");
}

/// Starts a portal that redirects its logins to a portal at another host.
async fn redirected() -> (Rig, Server) {
    let to = Server::start_at(
        ("127.0.0.2", 0),
        Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 2048))),
        Duration::ZERO,
    );
    let to = to.await.unwrap();
    let address = to.address().to_string();
    let rig = start_with(MIB, Duration::ZERO, |config| {
        config.login.redirect =
            Some(Redirect { address, permanent: false, after_authentication: false });
    })
    .await;
    (rig, to)
}

/// The report names the portal of the session, and notes that its host differs from the one in the URL.
#[tokio::test(flavor = "multi_thread")]
async fn a_redirection_is_told() {
    let (rig, to) = redirected().await;
    let (named, there) = (rig.at(""), format!("iscsi://{}", to.address()));
    let url = rig.at(&format!("/{TARGET}?redirects=any"));
    let output = link_doctor(&[&url, "--json"]);
    succeeds(&output);
    let note = format!("sends the login on to another host: {}", to.address());
    assert!(stderr(&output).contains(&note), "{}", stderr(&output));
    let report = object(&output);
    assert_eq!((&report["portal"], &report["redirected_from"]), (&there.into(), &named.into()));
    let text = succeeds(&link_doctor(&[&url]));
    assert!(text.contains("the login was redirected from"), "{text}");

    let output = link_doctor(&[&rig.at(&format!("/{TARGET}"))]);
    complains(&output, 77, &["127.0.0.1", &to.address().to_string(), "redirects=any"]);
}
