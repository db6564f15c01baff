//! Starts a target on loopback and an initiator for it.

pub(crate) mod layer;
pub(crate) mod proxy;

use std::ops::Deref;
use std::time::Duration;

use iscsi_initiator::{Advanced, Disk, DiskEvent, DiskEvents, Initiator, Options, Session};
use iscsi_session::Offer;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
const INITIATOR: &str = "iqn.2026-01.org.example:host";

/// A served target that checks for violations at the end, because the target tolerates much that only its
/// checker finds.
pub(crate) struct Watched(Option<Server>);

impl Watched {
    pub(crate) async fn start(config: TargetConfig) -> Self {
        Server::start(Target::new(config)).await.unwrap().into()
    }

    /// Asserts that the initiator has violated no rule.
    pub(crate) fn assert_clean(&self) {
        let violations = self.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
    }

    pub(crate) async fn stop(mut self) {
        self.assert_clean();
        self.0.take().unwrap().stop().await;
    }
}

impl From<Server> for Watched {
    fn from(server: Server) -> Self {
        Self(Some(server))
    }
}

impl Deref for Watched {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0.as_ref().expect("not stopped")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.0.is_some() && !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

/// A served target and its disk.
pub(crate) struct Rig {
    pub(crate) server: Watched,
    pub(crate) disk: RamDisk,
}

impl Rig {
    /// Starts a target with one unit, changed by `change`.
    pub(crate) async fn start(
        block_size: u32,
        blocks: u64,
        change: impl FnOnce(&mut TargetConfig),
    ) -> Self {
        let disk = RamDisk::new(block_size, blocks);
        let mut config = TargetConfig::new(TARGET, disk.clone());
        change(&mut config);
        Self { server: Watched::start(config).await, disk }
    }

    /// Returns the URL that has `path` after the portal.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("iscsi://{}{path}", self.server.address())
    }

    /// Returns the URL of a unit, with options.
    pub(crate) fn unit_url(&self, lun: u16, options: &str) -> String {
        self.url(&format!("/{TARGET}/{lun}{options}"))
    }

    /// Opens a session with unit 0.
    pub(crate) async fn session(&self, options: Options) -> Session {
        initiator(options).connect(self.unit_url(0, "")).await.unwrap()
    }

    /// Asserts that the initiator has violated no rule.
    pub(crate) fn assert_clean(&self) {
        self.server.assert_clean();
    }
}

pub(crate) fn initiator(mut options: Options) -> Initiator {
    options = options.with_use_environment(false);
    Initiator::with_options(INITIATOR, options).unwrap()
}

/// Returns bytes that depend on their offset.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 251) as u8 ^ seed).collect()
}

/// Returns the notes in the status of a disk, as sentences.
pub(crate) fn notes_of(disk: &Disk) -> Vec<String> {
    disk.status().notes.iter().map(ToString::to_string).collect()
}

/// Returns the next change of the unit, and skips other events.
pub(crate) async fn unit_change(events: &mut DiskEvents) -> Option<String> {
    loop {
        let event = events.next().await?;
        if matches!(
            event,
            DiskEvent::CapacityChanged { .. }
                | DiskEvent::InquiryDataChanged
                | DiskEvent::ReportedLunsChanged
                | DiskEvent::AccessStatesChanged
        ) {
            return Some(shown(&event));
        }
    }
}

pub(crate) fn shown(event: &DiskEvent) -> String {
    format!("{event:?}")
}

/// Waits for a future, and panics instead of hanging.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the test hangs")
}

/// Waits until a condition holds that depends on another task or the target.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Lets this much time pass for all tasks of this thread's runtime, without waiting for it: the clock jumps
/// from timer to timer while no task and no loopback socket has anything to do.
pub(crate) async fn let_pass(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

/// Returns options with which a lost session reconnects without the wait that the initiator proposes
/// (DefaultTime2Wait).
pub(crate) fn without_wait() -> Advanced {
    Advanced::default().with_offer(Offer::default().with_default_time2wait(0))
}
