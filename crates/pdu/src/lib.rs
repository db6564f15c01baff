//! iSCSI protocol data units and SCSI formats.
#![forbid(unsafe_code)]
#![allow(missing_docs)]
mod async_message; mod bhs; mod data_in; mod data_out; mod digest; mod error; mod frame; mod login; mod logout; mod message; mod name; mod nop; mod opcode; mod r2t; mod reject; mod scsi_command; mod scsi_response; mod serial; mod snack; mod tag; mod target_address; mod task_management; mod text;
pub mod keys;
pub mod scsi;
pub use async_message::*; pub use bhs::*; pub use data_in::*; pub use data_out::*; pub use digest::*; pub use error::*; pub use frame::*; pub use login::*; pub use logout::*; pub use message::*; pub use name::*; pub use nop::*; pub use opcode::*; pub use r2t::*; pub use reject::*; pub use scsi_command::*; pub use scsi_response::*; pub use serial::*; pub use snack::*; pub use tag::*; pub use target_address::*; pub use task_management::*; pub use text::*;
