//! Paths: how good each is, what is in flight on it, and which one takes the next request.

mod delivery;
pub mod hedge;
mod path_state;
pub mod selector;

pub use path_state::{Credit, PathPermit, Requirements};
