//! Futures behind a pointer, where the crate ends.
//!
//! The code of an async function is generated in the crate that polls it, so every program, test and library that awaited
//! those of this crate would compile all of them again. A boxed future is polled through a vtable, which is made where the
//! future is boxed: here, once. The functions that callers await are therefore thin, and what they await returns a
//! [`BoxFuture`].
//!
//! Why it is so: `docs/design/compile-times.md`.

use std::pin::Pin;

/// A future whose code lies in this crate.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future. Call it from a function that is neither generic nor async: the code of those is generated, with the vtable,
/// in the crate that uses them.
pub(crate) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
