//! Formats a PDU as one line of a trace.

use bytes::BytesMut;
use iscsi_testkit::frame::Framing;
use iscsi_testkit::opcode::Opcode;
use iscsi_testkit::pdu::Pdu;

/// Takes the complete PDUs off a stream without digests, and returns the line of each.
pub(super) fn taken(stream: &mut BytesMut) -> impl Iterator<Item = String> {
    std::iter::from_fn(|| Framing::PLAIN.take(stream, usize::MAX).ok().flatten())
        .map(|pdu| line(&pdu))
}

/// Returns the name of the PDU, and the fields that distinguish it from other PDUs of the same type.
fn line(pdu: &Pdu) -> String {
    let (tag, len) = (pdu.itt(), pdu.data.len());
    match pdu.opcode() {
        Some(Opcode::ScsiCommand) => {
            format!("command {tag:x}: {}, {len} bytes with it", command(pdu))
        }
        Some(Opcode::ScsiResponse) => {
            let (response, status, residual) = (pdu.response(), pdu.status(), pdu.residual());
            format!(
                "response {tag:x}: {response:x}, status {status:#04x}, residual {residual}{}",
                sense(pdu)
            )
        }
        Some(Opcode::DataIn) if pdu.has_status() => {
            format!(
                "Data-In {tag:x}: {len} bytes from {}, status {:#04x}",
                pdu.buffer_offset(),
                pdu.status()
            )
        }
        Some(Opcode::DataIn | Opcode::DataOut) => {
            let name = if pdu.is(Opcode::DataIn) { "Data-In" } else { "Data-Out" };
            format!("{name} {tag:x}: {len} bytes from {}", pdu.buffer_offset())
        }
        Some(Opcode::R2t) => {
            format!("R2T {tag:x}: {} bytes from {}", pdu.desired_length(), pdu.buffer_offset())
        }
        Some(Opcode::TaskManagementRequest) => {
            format!(
                "task management {tag:x}: function {}, of {:x}",
                pdu.function(),
                pdu.referenced_tag()
            )
        }
        Some(Opcode::TaskManagementResponse | Opcode::LogoutResponse) => {
            format!("{:?} {tag:x}: {}", pdu.opcode(), pdu.response())
        }
        Some(Opcode::AsyncMessage) => format!("asynchronous message: {}", pdu.event()),
        Some(Opcode::Reject) => format!("reject: {:#x}", pdu.reason()),
        Some(opcode) => format!("{opcode:?} {tag:x}, {len} bytes"),
        None => format!("operation code {:#x}", pdu.header[0]),
    }
}

/// Returns the operation code, the block and the number of blocks of the usual CDBs.
fn command(pdu: &Pdu) -> String {
    let cdb = pdu.cdb();
    let wide = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]);
    let name = match cdb[0] {
        0x00 => "TEST UNIT READY",
        0x12 => "INQUIRY",
        0x1a | 0x5a => "MODE SENSE",
        0x28 | 0x88 => "READ",
        0x2a | 0x8a => "WRITE",
        0x35 | 0x91 => "SYNCHRONIZE CACHE",
        0x41 | 0x93 => "WRITE SAME",
        0x42 => "UNMAP",
        0x9e => "SERVICE ACTION IN",
        0xa0 => "REPORT LUNS",
        0xa3 => "MAINTENANCE IN",
        _ => "operation",
    };
    let code = cdb[0];
    match code {
        0x28 | 0x2a | 0x35 | 0x41 => {
            let blocks = u16::from_be_bytes([cdb[7], cdb[8]]);
            format!("{name}({code:#04x}) {}+{blocks}", wide(2))
        }
        0x88 | 0x8a | 0x91 | 0x93 => {
            let lba = (u64::from(wide(2)) << 32) | u64::from(wide(6));
            format!("{name}({code:#04x}) {lba}+{}", wide(10))
        }
        0x42 => format!("{name}, {:x}", pdu.data),
        _ => format!("{name}({code:#04x}) {:x} {:x}", cdb[1], cdb[2]),
    }
}

/// Returns key and code of a response that has sense data of the fixed format.
fn sense(pdu: &Pdu) -> String {
    let Some(sense) = pdu.data.get(2..).filter(|sense| sense.len() > 13) else {
        return String::new();
    };
    format!(
        ", sense {:x}/{:02x}/{:02x}, format {:x}",
        sense[2] & 0xf,
        sense[12],
        sense[13],
        sense[0]
    )
}
