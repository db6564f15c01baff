//! Boxes futures that the functions of this crate return to callers.
//!
//! The code of an async function is generated in the crate that polls it. So every program, test and library
//! that awaits functions of this crate would compile all of them again. A boxed future is polled through a
//! vtable, which is generated where the future is boxed: once, in this crate. So the functions that callers
//! await are thin, and return a [`BoxFuture`].
//!
//! Design: `docs/design/compile-times.md`.

use std::pin::Pin;

/// A future whose code is in this crate.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future. Call this from a function that is neither generic nor async, because the code of generic
/// and async functions, with the vtable, is generated in the crate that uses them.
pub(crate) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
