//! iSCSI protocol data units (RFC 7143 §11-13) and SCSI formats as values.
//!
//! A PDU on the wire:
//!
//! ```text
//!  ┌──────────────┬───────────────┬──────────┬──────────────┬─────────┬──────────┐
//!  │ BHS          │ AHS           │ header   │ data segment │ padding │ data     │
//!  │ 48 bytes     │ 0-1020 bytes  │ digest   │ 0-2^24-1     │ 0-3     │ digest   │
//!  └──────────────┴───────────────┴──────────┴──────────────┴─────────┴──────────┘
//!    TotalAHSLength counts the AHS in words; DataSegmentLength counts the data in bytes.
//! ```
//!
//! Each PDU is a value with named fields; byte order, flags and reserved fields are handled in the file of
//! the PDU. The data segment is not part of the value: [`FrameLayout`] gives its position, and [`keys`] and
//! [`scsi`] decode it. The crate has no state: its users decide what a PDU means, and whether it is allowed
//! at that time.
//!
//! Decoding ignores reserved fields and refuses reserved codes. No input panics.
//!
//! It is meant for initiators, targets, and tools that show captured traffic. This example encodes the header of
//! a ping, and decodes it as a target does:
//!
//! ```
//! use iscsi_pdu::scsi::Lun;
//! use iscsi_pdu::{CmdSn, Digest, FrameLayout, Header, InitiatorPdu, Itt, NopOut, StatSn};
//!
//! let mut bhs = NopOut {
//!     immediate: false,
//!     lun: Lun::ZERO,
//!     itt: Itt::new(7),
//!     ttt: None,
//!     cmd_sn: CmdSn::new(1),
//!     exp_stat_sn: StatSn::new(1),
//! }
//! .encode();
//! bhs.set_data_len(5);
//! let layout = FrameLayout::of(&bhs, Digest::None, Digest::Crc32c);
//! assert_eq!((layout.data_offset(), layout.total_len()), (48, 48 + 5 + 3 + 4));
//!
//! let InitiatorPdu::NopOut(ping) = InitiatorPdu::decode(&Header::from(bhs))? else { unreachable!() };
//! assert_eq!((ping.cmd_sn, ping.itt), (CmdSn::new(1), Itt::new(7)));
//! # Ok::<(), iscsi_pdu::DecodeError>(())
//! ```
//!
//! | types | what they are |
//! |---|---|
//! | [`InitiatorPdu`], [`TargetPdu`] | any PDU of a side; each variant is a type of its own, such as [`LoginRequest`] or [`DataIn`] |
//! | [`Bhs`], [`Header`], [`FrameLayout`], [`Digest`], [`Crc32c`] | the parts of a PDU and their lengths |
//! | [`CmdSn`], [`StatSn`], [`DataSn`], [`R2tSn`] | sequence numbers, compared as RFC 1982 says |
//! | [`Itt`], [`Ttt`], [`Isid`], [`Tsih`], [`Cid`] | tags and identifiers |
//! | [`IscsiName`], [`TargetAddress`] | names and addresses in text |
//! | [`keys`] | key=value text and the table of all keys |
//! | [`scsi`] | LUNs, CDBs, status, sense, and the data of commands |
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod async_message;
mod bhs;
mod common_fields;
mod data_in;
mod data_out;
mod digest;
mod error;
mod frame;
pub mod keys;
mod login;
mod logout;
mod message;
mod name;
mod nop;
mod opcode;
mod r2t;
mod reject;
pub mod scsi;
mod scsi_command;
mod scsi_response;
mod serial;
mod snack;
mod tag;
mod target_address;
mod task_management;
mod text;

pub use async_message::{AsyncEvent, AsyncMessage};
pub use bhs::{Bhs, Header, MAX_DATA_SEGMENT_LENGTH};
pub use data_in::{DataIn, DataInStatus};
pub use data_out::DataOut;
pub use digest::{Crc32c, Digest, crc32c};
pub use error::DecodeError;
pub use frame::{FrameLayout, padding_of};
pub use login::{LOGIN_VERSION, LoginRequest, LoginResponse, LoginStatus, Stage};
pub use logout::{LogoutCode, LogoutReason, LogoutRequest, LogoutResponse};
pub use message::{InitiatorPdu, TargetPdu};
pub use name::{IscsiName, NameError};
pub use nop::{NopIn, NopOut};
pub use opcode::{InitiatorOpcode, TargetOpcode};
pub use r2t::R2t;
pub use reject::{Reject, RejectReason, rejected_header};
pub use scsi_command::{ScsiCommand, TaskAttribute};
pub use scsi_response::{Residual, ScsiResponse, ServiceResponse, sense_of};
pub use serial::{CmdSn, DataSn, R2tSn, StatSn};
pub use snack::{SnackKind, SnackRequest};
pub use tag::{Cid, Isid, Itt, Tsih, Ttt};
pub use target_address::{DEFAULT_PORT, TargetAddress, TargetAddressError};
pub use task_management::{
    FunctionResponse, TaskFunction, TaskManagementRequest, TaskManagementResponse,
};
pub use text::{TextRequest, TextResponse};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
