//! Tests of writes of a killed process that the target executes late.

use std::path::Path;
use std::time::Duration;

use iscsi_copy::{
    CheckpointFile, CopyJob, CopyOptions, Destination, DigestFile, Event, Identity, Source,
};
use iscsi_initiator::{Disk, Initiator};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::runtime::Runtime;

use crate::support::{Folder, Memory, pattern};

const TARGET: &str = "iqn.2026-01.org.example:disk";
/// The name of a second target with the same unit.
const OTHER_TARGET: &str = "iqn.2026-01.org.example:disk2";
const UNIT: usize = 1 << 20;
/// The blocks of the delayed write.
const LATE: std::ops::Range<usize> = 512..640;

/// A target that executes one write long after the end of a test, and a second target with the same unit.
struct Rig {
    runtime: Runtime,
    server: Server,
    other: Server,
    unit: RamDisk,
}

impl Rig {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let unit = RamDisk::new(512, (UNIT / 512) as u64);
        let mut config = TargetConfig::new(TARGET, unit.clone());
        let blocks = LATE.start as u64..LATE.end as u64;
        config.faults.push(Fault::execute_late(blocks, Duration::from_secs(3600)).times(1));
        let server = runtime.block_on(Server::start(Target::new(config))).unwrap();
        let other = Target::new(TargetConfig::new(OTHER_TARGET, unit.clone()));
        let other = runtime.block_on(Server::start(other)).unwrap();
        Self { runtime, server, other, unit }
    }

    /// Returns the URL of the unit through the target that delays a write.
    fn url(&self) -> String {
        format!("iscsi://{}/{TARGET}/0", self.server.address())
    }

    /// Returns the URL of the unit through the other target.
    fn other_url(&self) -> String {
        format!("iscsi://{}/{OTHER_TARGET}/0", self.other.address())
    }

    fn put_off(&self) -> usize {
        self.server.with(|target| target.put_off_commands())
    }

    /// Copies in a runtime that stands for a process, until the target delays a write. Then ends the runtime,
    /// which drops its sessions.
    fn is_killed(&self, bytes: &[u8], options: CopyOptions) {
        let (process, from) = (Runtime::new().unwrap(), Memory::new(bytes.to_vec()));
        let url = self.url();
        process.spawn(async move {
            let to = disk(&url, "host").await;
            let copy = CopyJob::new(Source::device(from), Destination::device(to));
            copy.with_options(options).run().await
        });
        while self.put_off() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        process.shutdown_timeout(Duration::ZERO);
        assert_eq!(self.put_off(), 1);
    }

    /// Runs a copy in another runtime to the end. Returns the reported reason why earlier sessions may not
    /// have ended; `None` without such a report.
    fn copies(&self, name: &str, bytes: &[u8], options: CopyOptions) -> Option<String> {
        self.copies_to(&self.url(), name, bytes, options)
    }

    /// Copies to the unit of this URL.
    fn copies_to(
        &self,
        url: &str,
        name: &str,
        bytes: &[u8],
        options: CopyOptions,
    ) -> Option<String> {
        let from = Memory::new(bytes.to_vec());
        let not_ended = self.runtime.block_on(async move {
            let to = disk(url, name).await;
            let copy = CopyJob::new(Source::device(from), Destination::device(to.clone()));
            let copy = copy.with_options(options);
            let mut events = copy.events();
            copy.run().await.unwrap();
            to.logout().await.unwrap();
            let mut not_ended = None;
            while let Some(event) = events.next().await {
                if let Event::NotEnded(why) = event {
                    not_ended = Some(why);
                }
            }
            not_ended
        });
        assert!(self.unit.holds(0, bytes));
        not_ended
    }
}

async fn disk(url: &str, name: &str) -> Disk {
    let options = iscsi_initiator::Options::default().with_use_environment(false);
    let name = format!("iqn.2026-01.org.example:{name}");
    let initiator = Initiator::with_options(&name, options).unwrap();
    initiator.disk(url).await.unwrap()
}

fn ends() -> [Identity; 2] {
    [Identity::new("a source", UNIT as u64), Identity::new("a unit", UNIT as u64)]
}

fn digests(path: &Path) -> CopyOptions {
    let [source, unit] = ends();
    CopyOptions::default().with_digests(DigestFile::open(path, &source, &unit, 65536).unwrap())
}

