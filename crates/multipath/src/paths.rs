//! Paths: their quality, their requests in flight, and the choice of a path for each request.

mod delivery;
pub mod hedge;
mod path_state;
pub mod selector;

pub use path_state::{Credit, PathPermit, Requirements};
