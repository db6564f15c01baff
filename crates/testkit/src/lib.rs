//! An iSCSI target for tests: it serves disks in memory, causes the faults that a test configures, and records
//! which rules of the standard the initiator breaks.
//!
//! It is meant for authors of initiators, and of tools that copy to, restore to or read from iSCSI
//! disks. Over TCP it serves any initiator. With the feature `serve`:
//!
#![cfg_attr(feature = "serve", doc = "```")]
#![cfg_attr(not(feature = "serve"), doc = "```ignore")]
//! use iscsi_testkit::config::TargetConfig;
//! use iscsi_testkit::disk::{Cache, RamDisk};
//! use iscsi_testkit::fault::Fault;
//! use iscsi_testkit::serve::Server;
//! use iscsi_testkit::target::Target;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! // A disk of 1 MiB. It forgets what was not flushed, and block 100 cannot be read.
//! let disk = RamDisk::new(512, 2048);
//! disk.set_cache(Cache::Volatile);
//! disk.write(0, b"what the tool is to find");
//! let config = TargetConfig::new("iqn.2026-01.org.example:disk", disk.clone())
//!     .with_fault(Fault::medium_error(100..=100));
//! let server = Server::start(Target::new(config)).await?;
//!
//! let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
//! // Here the tool under test runs against the URL.
//! # use iscsi_testkit::{frame::Framing, opcode::Opcode, pdu::Pdu, text::Pairs};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # let mut stream = tokio::net::TcpStream::connect(server.address()).await?;
//! # let mut login = Pdu::new(Opcode::LoginRequest);
//! # login.header[0] |= 0x40;
//! # login.header[1] = 0x87;
//! # login.set(8, &[0x80, 0, 0, 0, 0, 1]);
//! # let names = [
//! #     ("InitiatorName", "iqn.2026-01.org.example:host"),
//! #     ("TargetName", "iqn.2026-01.org.example:disk"),
//! #     ("SessionType", "Normal"),
//! # ];
//! # login.data = names.into_iter().collect::<Pairs>().join().into();
//! # let mut bytes = bytes::BytesMut::new();
//! # Framing::PLAIN.put(&login, &mut bytes);
//! # stream.write_all(&bytes).await?;
//! # let mut response = [0; 48];
//! # stream.read_exact(&mut response).await?;
//! # assert_eq!(response[36..38], [0, 0], "the login succeeded");
//! # assert_eq!(server.with(|target| target.sessions()), 1);
//!
//! // Power is lost: connections break, and what the tool did not flush is gone.
//! server.with(|target| target.restart());
//! assert!(disk.holds(0, b"what the tool is to find"));
//! assert_eq!(server.with(|target| target.violations().len()), 0);
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! | to | take |
//! |---|---|
//! | serve a target over TCP | `serve::Server` (feature `serve`) |
//! | configure what it serves and how it behaves | [`config::TargetConfig`], [`scsi::Unit`] |
//! | check the bytes that were written, lose power or a cached write, change capacity or cache | [`disk::RamDisk`], a handle that is shared |
//! | measure without a store: a disk of any size that stores nothing | [`disk::RamDisk::null`] |
//! | make several targets the ports of one array, with states of their own | [`scsi::PortGroups`] |
//! | reserve a unit, or fence an initiator off as another host does | [`scsi::Reservations`] of [`scsi::Unit`] |
//! | reset a unit as another initiator does, replace the unit of a number | [`target::Target`] |
//! | cause faults, at a block or at a PDU | [`fault::Fault`] in the configuration |
//! | send texts with control characters that a terminal would execute | [`hostile_text`] |
//! | find out which rules the initiator broke | [`target::Target::violations`], by [`checker::Checker`] |
//! | run an initiator without sockets, in virtual time | [`target::Target`], which takes and returns bytes |
//! | run an initiator over a simulated wire with latency and losses | [`link::Link`] |
//! | play a trace, PDU by PDU | [`script::Script`], [`expect!`], [`send!`], [`pdus`] |
//!
//! This crate has its own encoder and decoder of PDUs, so that an initiator is checked against a second
//! reading of RFC 7143 and not against its own.
//!
//! Without a socket:
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
pub mod hostile_text;
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