fn checkpoint(path: &Path) -> CopyOptions {
    let [source, unit] = ends();
    let file = CheckpointFile::new(path, source, unit);
    let done = file.load().unwrap().unwrap_or_default();
    CopyOptions::default().with_checkpoint(file).with_done(done)
}

fn changed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[LATE.start * 512..LATE.end * 512].fill(9);
    bytes
}

#[test]
fn what_digests_say_is_not_undone_by_a_process_that_was_killed() {
    let (rig, folder) = (Rig::start(), Folder::new());
    let path = folder.path("digests");
    let first = pattern(UNIT);
    rig.is_killed(&first, digests(&path));
    assert_eq!(rig.copies("host", &changed(&first), digests(&path)), None);
    assert_eq!(rig.put_off(), 0, "the target would still undo it");
}

/// The late write changes neither ranges that the checkpoint records as done, nor ranges that the next run
/// copies.
#[test]
fn what_a_checkpoint_says_is_not_undone_by_a_process_that_was_killed() {
    let (rig, folder) = (Rig::start(), Folder::new());
    let path = folder.path("map");
    let bytes = pattern(UNIT);
    rig.is_killed(&bytes, checkpoint(&path));
    assert_eq!(rig.copies("host", &bytes, checkpoint(&path)), None);
    assert_eq!(rig.put_off(), 0);
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(!kept.contains("# sessions: "), "it has ended in order: {kept}");
}

/// Only the initiator that had the sessions can end them. The error names that initiator, and the sessions
/// stay recorded.
#[test]
fn another_initiator_says_that_it_cannot_end_them() {
    let (rig, folder) = (Rig::start(), Folder::new());
    let path = folder.path("digests");
    let bytes = pattern(UNIT);
    rig.is_killed(&bytes, digests(&path));
    let why = rig.copies("other", &bytes, digests(&path)).unwrap();
    assert!(why.contains("iqn.2026-01.org.example:host, and only that one"), "{why}");
    assert_eq!(rig.put_off(), 1);
    assert_eq!(rig.copies("host", &bytes, digests(&path)), None);
    assert_eq!(rig.put_off(), 0);
    assert_eq!(rig.copies("other", &bytes, digests(&path)), None);
}

/// The sessions of a killed process are ended at the target that has them, even if the next run uses another
/// target of the unit.
#[test]
fn what_a_killed_process_has_left_is_ended_where_it_was_left() {
    let (rig, folder) = (Rig::start(), Folder::new());
    let path = folder.path("digests");
    let first = pattern(UNIT);
    rig.is_killed(&first, digests(&path));
    let changed = changed(&first);
    assert_eq!(rig.copies_to(&rig.other_url(), "host", &changed, digests(&path)), None);
    assert_eq!(rig.put_off(), 0, "the target would still undo it");
}

/// If the target that has the sessions does not respond, the run reports that they may not have ended.
#[test]
fn what_cannot_be_ended_where_it_was_left_is_not_forgotten() {
    let (rig, folder) = (Rig::start(), Folder::new());
    let path = folder.path("digests");
    let first = pattern(UNIT);
    rig.is_killed(&first, digests(&path));
    let text = std::fs::read_to_string(&path).unwrap();
    let (closed, changed) = (closed_port(), changed(&first));
    // The check covers all lines above it, so the changed head is written with a new check.
    let head = text.lines().find(|line| line.starts_with("# sessions: ")).unwrap().to_owned();
    assert!(head.contains(&format!("{TARGET} {}", rig.server.address())), "{head}");
    let told = head.replace(&rig.server.address().to_string(), &closed);
    let told = told.strip_prefix("# sessions: ").unwrap();
    let why = rig.runtime.block_on(async {
        let to = disk(&rig.other_url(), "host").await;
        let ended = iscsi_copy::Device::end_left(&to, told).await;
        to.logout().await.unwrap();
        ended.unwrap_err()
    });
    assert!(!why.to_string().is_empty());
    assert_eq!(rig.put_off(), 1);
    assert_eq!(rig.copies_to(&rig.other_url(), "host", &changed, digests(&path)), None);
    assert_eq!(rig.put_off(), 0);
}

/// Returns an address without a listener.
fn closed_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
