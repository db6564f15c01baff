//! A sans-IO iSCSI target and what tests need around it.
mod convert;
pub mod crc32c;
pub mod checker;
pub mod config;
pub mod disk;
pub mod fault;
pub mod frame;
pub mod opcode;
pub mod pdu;
pub mod pdus;
pub mod scsi;
#[cfg(feature = "serve")]
pub mod serve;
pub mod target;
pub mod text;
