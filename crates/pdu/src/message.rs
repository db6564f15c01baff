//! Decodes and encodes PDUs by their opcode.

use crate::async_message::AsyncMessage;
use crate::bhs::Header;
use crate::data_in::DataIn;
use crate::data_out::DataOut;
use crate::error::DecodeError;
use crate::login::{LoginRequest, LoginResponse};
use crate::logout::{LogoutRequest, LogoutResponse};
use crate::nop::{NopIn, NopOut};
use crate::opcode::{InitiatorOpcode, TargetOpcode};
use crate::r2t::R2t;
use crate::reject::Reject;
use crate::scsi_command::ScsiCommand;
use crate::scsi_response::ScsiResponse;
use crate::snack::SnackRequest;
use crate::task_management::{TaskManagementRequest, TaskManagementResponse};
use crate::text::{TextRequest, TextResponse};

/// Any PDU that an initiator sends, without its data segment.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum InitiatorPdu {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    TaskManagementRequest(TaskManagementRequest),
    LoginRequest(LoginRequest),
    TextRequest(TextRequest),
    DataOut(DataOut),
    LogoutRequest(LogoutRequest),
    SnackRequest(SnackRequest),
}

impl InitiatorPdu {
    /// Reads a header.
    ///
    /// # Errors
    /// When the opcode is not an initiator's, or the PDU is malformed.
    pub fn decode(header: &Header) -> Result<Self, DecodeError> {
        let bhs = &header.bhs;
        let opcode = InitiatorOpcode::from_wire(bhs.opcode());
        Ok(match opcode.ok_or_else(|| DecodeError::Opcode(bhs.opcode()))? {
            InitiatorOpcode::NopOut => Self::NopOut(NopOut::decode(bhs)?),
            InitiatorOpcode::ScsiCommand => Self::ScsiCommand(ScsiCommand::decode(header)?),
            InitiatorOpcode::TaskManagementRequest => {
                Self::TaskManagementRequest(TaskManagementRequest::decode(bhs)?)
            }
            InitiatorOpcode::LoginRequest => Self::LoginRequest(LoginRequest::decode(bhs)?),
            InitiatorOpcode::TextRequest => Self::TextRequest(TextRequest::decode(bhs)?),
            InitiatorOpcode::DataOut => Self::DataOut(DataOut::decode(bhs)?),
            InitiatorOpcode::LogoutRequest => Self::LogoutRequest(LogoutRequest::decode(bhs)?),
            InitiatorOpcode::SnackRequest => Self::SnackRequest(SnackRequest::decode(bhs)?),
        })
    }

    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Header {
        match self {
            Self::NopOut(pdu) => pdu.encode().into(),
            Self::ScsiCommand(pdu) => pdu.encode(),
            Self::TaskManagementRequest(pdu) => pdu.encode().into(),
            Self::LoginRequest(pdu) => pdu.encode().into(),
            Self::TextRequest(pdu) => pdu.encode().into(),
            Self::DataOut(pdu) => pdu.encode().into(),
            Self::LogoutRequest(pdu) => pdu.encode().into(),
            Self::SnackRequest(pdu) => pdu.encode().into(),
        }
    }

    /// Returns the opcode of the PDU.
    pub const fn opcode(&self) -> InitiatorOpcode {
        match self {
            Self::NopOut(_) => InitiatorOpcode::NopOut,
            Self::ScsiCommand(_) => InitiatorOpcode::ScsiCommand,
            Self::TaskManagementRequest(_) => InitiatorOpcode::TaskManagementRequest,
            Self::LoginRequest(_) => InitiatorOpcode::LoginRequest,
            Self::TextRequest(_) => InitiatorOpcode::TextRequest,
            Self::DataOut(_) => InitiatorOpcode::DataOut,
            Self::LogoutRequest(_) => InitiatorOpcode::LogoutRequest,
            Self::SnackRequest(_) => InitiatorOpcode::SnackRequest,
        }
    }
}

/// Any PDU that a target sends, without its data segment.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are the standard's own")]
pub enum TargetPdu {
    NopIn(NopIn),
    ScsiResponse(ScsiResponse),
    TaskManagementResponse(TaskManagementResponse),
    LoginResponse(LoginResponse),
    TextResponse(TextResponse),
    DataIn(DataIn),
    LogoutResponse(LogoutResponse),
    R2t(R2t),
    AsyncMessage(AsyncMessage),
    Reject(Reject),
}

impl TargetPdu {
    /// Reads a header. Additional Header Segments, which no PDU of a target needs, are ignored.
    ///
    /// # Errors
    /// When the opcode is not a target's, or the PDU is malformed.
    pub fn decode(header: &Header) -> Result<Self, DecodeError> {
        let bhs = &header.bhs;
        let opcode = TargetOpcode::from_wire(bhs.opcode());
        Ok(match opcode.ok_or_else(|| DecodeError::Opcode(bhs.opcode()))? {
            TargetOpcode::NopIn => Self::NopIn(NopIn::decode(bhs)?),
            TargetOpcode::ScsiResponse => Self::ScsiResponse(ScsiResponse::decode(bhs)?),
            TargetOpcode::TaskManagementResponse => {
                Self::TaskManagementResponse(TaskManagementResponse::decode(bhs)?)
            }
            TargetOpcode::LoginResponse => Self::LoginResponse(LoginResponse::decode(bhs)?),
            TargetOpcode::TextResponse => Self::TextResponse(TextResponse::decode(bhs)?),
            TargetOpcode::DataIn => Self::DataIn(DataIn::decode(bhs)?),
            TargetOpcode::LogoutResponse => Self::LogoutResponse(LogoutResponse::decode(bhs)?),
            TargetOpcode::R2t => Self::R2t(R2t::decode(bhs)?),
            TargetOpcode::AsyncMessage => Self::AsyncMessage(AsyncMessage::decode(bhs)?),
            TargetOpcode::Reject => Self::Reject(Reject::decode(bhs)?),
        })
    }

    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Header {
        Header::from(match self {
            Self::NopIn(pdu) => pdu.encode(),
            Self::ScsiResponse(pdu) => pdu.encode(),
            Self::TaskManagementResponse(pdu) => pdu.encode(),
            Self::LoginResponse(pdu) => pdu.encode(),
            Self::TextResponse(pdu) => pdu.encode(),
            Self::DataIn(pdu) => pdu.encode(),
            Self::LogoutResponse(pdu) => pdu.encode(),
            Self::R2t(pdu) => pdu.encode(),
            Self::AsyncMessage(pdu) => pdu.encode(),
            Self::Reject(pdu) => pdu.encode(),
        })
    }

    /// Returns the opcode of the PDU.
    pub const fn opcode(&self) -> TargetOpcode {
        match self {
            Self::NopIn(_) => TargetOpcode::NopIn,
            Self::ScsiResponse(_) => TargetOpcode::ScsiResponse,
            Self::TaskManagementResponse(_) => TargetOpcode::TaskManagementResponse,
            Self::LoginResponse(_) => TargetOpcode::LoginResponse,
            Self::TextResponse(_) => TargetOpcode::TextResponse,
            Self::DataIn(_) => TargetOpcode::DataIn,
            Self::LogoutResponse(_) => TargetOpcode::LogoutResponse,
            Self::R2t(_) => TargetOpcode::R2t,
            Self::AsyncMessage(_) => TargetOpcode::AsyncMessage,
            Self::Reject(_) => TargetOpcode::Reject,
        }
    }
}
