//! A trait for devices of bytes, such as disks, files, stripes over several disks, and memory, with the limits
//! and the errors of their requests.
//!
//! | type | what it is |
//! |---|---|
//! | [`Device`] | the trait: five methods are required, the others have defaults |
//! | [`DeviceLimits`] | which requests are cheap, and whether there is a volatile cache |
//! | [`DeviceError`], [`DeviceErrorKind`] | why a request failed: a kind to decide by, and the source of the error |
//! | [`Extent`], [`ExtentState`] | which parts hold data, and which read as zeros |
//! | [`RangeSet`] | a set of byte ranges |
//! | [`BufferPool`] | a source of buffers for reads |
//!
//! Code that uses the trait works with any device:
//!
//! ```
//! use std::sync::{Mutex, PoisonError};
//!
//! use bytes::{Bytes, BytesMut};
//! use iscsi_block_device::{Device, DeviceFuture, DeviceResult, check_range};
//!
//! #[derive(Debug)]
//! struct Memory(Mutex<Vec<u8>>);
//!
//! impl Memory {
//!     /// Applies `act` to a range of the bytes, if the device has that range.
//!     fn with<T>(&self, at: u64, len: usize, act: impl FnOnce(&mut [u8]) -> T) -> DeviceResult<T> {
//!         let range = check_range(self.capacity(), at, len as u64)?;
//!         let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
//!         Ok(act(&mut bytes[range.start as usize..range.end as usize]))
//!     }
//! }
//!
//! impl Device for Memory {
//!     fn capacity(&self) -> u64 {
//!         self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
//!     }
//!
//!     fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
//!         Box::pin(async move {
//!             self.with(offset, buffer.len(), |bytes| buffer.copy_from_slice(bytes))?;
//!             Ok(buffer)
//!         })
//!     }
//!
//!     fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
//!         Box::pin(async move {
//!             let data = pages.concat();
//!             self.with(offset, data.len(), |bytes| bytes.copy_from_slice(&data))
//!         })
//!     }
//!
//!     fn flush(&self) -> DeviceFuture<'_, ()> {
//!         Box::pin(async { Ok(()) })
//!     }
//! }
//!
//! /// Copies from any device to any other one.
//! async fn copy(from: &dyn Device, to: &dyn Device) -> DeviceResult<()> {
//!     let step = from.limits().preferred_transfer;
//!     for offset in (0..from.capacity()).step_by(step) {
//!         let len = (from.capacity() - offset).min(step as u64) as usize;
//!         to.write_at(offset, vec![from.read_at(offset, len).await?]).await?;
//!     }
//!     to.flush().await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> DeviceResult<()> {
//! let (from, to) = (Memory(vec![7; 100_000].into()), Memory(vec![0; 100_000].into()));
//! copy(&from, &to).await?;
//! to.write_zeroes(10, 20).await?;
//! assert_eq!(to.read_at(8, 4).await?, [7, 7, 0, 0][..]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod buffer_pool;
mod device;
mod error;
mod error_kind;
mod extent;
mod limits;
mod name;
mod pointers;
mod range_set;

pub use buffer_pool::BufferPool;
pub use device::{Device, DeviceFuture, DeviceResult, check_range};
pub use error::DeviceError;
pub use error_kind::DeviceErrorKind;
pub use extent::{Extent, ExtentState};
pub use limits::DeviceLimits;
pub use name::{ContentName, DeviceName};
pub use range_set::RangeSet;
