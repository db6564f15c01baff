//! Each half of the NBD protocol against bytes written by hand, and both against each other.
//!
//! One binary for all of them: each of its own would be linked, and its share of the crates compiled, once more.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

mod client_handshake;
mod client_transmission;
mod pair;
mod server_handshake;
mod server_transmission;
