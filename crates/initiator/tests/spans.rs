//! Tests that log lines name their disk. This test has its own process, because `tracing` caches, for all
//! threads, which log statements have a subscriber.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "suite/support/mod.rs"]
mod support;

use std::io;
use std::sync::{Arc, Mutex};

use iscsi_initiator::{Advanced, Disk, Options, Sessions};
use iscsi_session::Offer;
use iscsi_testkit::config::Chap;
use iscsi_testkit::target::ConnId;
use support::{Rig, TARGET, initiator, soon, until};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

const OTHER: &str = "iqn.2026-01.org.example:other";
const SECRET: &str = "a-secret-of-96-bits";

/// The text that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Opens a disk of two sessions with two connections each, at a target with this name.
async fn open(name: &str) -> (Rig, Disk) {
    let rig = Rig::start(512, 4096, |config| {
        config.names = vec![name.to_owned()];
        config.chap = Some(Chap::new("user", SECRET));
        config.keys.default_time2wait = 0;
    })
    .await;
    let options = Options::default()
        .with_sessions(Sessions::Fixed(2))
        .with_connections(2)
        .with_advanced(Advanced::default().with_offer(Offer::default().with_default_time2wait(0)));
    let url = format!("iscsi://user%{SECRET}@{}/{name}/0", rig.server.address());
    let disk = soon(initiator(options).disk(url)).await.unwrap();
    let are_joined = || disk.sessions().iter().all(|session| session.connections().open == 2);
    until(|| disk.sessions().len() == 2 && are_joined()).await;
    (rig, disk)
}

fn isids(disk: &Disk) -> Vec<String> {
    disk.sessions().iter().map(|session| format!("isid={}", session.isid())).collect()
}

/// Drops all connections at the target, waits until both sessions have reconnected, and writes.
async fn shake(rig: &Rig, disk: &Disk) {
    let lost = rig.server.with(|target| {
        let lost = target.accepted();
        (0..lost).for_each(|at| target.drop_connection(ConnId(at)));
        lost
    });
    assert!(lost >= 4);
    until(|| disk.status().reconnects == 2 && disk.sessions().len() == 2).await;
    soon(disk.write_at(0, vec![1; 512])).await.unwrap();
}

/// The lines of two disks in one process can be distinguished: each line names its disk.
#[tokio::test]
async fn lines_of_two_disks_can_be_told_apart() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(log.clone())
        .with_ansi(false);
    let _guard = subscriber.finish().set_default();
    let (one, two) = (open(TARGET).await, open(OTHER).await);
    let names = [(TARGET, isids(&one.1)), (OTHER, isids(&two.1))];
    tokio::join!(shake(&one.0, &one.1), shake(&two.0, &two.1));
    for (rig, disk) in [one, two] {
        soon(disk.logout()).await.unwrap();
        rig.assert_clean();
    }

    let lines = log.lines();
    for (name, isids) in &names {
        let own: Vec<_> =
            lines.iter().filter(|line| line.contains(&format!("target={name} lun=0"))).collect();
        let says = |part: &str| own.iter().any(|line| line.contains(part));
        assert!(says("disk{target") && says("session{target"), "{own:#?}");
        // Lines of the supervisor name the session. Lines of the driver name the connection.
        assert!(says("a session was lost") && says("connection{cid="), "{own:#?}");
        for isid in isids {
            assert!(own.iter().any(|line| line.contains("path{") && line.contains(isid)));
            assert!(own.iter().any(|line| line.contains("session{") && line.contains(isid)));
        }
    }
    for line in &lines {
        let of = names.iter().filter(|(name, _)| line.contains(&format!("target={name} lun=0")));
        let of: Vec<_> = of.collect();
        let is_named = line.contains("using the default initiator name");
        assert!(is_named || of.len() == 1, "whose line is this? {line}");
        let (_, isids) = of[0];
        let is_of_driver =
            line.contains("iscsi_initiator::driver") || line.contains("iscsi_session");
        let has_isid = isids.iter().any(|isid| line.contains(isid));
        assert!(!is_of_driver || has_isid, "{line}");
        assert!(!line.contains("isid=") || has_isid, "{line}");
    }
    assert!(!lines.iter().any(|line| line.contains(SECRET)), "{lines:#?}");
}
