//! The same handles for programs without async: every call waits for its end.
//!
//! An [`Initiator`] has a runtime of its own on a thread of its own, which its disks share; it ends with
//! the last of them. All handles are usable from many threads, and many threads are what keeps a link
//! busy: a call is one request, large ones are split and run at once. A [`DiskStream`] reads ahead and
//! writes behind, so one thread is enough for it.
//!
//! A call inside an async task of tokio would stop that task's runtime, and gives
//! [`Error::InsideRuntime`](crate::Error::InsideRuntime) instead; in `spawn_blocking` it works. What has no
//! blocking form is reached by [`Initiator::block_on`].
//!
//! Data is copied once between the caller's slice and the pages that the session keeps until the target
//! has finished with them.

mod disk;
mod initiator;
mod runtime;
mod stream;

pub use disk::Disk;
pub use initiator::Initiator;
pub use stream::DiskStream;
