//! Boxes futures at the boundary between a program's library and its callers.
//!
//! The compiler generates the code of an async function in the crate that polls it: in `main`, in each
//! example, and again in each test. A function that returns a [`BoxFuture`] is compiled once, in the library.

use std::pin::Pin;

/// A future that is compiled in the crate that boxes it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future. Call it from a function that is neither generic nor async: the compiler generates the code
/// of those functions, with the vtable, in the crate that uses them.
pub fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}
