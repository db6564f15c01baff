//! Serves an iSCSI unit to NBD clients.
//!
//! ```text
//!  listen ──► connection ──► requests ──► layers: write_behind ──► cache ──► unit, over its sessions
//!                 ▲              │
//!                 └── outbox ◄───┘        memory: limit for all requests; pace: minimum rate of a client
//! ```
#![forbid(unsafe_code)]

mod args;
pub mod cache;
mod connection;
mod error;
mod export;
mod full_house;
mod layers;
mod listen;
mod losses;
mod manual;
mod memory;
mod metrics;
mod outbox;
mod pace;
mod requests;
mod resizes;
mod serve;
mod server;
mod tls;
pub mod write_behind;

pub use args::Args;
pub use error::Error;
pub use export::describe;
pub use iscsi_examples_common::stop::{Stop, StopButton};
pub use iscsi_examples_common::{command_line, log, output, stop};
pub use layers::Layers;
pub use listen::{Address, Entrance, Listener, Visitor};
pub use serve::Ready;
pub use server::{Server, ServerStats};
pub use tls::ClientTls;
