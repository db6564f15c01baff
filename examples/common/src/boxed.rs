//! Futures behind a pointer, where a program's library ends.
//!
//! The code of an async function is generated in the crate that polls it: in `main`, in each example, and once more in each
//! test. What they await returns a [`BoxFuture`], whose code lies in the library.

use std::pin::Pin;

/// A future whose code lies in the crate that has boxed it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future. Call it from a function that is neither generic nor async: the code of those is generated, with the vtable,
/// in the crate that uses them.
pub fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
