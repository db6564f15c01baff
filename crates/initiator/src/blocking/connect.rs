//! Opens a disk by its URL alone.

use crate::blocking::disk::Disk;
use crate::blocking::initiator::Initiator;
use crate::error::Error;
use crate::options::Options;
use crate::url::Url;

/// Opens the disk that a URL names, in one call. The disk has a separate initiator with this host's [default
/// name](crate::default_name) and the default [`Options`]; the initiator lasts as long as the disk.
///
/// For several disks, or for other options, create an [`Initiator`]: its disks share one thread.
///
/// ```
/// use iscsi_initiator::blocking;
/// # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # let target = TargetConfig::new("iqn.2026-01.org.example:disk", RamDisk::new(512, 4096));
/// # let server = runtime.block_on(Server::start(Target::new(target)))?;
/// # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
/// let disk = blocking::connect(url)?;
/// disk.write_at(700, b"hello")?;
/// disk.flush()?;
/// # disk.logout()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Initiator::with_default_name`] and [`Initiator::disk`].
#[doc(alias = "open")]
pub fn connect<U>(url: U) -> Result<Disk, Error>
where
    U: TryInto<Url>,
    Error: From<U::Error>,
{
    Initiator::with_default_name(Options::default())?.disk(url)
}
