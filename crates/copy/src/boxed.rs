//! Boxes the futures of public functions.
//!
//! The code of an async function is generated in the crate that polls its future: each program that awaits a
//! public async function would compile it again, with all async functions below it. Public functions
//! therefore return a [`BoxFuture`], whose code is generated here.

use std::io;
use std::pin::Pin;

/// A future whose code is generated in this crate.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The future of work on files, or of calls to another program.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Boxes a future. Call it from a function that is neither generic nor async: the code of a generic or async
/// function, with the vtable of the future, would be generated in the crate that uses the function.
pub(crate) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
