//! Starts the testkit's target with a unit that stores nothing. It is a separate process, so that its processor
//! time does not count as the initiator's.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Builder;

use crate::Trouble;
use crate::target::processor_time;

const NAME: &str = "iqn.2026-01.org.example:testkit-null";
/// Blocks of the unit: 1 TiB.
const BLOCKS: u64 = 1 << 31;
/// Bytes of one PDU.
const SEGMENT: u32 = 256 << 10;
/// Bytes of unsolicited data, and of data per R2T.
const BURST: u32 = 1 << 20;
/// Commands that may be in flight.
const WINDOW: u32 = 128;

/// Returns the login keys of the target, with their values.
pub(crate) fn keys() -> [(&'static str, String); 6] {
    [
        ("FirstBurstLength", BURST.to_string()),
        ("ImmediateData", "Yes".to_owned()),
        ("InitialR2T", "No".to_owned()),
        ("MaxBurstLength", BURST.to_string()),
        ("MaxRecvDataSegmentLength", SEGMENT.to_string()),
        ("Window", WINDOW.to_string()),
    ]
}

/// Prints the unit's URL, and serves it until standard input ends.
pub(crate) fn serve() -> Result<(), Trouble> {
    let mut config = TargetConfig::new(NAME, RamDisk::null(512, BLOCKS));
    config.window = WINDOW;
    config.keys.initial_r2t = false;
    config.keys.immediate_data = true;
    config.keys.max_recv_data_segment_length = Some(SEGMENT);
    config.keys.max_burst_length = BURST;
    config.keys.first_burst_length = BURST;
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let server = Server::start(Target::new(config)).await?;
        println!("iscsi://{}/{NAME}/0", server.address());
        let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        end.await??;
        let violations = server.with(|target| target.violations().to_vec());
        server.stop().await;
        match violations.first() {
            Some(first) => Err(format!("{} violations: {first}", violations.len()).into()),
            None => Ok(()),
        }
    })
}

/// A process of this program that runs `serve`.
#[derive(Debug)]
pub(crate) struct NullTarget {
    child: Child,
    pub(crate) url: String,
}

impl NullTarget {
    /// Starts the process. It ends when this program ends, even if this program is killed.
    pub(crate) async fn start() -> Result<Self, Trouble> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("null-target").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let url = BufReader::new(output).lines().next_line().await?;
        Ok(Self { child, url: url.ok_or("the null target did not start")? })
    }

    /// Returns the processor time of the process's threads so far.
    pub(crate) fn processor_time(&self) -> Duration {
        processor_time(self.child.id())
    }

    /// Ends the process. Returns an error if the initiator has violated a rule of the protocol.
    pub(crate) async fn end(mut self) -> Result<(), Trouble> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the null target: {status}").into()) }
    }
}
