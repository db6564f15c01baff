//! Changes the settings that the bench needs: the link, and the system's limit of send buffers.

use std::fs;

use iscsi_lab::environment::scripts;
use iscsi_lab::process::tool;
use iscsi_lab::provenance::sysctl_file;
use iscsi_lab::result::LinkConditions;
use iscsi_lab::testbed::link_words;
use tokio::process::Command;

use crate::grid::{Buffer, Point, Trouble};

/// Rate of the link, Mbit/s (10^6 bits).
const RATE: f64 = 100.0;
/// Name of the system's limit for the send buffer that a program may set.
const CAP: &str = "net.core.wmem_max";
/// Raised limit in bytes, above all send buffers of the grid.
pub(crate) const RAISED: u64 = 4 << 20;

/// The system's limit before the measurement. It is restored at the end.
#[derive(Debug)]
pub(crate) struct System {
    stock: Option<String>,
}

impl System {
    /// Reads the system's current limit.
    pub(crate) fn found() -> Self {
        let stock = fs::read_to_string(sysctl_file(CAP)).ok();
        Self { stock: stock.map(|bytes| bytes.trim().to_owned()) }
    }

    /// Prepares the link and the limit for a point.
    pub(crate) async fn prepare(&self, point: &Point) -> Result<(), Trouble> {
        self.set_cap(point.buffer)?;
        set_link(&link(point)).await
    }

    fn set_cap(&self, buffer: Buffer) -> Result<(), Trouble> {
        let refused = |error| format!("{CAP} cannot be set here: {error}");
        match (buffer, &self.stock) {
            (Buffer::Static(_), _) => fs::write(sysctl_file(CAP), RAISED.to_string()),
            (Buffer::Auto | Buffer::Tuned, Some(stock)) => fs::write(sysctl_file(CAP), stock),
            (Buffer::Auto | Buffer::Tuned, None) => Ok(()),
        }
        .map_err(|error| refused(error).into())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // An error is ignored: a guest is discarded at its end.
        let _unchanged = self.set_cap(Buffer::Auto);
    }
}

/// Returns the conditions of the link for a point.
pub(crate) fn link(point: &Point) -> LinkConditions {
    LinkConditions { rtt_ms: point.rtt_ms.into(), rate_mbit_per_s: Some(RATE), loss_percent: 0.0 }
}

/// Removes all limits of the link, so that data in flight arrive immediately.
pub(crate) async fn open_link() -> Result<(), Trouble> {
    set_link(&LinkConditions::default()).await
}

async fn set_link(link: &LinkConditions) -> Result<(), Trouble> {
    let mut command = Command::new("bash");
    command.arg(scripts().join("link")).arg("set").args(link_words(link));
    tool(&mut command).await?;
    Ok(())
}
