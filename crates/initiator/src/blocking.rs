//! Provides blocking handles for programs without async: every method waits until it has finished.
//!
//! An [`Initiator`] runs a tokio runtime on a separate thread. Its disks share the runtime, which runs until the
//! initiator and all its disks are dropped. All handles can be used from many threads. Each call is one request
//! (a large one is split into concurrent parts), so use many threads to keep a link busy. A [`DiskStream`] reads
//! ahead, and returns from writes before they are sent, so one thread is enough for it.
//!
//! A call inside an async task of tokio would block that task's runtime. So it returns an error with the advice
//! [`Await`](crate::Advice::Await) instead; inside `spawn_blocking` it works. To call a method that has no
//! blocking form, use [`Initiator::block_on`].
//!
//! Data is copied once, between the caller's slice and the pages that the session keeps until the target
//! has finished with them.
//!
//! ```
//! use std::io::{Read, Seek, SeekFrom};
//!
//! use iscsi_initiator::blocking::Initiator;
//! # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # let target = TargetConfig::new("iqn.2026-01.org.example:disk", RamDisk::new(512, 4096));
//! # let server = runtime.block_on(Server::start(Target::new(target)))?;
//! # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
//! let initiator = Initiator::new("iqn.2026-01.org.example:host")?;
//! let disk = initiator.disk(url)?;
//! disk.write_at(700, b"hello")?;
//! disk.flush()?;
//! let mut stream = disk.stream(0);
//! stream.seek(SeekFrom::Start(701))?;
//! let mut word = [0; 4];
//! stream.read_exact(&mut word)?;
//! assert_eq!(&word, b"ello");
//! // INQUIRY has no blocking method.
//! let unit = disk.get_ref().unit();
//! println!("{}", initiator.block_on(unit.inquiry())??.product);
//! # Ok(())
//! # }
//! ```

mod connect;
mod disk;
mod initiator;
mod runtime;
mod stream;

pub use connect::connect;
pub use disk::Disk;
pub use initiator::Initiator;
pub use stream::DiskStream;
