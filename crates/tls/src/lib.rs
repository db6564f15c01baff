//! TLS for the connections of an iSCSI initiator and of NBD, by rustls and ring.
//!
//! [`Rustls`] encrypts the connections of URLs that ask for it (`iscsis://`, `tls=yes`): give it to
//! [`Options::with_tls`](iscsi_initiator::Options::with_tls). What the peer must prove stands in the URL
//! ([`TlsOptions`](iscsi_initiator::TlsOptions)).
//!
//! - For iSCSI TLS 1.3 only, without early data, since an attacker who repeats them repeats a login. Further sessions of a disk mostly
//!   resume an earlier one by its ticket.
//! - For NBD, after the server has agreed to start TLS: [`Rustls::connect_nbd`] as a client, by TLS 1.2 if the server has no TLS 1.3,
//!   and [`Acceptor`] as a server.
//! - The socket below stays that of the network: what the kernel reports, buffers, pacing and congestion control act on the real
//!   link.
//! - Keys are renewed before they have served too much (2^24 records of AES-GCM), over iSCSI in both directions.
//! - CHAP stays useful inside: TLS proves the host at the far end, CHAP the target and the initiator.
//!
//! Design: `docs/design/tls.md`.

mod acceptor;
mod config;
mod pinned;
mod refusal;
mod socket;

pub use acceptor::{Acceptor, ServerFiles};
pub use config::Rustls;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
