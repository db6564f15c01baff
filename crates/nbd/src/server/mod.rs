//! The half of a server: what clients send comes in, what they ask for goes out.
//!
//! ```text
//!  Handshake ──Event::Negotiated──► Transmission ──Event::Request, Event::Write──► the server
//!                                                    Replies ◄── what came of them ──┘
//! ```

mod block_status;
mod handshake;
mod option_data;
mod refused;
mod replies;
mod transmission;

pub use crate::negotiated::Negotiated;
pub use handshake::{Handshake, HandshakeEvent};
pub use refused::Refused;
pub use replies::Replies;
pub use transmission::{Expected, Transmission, TransmissionEvent};
