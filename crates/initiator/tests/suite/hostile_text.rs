//! Tests of targets whose texts contain control characters for a terminal: no control character reaches the
//! texts that this crate returns.

use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{Error, Options};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::hostile_text::{configs, obeyed};

use crate::support::{TARGET, Watched, initiator, soon};

/// Returns all texts that can be shown of a target and its unit.
async fn shown(url: &str) -> Vec<String> {
    let initiator = initiator(Options::default());
    let error = |error: Error| error.to_string();
    let mut texts = Vec::new();
    match soon(initiator.discover(url)).await {
        Ok(targets) => texts.extend(targets.into_iter().flat_map(|target| {
            let addresses = target.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
            addresses.into_iter().chain([target.name.to_string()])
        })),
        Err(why) => texts.push(error(why)),
    }
    match soon(initiator.connect(url)).await {
        Ok(session) => {
            texts.extend(session.negotiated().target_alias);
            texts.extend(session.portal().map(ToString::to_string));
            let unit = session.logical_unit(Lun::ZERO);
            texts.extend(soon(unit.read(1 << 40, 1)).await.err().map(error));
            drop(soon(session.logout()).await);
        }
        Err(why) => texts.push(error(why)),
    }
    match soon(initiator.disk(format!("{url}?portals=auto"))).await {
        Ok(disk) => {
            let profile = disk.profile();
            texts.extend([profile.vendor.clone(), profile.product.clone()]);
            texts.push(format!("{:?}", profile.serial_number));
            texts.push(disk.status().to_string());
            texts.push(disk.stats().to_string());
            drop(soon(disk.logout()).await);
        }
        Err(why) => texts.push(error(why)),
    }
    texts
}

#[tokio::test]
async fn no_text_of_a_target_is_obeyed() {
    let config = TargetConfig::new(TARGET, RamDisk::new(512, 64));
    for (place, config) in configs(&config) {
        let server = Watched::start(config).await;
        for text in shown(&format!("iscsi://{}/{TARGET}/0", server.address())).await {
            assert_eq!(obeyed(text.as_bytes()), None, "{place}");
        }
    }
}
