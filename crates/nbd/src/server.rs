//! The server's side of the protocol: decodes requests of clients, and encodes replies.
//!
//! ```text
//!  Handshake ──HandshakeEvent::Negotiated──► Transmission ──TransmissionEvent::Request, Write──► server
//!                                                                       Replies ◄── results ──────┘
//! ```

mod block_status;
mod handshake;
mod option_data;
mod refused;
mod replies;
mod transmission;

pub use crate::negotiated::Negotiated;
pub use handshake::{Handshake, HandshakeEvent, TlsPolicy};
pub use refused::Refused;
pub use replies::Replies;
pub use transmission::{Expected, Transmission, TransmissionEvent};
