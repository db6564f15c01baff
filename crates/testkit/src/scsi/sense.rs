//! Sense data: why a command failed (SPC-4 §4.5).

/// Byte 0 of fixed format: a current error.
const CURRENT: u8 = 0x70;
/// Byte 0 of fixed format: a deferred error.
const DEFERRED: u8 = 0x71;
/// Byte 0 of fixed format: the INFORMATION field is valid.
const VALID: u8 = 0x80;

/// Sense key, additional sense code and qualifier, and the block that the condition concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sense {
    /// Sense key, 0 to 15.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The INFORMATION field: for a medium error the first bad block (SBC-3 §4.18.1). A block above ffffffffh
    /// does not fit the fixed format and is omitted.
    pub information: Option<u64>,
    /// Whether the error concerns an earlier command, which ended with GOOD. The command that reports the
    /// error is not executed (SPC-4 §4.5.5).
    pub is_deferred: bool,
}

impl Sense {
    /// NO SENSE: nothing to report.
    pub const NONE: Self = Self::new(0, 0, 0);
    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    pub const BECOMING_READY: Self = Self::new(2, 0x04, 0x01);
    /// UNRECOVERED READ ERROR.
    pub const READ_ERROR: Self = Self::new(3, 0x11, 0);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Self = Self::new(3, 0x0c, 0);
    /// SPACE ALLOCATION FAILED WRITE PROTECT: a thin unit has no space left.
    pub const NO_SPACE: Self = Self::new(7, 0x27, 7);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPCODE: Self = Self::new(5, 0x20, 0);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const OUT_OF_RANGE: Self = Self::new(5, 0x21, 0);
    /// INVALID FIELD IN CDB.
    pub const INVALID_FIELD: Self = Self::new(5, 0x24, 0);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const INVALID_LUN: Self = Self::new(5, 0x25, 0);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const NOT_SAVED: Self = Self::new(5, 0x39, 0);
    /// INVALID FIELD IN PARAMETER LIST.
    pub const INVALID_PARAMETER: Self = Self::new(5, 0x26, 0);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Self = Self::new(5, 0x26, 0x04);
    /// PARAMETER LIST LENGTH ERROR.
    pub const PARAMETER_LENGTH: Self = Self::new(5, 0x1a, 0);
    /// WRITE PROTECTED.
    pub const WRITE_PROTECTED: Self = Self::new(7, 0x27, 0);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub const RESET: Self = Self::new(6, 0x29, 0);
    /// BUS DEVICE RESET FUNCTION OCCURRED.
    pub const UNIT_RESET: Self = Self::new(6, 0x29, 0x03);
    /// MODE PARAMETERS CHANGED.
    pub const MODE_CHANGED: Self = Self::new(6, 0x2a, 0x01);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const COMMANDS_CLEARED: Self = Self::new(6, 0x2f, 0);
    /// INQUIRY DATA HAS CHANGED.
    pub const INQUIRY_CHANGED: Self = Self::new(6, 0x3f, 0x03);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Self = Self::new(6, 0x2a, 0x09);
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Self = Self::new(6, 0x2a, 0x03);
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Self = Self::new(6, 0x2a, 0x04);
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Self = Self::new(6, 0x2a, 0x05);
    /// ASYMMETRIC ACCESS STATE CHANGED.
    pub const ACCESS_STATE_CHANGED: Self = Self::new(6, 0x2a, 0x06);
    /// REPORTED LUNS DATA HAS CHANGED.
    pub const LUNS_CHANGED: Self = Self::new(6, 0x3f, 0x0e);
    /// PROTOCOL SERVICE CRC ERROR (RFC 7143 §11.4.7.2).
    pub const CRC_ERROR: Self = Self::new(0x0b, 0x47, 0x05);
    /// WRITE ERROR - UNEXPECTED UNSOLICITED DATA (RFC 7143 §11.4.7.2).
    pub const UNEXPECTED_DATA: Self = Self::new(0x0b, 0x0c, 0x0c);
    /// WRITE ERROR - NOT ENOUGH UNSOLICITED DATA (RFC 7143 §11.4.7.2).
    pub const TOO_LITTLE_DATA: Self = Self::new(0x0b, 0x0c, 0x0d);

    /// Creates a condition from sense key, code and qualifier.
    #[must_use]
    pub const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq, information: None, is_deferred: false }
    }

    /// Returns whether the condition is a unit attention: a change that the unit reports once (SAM-5 §5.14).
    pub(crate) const fn is_unit_attention(self) -> bool {
        self.key == 6
    }

    /// Sets the block that the condition concerns.
    #[must_use]
    pub const fn at_block(mut self, lba: u64) -> Self {
        self.information = Some(lba);
        self
    }

    /// Makes the condition a deferred error, that is, an error of an earlier command that ended with GOOD.
    #[must_use]
    pub const fn deferred(mut self) -> Self {
        self.is_deferred = true;
        self
    }

    /// Returns the sense data in fixed format, 18 bytes (SPC-4 §4.5.3).
    #[must_use]
    pub const fn fixed(self) -> [u8; 18] {
        let mut sense = [0; 18];
        sense[0] = if self.is_deferred { DEFERRED } else { CURRENT };
        sense[2] = self.key;
        sense[7] = 10;
        sense[12] = self.asc;
        sense[13] = self.ascq;
        if let Some(lba) = self.information {
            let [0, 0, 0, 0, a, b, c, d] = lba.to_be_bytes() else { return sense };
            sense[0] |= VALID;
            [sense[3], sense[4], sense[5], sense[6]] = [a, b, c, d];
        }
        sense
    }

    /// Returns the data segment of a SCSI response: the length, then the sense data (RFC 7143 §11.4.7).
    #[must_use]
    pub fn segment(self) -> Vec<u8> {
        let mut segment = vec![0, 18];
        segment.extend(self.fixed());
        segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPC-4 table 53: the response code shows whether the error is deferred, and the VALID bit does not
    /// depend on the response code.
    #[test]
    fn the_first_byte_tells_of_the_error_and_of_its_block() {
        let named = Sense::WRITE_ERROR.at_block(7);
        assert_eq!(Sense::WRITE_ERROR.fixed()[0], 0x70);
        assert_eq!(named.fixed()[0], 0xf0);
        assert_eq!(Sense::WRITE_ERROR.deferred().fixed()[0], 0x71);
        assert_eq!(named.deferred().fixed()[0], 0xf1);
        assert_eq!(named.deferred().fixed()[3..7], [0, 0, 0, 7]);
        assert_eq!(named.deferred().at_block(1 << 32).fixed()[0], 0x71, "the block does not fit");
    }
}
