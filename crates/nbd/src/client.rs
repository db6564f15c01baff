//! The client's side of the protocol: encodes requests, and decodes the replies of servers.
//!
//! ```text
//!  Goal ──► Handshake ──HandshakeOutcome::Negotiated──► Transmission ◄── reads, writes, …
//!                                                            └──Completed──►
//! ```

mod answer;
mod block_status;
mod coverage;
mod handshake;
mod pending;
mod transmission;

pub use crate::negotiated::Negotiated;
pub use block_status::ContextStatus;
pub use handshake::{Goal, Handshake, HandshakeError, HandshakeOutcome, ListedExport};
pub use pending::{Answer, Completed, Failure};
pub use transmission::Transmission;
