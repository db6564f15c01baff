//! Each side of the NBD protocol against bytes written by hand, and both sides against each other.
//!
//! One binary for all modules: a binary per module would be linked again, and compile its share of the crates
//! again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

mod client_handshake;
mod client_transmission;
mod pair;
mod server_handshake;
mod server_transmission;
