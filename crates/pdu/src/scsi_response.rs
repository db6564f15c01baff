//! SCSI Response (RFC 7143 §11.4).

use std::fmt;

use bytes::Bytes;

use crate::bhs::Bhs;
use crate::common_fields::FINAL;
use crate::error::DecodeError;
use crate::opcode::TargetOpcode;
use crate::scsi::Status;
use crate::serial::{CmdSn, DataSn, StatSn};
use crate::tag::Itt;

const PDU: &str = "SCSI Response";

const BIDIRECTIONAL_OVERFLOW: u8 = 0x10;
const BIDIRECTIONAL_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

const RESPONSE: usize = 2;
const STATUS: usize = 3;
const STATUS_QUALIFIER: usize = 8;
const SNACK_TAG: usize = 20;
const BIDIRECTIONAL_RESIDUAL_COUNT: usize = 40;
const RESIDUAL_COUNT: usize = 44;

/// SCSI Response: the status of a command (RFC 7143 §11.4). Sense data is in the data segment: see
/// [`sense_of`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ScsiResponse {
    /// Whether the command was completed at the target; only then the status has a meaning.
    pub response: ServiceResponse,
    /// The SCSI status.
    pub status: Status,
    /// Number of bytes left over or missing in the transfer, or in the write half of a bidirectional command.
    pub residual: Residual,
    /// Number of bytes left over or missing in the read half of a bidirectional command.
    pub bidirectional_residual: Residual,
    /// Status Qualifier (RFC 7144).
    pub status_qualifier: u16,
    /// Initiator task tag of the command.
    pub itt: Itt,
    /// SNACK Tag, or zero.
    pub snack_tag: u32,
    /// StatSN: the number that the response consumes.
    pub stat_sn: StatSn,
    /// ExpCmdSN: the next CmdSN that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: the last CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// The number of Data-In and R2T PDUs that the target sent; some targets leave it at zero.
    pub exp_data_sn: DataSn,
}

/// The iSCSI service response (RFC 7143 §11.4.3).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ServiceResponse(pub u8);

impl ServiceResponse {
    /// The command was completed at the target; the status gives the result.
    pub const COMPLETED_AT_TARGET: Self = Self(0x00);
    /// The target failed; there is no status.
    pub const TARGET_FAILURE: Self = Self(0x01);
}

impl fmt::Display for ServiceResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0x00 => f.write_str("command completed at target"),
            0x01 => f.write_str("target failure"),
            0x80..=0xff => write!(f, "vendor-specific response {:#04x}", self.0),
            other => write!(f, "reserved response {other:#04x}"),
        }
    }
}

/// The number of bytes left over or missing in a transfer (RFC 7143 §11.4.5).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual {
    /// Exactly the expected bytes were transferred.
    #[default]
    None,
    /// Number of expected bytes that were not transferred.
    Underflow(u32),
    /// Number of bytes that did not fit into the expected length.
    Overflow(u32),
}

impl Residual {
    pub(crate) const fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Underflow(count) | Self::Overflow(count) => count,
        }
    }

    pub(crate) const fn flags(self, overflow: u8, underflow: u8) -> u8 {
        match self {
            Self::None => 0,
            Self::Underflow(_) => underflow,
            Self::Overflow(_) => overflow,
        }
    }

    /// Reads the count at `at`. Its two flags, for underflow and overflow, exclude each other.
    pub(crate) fn decode(
        bhs: &Bhs,
        pdu: &'static str,
        overflow: u8,
        underflow: u8,
        at: usize,
    ) -> Result<Self, DecodeError> {
        match (bhs.has_flag(overflow), bhs.has_flag(underflow)) {
            (false, false) => Ok(Self::None),
            (true, false) => Ok(Self::Overflow(bhs.u32_at(at))),
            (false, true) => Ok(Self::Underflow(bhs.u32_at(at))),
            (true, true) => {
                let value = bhs.flags().into();
                Err(DecodeError::Field { pdu, field: "overflow with underflow", value })
            }
        }
    }
}

