//! Write data that must arrive: announced by a command, or requested by an R2T (RFC 7143 §11.7, §11.8).

use crate::pdu::Pdu;

/// A range of write data that an R2T requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct R2tBurst {
    pub(super) itt: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) data_sn: u32,
    /// `R2TSN` of the R2T.
    pub(super) number: u32,
}

impl R2tBurst {
    pub(super) fn new(r2t: &Pdu) -> Self {
        Self {
            number: r2t.data_sn(),
            itt: r2t.itt(),
            offset: r2t.buffer_offset(),
            length: r2t.desired_length(),
            data_sn: 0,
        }
    }
}

/// Unsolicited data that a command announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) itt: u32,
    pub(super) offset: u32,
    /// Offset at which the data must end.
    pub(super) end: u32,
    pub(super) data_sn: u32,
    /// Whether the task is being aborted, so that the data need not arrive.
    pub(super) abandoned: bool,
}
