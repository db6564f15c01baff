//! Checks the header of a PDU, and chooses the destination of its data segment, before any byte of the
//! segment is stored.

use bytes::BytesMut;
use iscsi_pdu::keys::DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH;
use iscsi_pdu::{Cid, DataIn, TargetOpcode, TargetPdu};

use super::inbox::Destination;
use crate::error::ProtocolError;
use crate::params::Negotiated;
use crate::task::Task;
use crate::task::set::TaskSet;

/// Returns the destination of a data segment of `len` bytes. `agreed` is absent in the login phase, in which
/// only Login Responses may arrive (RFC 7143 §6.3).
pub(crate) fn destination(
    pdu: &TargetPdu,
    len: usize,
    cid: Cid,
    tasks: &TaskSet,
    agreed: Option<&Negotiated>,
) -> Result<Destination, ProtocolError> {
    if matches!(pdu, TargetPdu::LoginResponse(_)) != agreed.is_none() {
        return Err(ProtocolError::Unexpected { pdu: pdu.opcode().name() });
    }
    let declared = agreed.map(|agreed| agreed.initiator_max_recv_data_segment_length);
    let limit = declared.unwrap_or(DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH) as usize;
    if len > limit {
        return Err(ProtocolError::DataSegmentLength { len, limit });
    }
    match (pdu, agreed) {
        (TargetPdu::DataIn(data_in), Some(agreed)) => {
            data_in_destination(data_in, len, cid, tasks, agreed)
        }
        _ => Ok(Destination::Own(BytesMut::zeroed(len))),
    }
}

fn data_in_destination(
    data_in: &DataIn,
    len: usize,
    cid: Cid,
    tasks: &TaskSet,
    agreed: &Negotiated,
) -> Result<Destination, ProtocolError> {
    let itt = data_in.itt;
    let fits = |task: &&Task| task.allegiance() == Some(cid);
    let Some(task) = tasks.get(itt).filter(fits).and_then(Task::as_scsi) else {
        if tasks.was_aborted(itt) {
            return Ok(Destination::Discard);
        }
        return Err(ProtocolError::Task { pdu: TargetOpcode::DataIn.name(), itt });
    };
    let Some(read) = &task.read else {
        return Err(ProtocolError::Task { pdu: TargetOpcode::DataIn.name(), itt });
    };
    if task.is_damaged() {
        return Ok(Destination::Discard);
    }
    read.admit(data_in, len, task.next_data_sn(), agreed)?;
    Ok(Destination::Read { itt, offset: data_in.buffer_offset as usize })
}
