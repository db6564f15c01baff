//! Tests of texts of a target that contain control characters of terminals: none may reach the report, standard
//! error or the log.

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::hostile_text::{configs, obeyed};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

use crate::support::{TARGET, program};

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_target_is_obeyed() {
    let config = TargetConfig::new(TARGET, RamDisk::new(512, 64));
    for (place, config) in configs(&config) {
        let is_of_unit = config.units[&0].behavior.designators.is_some();
        let server = Server::start(Target::new(config)).await.unwrap();
        let portal = server.address();
        // The texts of a unit are in the report only if the unit is read.
        let unit = if is_of_unit { "/0" } else { "" };
        for json in [&[][..], &["--json"]] {
            let url = format!("iscsi://{portal}/{TARGET}{unit}");
            let mut command = program(&[&["--seconds", "1", &url][..], json].concat());
            // All log lines are enabled, because they contain the target's responses.
            let output = command.env("RUST_LOG", "trace").output().unwrap();
            for stream in [&output.stdout, &output.stderr] {
                assert_eq!(obeyed(stream), None, "{place}: {json:?}");
            }
        }
        server.stop().await;
    }
}
