//! Sense data: why a command failed (SPC-4 §4.5).

use super::{AdditionalSense, FormatError, SenseKey, fields::Fields};
use bytes::Bytes;
use std::fmt;

/// Sense data of either format, fixed or descriptor (SPC-4 §4.5).
///
/// ```
/// use iscsi_pdu::scsi::Sense;
///
/// let sense = Sense::decode(&[0x70, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0])?;
/// assert_eq!(sense.to_string(), "MEDIUM ERROR: UNRECOVERED READ ERROR (03/11/00)");
/// # Ok::<(), iscsi_pdu::scsi::FormatError>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Sense {
    /// Whether the condition concerns an earlier command, which has ended. The command that received this
    /// sense data was not executed (SPC-4 §4.5.5).
    pub deferred: bool,
    /// The sense key: the kind of condition.
    pub key: SenseKey,
    /// The additional sense code: the exact reason.
    pub additional: AdditionalSense,
    /// ILI: the requested length does not fit the block on the medium.
    pub incorrect_length: bool,
    /// INFORMATION, if the device marks it as valid. For block commands it is the address of the first block
    /// that failed; 32 bits wide in the fixed format.
    pub information: Option<u64>,
    /// COMMAND-SPECIFIC INFORMATION, if there is any; in the fixed format zero means that there is none.
    pub command_specific: Option<u64>,
    /// The sense key specific field, whose meaning depends on the kind of condition.
    pub key_specific: Option<SenseKeySpecific>,
    /// FIELD REPLACEABLE UNIT CODE: the failed component; 0 if unknown.
    pub replaceable_unit: u8,
    /// All bytes of the sense data.
    pub raw: Bytes,
}

/// The sense key specific field: its meaning depends on the key (SPC-4 §4.5.2.4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SenseKeySpecific {
    /// ILLEGAL REQUEST: the field with the error.
    FieldPointer {
        /// C/D: the field is in the CDB; otherwise it is in the parameter list.
        in_cdb: bool,
        /// The field's leftmost bit, 0 to 7, if the device reports it.
        bit: Option<u8>,
        /// The field's first byte.
        byte: u16,
    },
    /// RECOVERED, MEDIUM and HARDWARE ERROR: number of retries by the device.
    RetryCount(u16),
    /// NO SENSE and NOT READY: progress of an operation, in 1/65536.
    Progress(u16),
    /// COPY ABORTED: the field with the error.
    SegmentPointer {
        /// SD: the field is in a segment descriptor; otherwise it is in the parameter list.
        in_segment: bool,
        /// The field's leftmost bit, 0 to 7, if the device reports it.
        bit: Option<u8>,
        /// The field's first byte.
        byte: u16,
    },
    /// UNIT ATTENTION: whether unit attentions were lost for lack of space.
    Overflow(bool),
    /// The field as it is, for a key that defines no meaning for it.
    Other([u8; 3]),
}

impl Sense {
    /// Reads sense data, without the length that precedes it in a SCSI Response PDU.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooShort`] if the data end before the sense key, [`FormatError::Field`] for a response
    /// code other than 70h to 73h.
    pub fn decode(data: &[u8]) -> Result<Self, FormatError> {
        let fields = Fields::new(data, FORMAT, 1)?;
        let code = fields.u8(0) & 0x7f;
        let mut sense = match code {
            0x70 | 0x71 => Self::decode_fixed(Fields::new(data, FORMAT, 3)?),
            0x72 | 0x73 => Self::decode_descriptors(Fields::new(data, FORMAT, 2)?),
            _ => {
                let value = u64::from(code);
                return Err(FormatError::Field { format: FORMAT, field: "RESPONSE CODE", value });
            }
        };
        sense.deferred = code & 0x01 != 0;
        sense.raw = Bytes::copy_from_slice(data);
        Ok(sense)
    }

    fn with_reason(key: u8, asc: u8, ascq: u8) -> Self {
        Self {
            deferred: false,
            key: SenseKey::from_nibble(key),
            additional: AdditionalSense { asc, ascq },
            incorrect_length: false,
            information: None,
            command_specific: None,
            key_specific: None,
            replaceable_unit: 0,
            raw: Bytes::new(),
        }
    }

