//! Tests of each side of the NBD protocol against bytes written by hand, and of both sides against each
//! other.
//!
//! All modules are in one binary: with one binary per module, each would compile and link its share of the
//! crates again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

mod client_handshake;
mod client_transmission;
mod pair;
mod server_handshake;
mod server_transmission;
