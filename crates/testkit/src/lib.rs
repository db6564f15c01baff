//! A sans-IO iSCSI target and what tests need around it.
//!
//! Everything here has its own encoder and decoder: the crates under test are checked against a second
//! reading of RFC 7143, not against themselves.
//!
//! | to | take |
//! |---|---|
//! | run an initiator against a whole target, in virtual time | [`target::Target`] with a [`config::TargetConfig`] |
//! | the same over TCP | `serve::Server` (feature `serve`) |
//! | play a trace, PDU by PDU | [`script::Script`], [`expect!`], [`send!`], [`pdus`] |
//! | make things go wrong | [`fault::Fault`] in the configuration, [`link::Shape`] on the wire |
//! | know what the initiator did wrong | [`target::Target::violations`], by [`checker::Checker`] |
//! | look at the bytes that were written | [`disk::RamDisk`], a handle that is shared |
//!
//! ```
//! use iscsi_testkit::config::TargetConfig;
//! use iscsi_testkit::disk::RamDisk;
//! use iscsi_testkit::target::Target;
//!
//! let disk = RamDisk::new(512, 2048);
//! let mut config = TargetConfig::new("iqn.2026-01.org.example:disk", disk.clone());
//! config.keys.max_burst_length = 8192;
//! config.r2t.burst = Some(4096);
//! let mut target = Target::new(config);
//!
//! let connection = target.accept();
//! target.receive(connection, b"what the initiator sends, cut anywhere");
//! let answer = target.transmit(connection); // until it is empty
//! assert!(answer.is_empty() && target.violations().is_empty());
//! assert!(disk.holds(0, &[0; 512]));
//! ```

#![forbid(unsafe_code)]

pub mod checker;
pub mod config;
mod conn_id;
mod convert;
pub mod crc32c;
pub mod disk;
pub mod fault;
pub mod frame;
pub mod link;
pub mod opcode;
pub mod pdu;
pub mod pdus;
pub mod script;
pub mod scsi;
#[cfg(feature = "serve")]
pub mod serve;
pub mod target;
pub mod text;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
