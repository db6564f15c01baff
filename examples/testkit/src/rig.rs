//! A target on loopback.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

/// Name of the target.
pub const TARGET: &str = "iqn.2026-01.org.example:disk";

/// A running target with one unit.
#[derive(Debug)]
pub struct Rig {
    /// The target.
    pub server: Server,
    /// The medium of the unit.
    pub disk: RamDisk,
}

impl Rig {
    /// Starts a target with an empty unit of `bytes` bytes, a multiple of `block_size`.
    pub async fn start(block_size: u32, bytes: u64) -> Self {
        Self::start_with(block_size, bytes, |_| {}).await
    }

    /// Starts a target with an empty unit of `bytes` bytes. `change` adapts its configuration before it starts.
    pub async fn start_with(
        block_size: u32,
        bytes: u64,
        change: impl FnOnce(&mut TargetConfig),
    ) -> Self {
        Self::start_at("127.0.0.1", block_size, bytes, Duration::ZERO, change).await
    }

    /// Starts a distant target: each of its responses is delayed by `delay`.
    pub async fn start_far(block_size: u32, bytes: u64, delay: Duration) -> Self {
        Self::start_at("127.0.0.1", block_size, bytes, delay, |_| {}).await
    }

    /// Starts a target at an address of loopback. If no other test uses the address, no test takes the port after
    /// the target has stopped.
    pub async fn start_at(
        address: &str,
        block_size: u32,
        bytes: u64,
        delay: Duration,
        change: impl FnOnce(&mut TargetConfig),
    ) -> Self {
        let disk = RamDisk::new(block_size, bytes / u64::from(block_size));
        assert_eq!(disk.capacity(), bytes);
        let mut config = TargetConfig::new(TARGET, disk.clone());
        // Other tests have their units at the same time, and a program refuses a unit that another one uses.
        config.units.values_mut().for_each(|unit| unit.serial = unique_serial());
        change(&mut config);
        let server = Server::start_at((address, 0), Target::new(config), delay).await.unwrap();
        Self { server, disk }
    }

    /// Returns the URL of the unit.
    pub fn url(&self) -> String {
        self.at(&format!("/{TARGET}/0"))
    }

    /// Returns the URL of a path at the portal.
    pub fn at(&self, path: &str) -> String {
        format!("iscsi://{}{path}", self.server.address())
    }

    /// Returns the operation codes of all commands that the target has received.
    pub fn operation_codes(&self) -> Vec<u8> {
        self.server.with(|target| target.commands().iter().map(|command| command.cdb[0]).collect())
    }

    /// Returns the number of commands with this operation code that the target has received.
    pub fn seen(&self, code: u8) -> usize {
        self.operation_codes().iter().filter(|seen| **seen == code).count()
    }

    /// Returns the number of bytes in all WRITE (10) and (16) commands that the target has received.
    pub fn written(&self) -> u64 {
        let blocks = |cdb: &[u8]| match *cdb {
            [0x2a, _, _, _, _, _, _, high, low, ..] => u64::from(u16::from_be_bytes([high, low])),
            [0x8a, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] => {
                u64::from(u32::from_be_bytes([a, b, c, d]))
            }
            _ => 0,
        };
        let blocks: u64 = self
            .server
            .with(|target| target.commands().iter().map(|command| blocks(&command.cdb)).sum());
        blocks * u64::from(self.disk.block_size())
    }

    /// Checks that the initiator has not violated the protocol.
    pub fn assert_clean(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Checks that the initiator has not violated the protocol, and that no session is left.
    pub fn assert_logged_out(&self) {
        self.assert_clean();
        assert_eq!(self.server.with(|target| target.sessions()), 0);
    }
}

/// Returns a serial number that no other unit of a test has.
pub fn unique_serial() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