impl ScsiResponse {
    /// Returns the header; its DataSegmentLength is zero until framing sets it.
    pub fn encode(&self) -> Bhs {
        let mut bhs = Bhs::with_opcode(TargetOpcode::ScsiResponse as u8, false);
        let flags = self.residual.flags(OVERFLOW, UNDERFLOW)
            | self.bidirectional_residual.flags(BIDIRECTIONAL_OVERFLOW, BIDIRECTIONAL_UNDERFLOW);
        bhs.put_flags(FINAL | flags);
        bhs.put(RESPONSE, &[self.response.0, self.status.0]);
        bhs.put_u16(STATUS_QUALIFIER, self.status_qualifier);
        bhs.put_itt(Some(self.itt));
        bhs.put_u32(SNACK_TAG, self.snack_tag);
        bhs.put_response_numbers(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
        bhs.put_data_sn(self.exp_data_sn);
        bhs.put_u32(BIDIRECTIONAL_RESIDUAL_COUNT, self.bidirectional_residual.count());
        bhs.put_u32(RESIDUAL_COUNT, self.residual.count());
        bhs
    }

    /// Reads a header. Unless the command was completed at the target, the residuals are ignored, and read as
    /// none (RFC 7143 §11.4.3).
    ///
    /// # Errors
    /// When the Initiator Task Tag is the reserved one, or an overflow and an underflow are both set.
    pub fn decode(bhs: &Bhs) -> Result<Self, DecodeError> {
        let response = ServiceResponse(bhs.u8_at(RESPONSE));
        let (residual, bidirectional_residual) = match response {
            ServiceResponse::COMPLETED_AT_TARGET => residuals(bhs)?,
            ServiceResponse(_) => (Residual::None, Residual::None),
        };
        Ok(Self {
            response,
            status: Status(bhs.u8_at(STATUS)),
            residual,
            bidirectional_residual,
            status_qualifier: bhs.u16_at(STATUS_QUALIFIER),
            itt: bhs.task_itt(PDU)?,
            snack_tag: bhs.u32_at(SNACK_TAG),
            stat_sn: bhs.stat_sn(),
            exp_cmd_sn: bhs.exp_cmd_sn(),
            max_cmd_sn: bhs.max_cmd_sn(),
            exp_data_sn: bhs.data_sn(),
        })
    }
}

/// Returns both residuals of a response whose command was completed at the target.
fn residuals(bhs: &Bhs) -> Result<(Residual, Residual), DecodeError> {
    let read = (BIDIRECTIONAL_OVERFLOW, BIDIRECTIONAL_UNDERFLOW);
    Ok((
        Residual::decode(bhs, PDU, OVERFLOW, UNDERFLOW, RESIDUAL_COUNT)?,
        Residual::decode(bhs, PDU, read.0, read.1, BIDIRECTIONAL_RESIDUAL_COUNT)?,
    ))
}

/// Returns the sense data in the data segment of a SCSI Response or of an Asynchronous Message: the bytes
/// after the two bytes of SenseLength. Bytes after the sense data are ignored (RFC 7143 §11.4.7). If
/// SenseLength exceeds the segment, the sense data end with the segment. A segment that is too short for
/// SenseLength has no sense data, and the status is valid without them.
pub fn sense_of(data: &Bytes) -> Bytes {
    let Some(len) = data.first_chunk::<2>() else { return Bytes::new() };
    let end = 2 + usize::from(u16::from_be_bytes(*len));
    data.slice(2..end.min(data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(bytes: &[(usize, u8)]) -> Bhs {
        let mut bhs = Bhs::with_opcode(0x21, false);
        bhs.put_u8(1, 0x80);
        bytes.iter().for_each(|(at, value)| bhs.put_u8(*at, *value));
        bhs
    }

    #[test]
    fn rd_11_residuals_by_their_flags() {
        let decode = |flags, at| ScsiResponse::decode(&with(&[(1, flags), (at, 9)])).unwrap();
        assert_eq!(decode(0x84, 47).residual, Residual::Overflow(9));
        assert_eq!(decode(0x82, 47).residual, Residual::Underflow(9));
        assert_eq!(decode(0x90, 43).bidirectional_residual, Residual::Overflow(9));
        assert_eq!(decode(0x88, 43).bidirectional_residual, Residual::Underflow(9));
        assert_eq!(decode(0x80, 47).residual, Residual::None);
        for flags in [0x86, 0x98] {
            assert!(ScsiResponse::decode(&with(&[(1, flags)])).is_err());
        }
    }

    #[test]
    fn rd_10_flags_mean_nothing_when_the_target_failed() {
        let response = ScsiResponse::decode(&with(&[(1, 0x9e), (2, 1)])).unwrap();
        assert_eq!(response.residual, Residual::None);
        assert_eq!(response.response, ServiceResponse::TARGET_FAILURE);
    }

    /// LAY-19: if the length before the sense data exceeds the segment, the sense data ends with the segment.
    #[test]
    fn rd_13_sense_is_bounded_by_the_segment() {
        let sense = |data: &'static [u8]| sense_of(&Bytes::from_static(data));
        assert_eq!(sense(&[0, 2, 7, 8, 0, 0]), [7, 8][..]);
        assert_eq!(sense(&[0, 18, 7, 8]), [7, 8][..]);
        assert_eq!(sense(&[0xff, 0xff]), [][..]);
    }

    #[test]
    fn rd_13_a_segment_without_room_for_a_length_is_no_sense() {
        for data in [&[][..], &[0], &[9]] {
            assert_eq!(sense_of(&Bytes::from_static(data)), Bytes::new());
        }
    }
}
