//! Tests of texts of a target that contain control characters of terminals: none may reach standard output,
//! standard error or the log.

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::hostile_text::{configs, obeyed};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

use crate::support::{BLOCK, TARGET, program};

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_target_is_obeyed() {
    let config = TargetConfig::new(TARGET, RamDisk::new(BLOCK, 64));
    for (place, config) in configs(&config) {
        let server = Server::start(Target::new(config)).await.unwrap();
        let url = format!("iscsi://{}/{TARGET}/0", server.address());
        for subcommand in [
            &["discover", &url][..],
            &["luns", &url],
            &["inquiry", "--all", &url],
            &["capacity", &url],
            &["extents", &url],
            &["ping", "--count", "1", &url],
            &["reservations", &url],
            &["port-groups", &url],
            &["register", "--key", "0x1", &url],
            &["discard", "--offset", "0", "--length", "512", "--yes", &url],
            &["volume", "create", &url, &format!("{url}?timeout=9")],
        ] {
            for json in [&[][..], &["--json"]] {
                let mut command = program(&[subcommand, json].concat());
                // All log lines are enabled, because they contain the target's responses.
                let output = command.env("RUST_LOG", "trace").output().unwrap();
                for stream in [&output.stdout, &output.stderr] {
                    assert_eq!(obeyed(stream), None, "{place}: {subcommand:?} {json:?}");
                }
            }
        }
        server.stop().await;
    }
}