    fn decode_fixed(fields: Fields<'_>) -> Self {
        let fields = fields.cut(8 + usize::from(fields.u8(7)));
        let mut sense = Self::with_reason(fields.u8(2), fields.u8(12), fields.u8(13));
        sense.incorrect_length = fields.bit(2, 0x20);
        sense.information = fields.bit(0, 0x80).then(|| u64::from(fields.u32(3)));
        sense.command_specific = Some(u64::from(fields.u32(8))).filter(|&value| value != 0);
        sense.replaceable_unit = fields.u8(14);
        sense.key_specific = SenseKeySpecific::decode(sense.key, fields.array(15));
        sense
    }

    fn decode_descriptors(fields: Fields<'_>) -> Self {
        let mut sense = Self::with_reason(fields.u8(1), fields.u8(2), fields.u8(3));
        let mut rest = fields.cut(8 + usize::from(fields.u8(7))).tail(8);
        while let [kind, len, ..] = *rest {
            let (descriptor, next) = rest.split_at(rest.len().min(2 + usize::from(len)));
            sense.take_descriptor(kind, descriptor);
            rest = next;
        }
        sense
    }

    /// Stores the fields of one descriptor; a truncated descriptor is ignored (SPC-4 §4.5.2).
    fn take_descriptor(&mut self, kind: u8, descriptor: &[u8]) {
        let needed = match kind {
            0x00 | 0x01 => 12,
            0x02 => 7,
            _ => 4,
        };
        let Ok(fields) = Fields::new(descriptor, FORMAT, needed) else { return };
        match kind {
            0x00 => self.information = fields.bit(2, 0x80).then(|| fields.u64(4)),
            0x01 => self.command_specific = Some(fields.u64(4)),
            0x02 => self.key_specific = SenseKeySpecific::decode(self.key, fields.array(4)),
            0x03 => self.replaceable_unit = fields.u8(3),
            0x04 | 0x05 => self.incorrect_length = fields.bit(3, 0x20),
            _ => {}
        }
    }
}

const FORMAT: &str = "sense data";

impl SenseKeySpecific {
    /// Reads the field; `None` if SKSV marks it as not valid.
    fn decode(key: SenseKey, field: [u8; 3]) -> Option<Self> {
        let [flags, high, low] = field;
        let value = u16::from_be_bytes([high, low]);
        let bit = (flags & 0x08 != 0).then_some(flags & 0x07);
        let specific = match key {
            SenseKey::IllegalRequest => {
                Self::FieldPointer { in_cdb: flags & 0x40 != 0, bit, byte: value }
            }
            SenseKey::CopyAborted => {
                Self::SegmentPointer { in_segment: flags & 0x20 != 0, bit, byte: value }
            }
            SenseKey::RecoveredError | SenseKey::MediumError | SenseKey::HardwareError => {
                Self::RetryCount(value)
            }
            SenseKey::NoSense | SenseKey::NotReady => Self::Progress(value),
            SenseKey::UnitAttention => Self::Overflow(flags & 0x01 != 0),
            SenseKey::DataProtect
            | SenseKey::BlankCheck
            | SenseKey::VendorSpecific
            | SenseKey::AbortedCommand
            | SenseKey::Reserved
            | SenseKey::VolumeOverflow
            | SenseKey::Miscompare
            | SenseKey::Completed => Self::Other(field),
        };
        (flags & 0x80 != 0).then_some(specific)
    }
}

impl fmt::Display for Sense {
    /// Writes the key, the reason and the three codes: `MEDIUM ERROR: UNRECOVERED READ ERROR (03/11/00)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.deferred {
            f.write_str("deferred ")?;
        }
        f.write_str(self.key.name())?;
        if let Some(name) = self.additional.name() {
            write!(f, ": {name}")?;
        }
        write!(f, " ({:02X}/{})", self.key.code(), self.additional.codes())
    }
}
