//! Futures behind a pointer, where the crate ends.
//!
//! The code of an async function is generated in the crate that polls it, so every program that awaited those of this crate
//! would compile all of them again. What public functions await returns a [`BoxFuture`], whose code lies here.

use std::io;
use std::pin::Pin;

/// A future whose code lies in this crate.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The future of work on files, or of what another program does.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Boxes a future. Call it from a function that is neither generic nor async: the code of those is generated, with the vtable,
/// in the crate that uses them.
pub(crate) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
