//! Operation codes: the command that byte 0 of a CDB identifies (SPC-4, annex "Numeric order codes").

pub(super) const TEST_UNIT_READY: u8 = 0x00;
pub(super) const REQUEST_SENSE: u8 = 0x03;
pub(super) const INQUIRY: u8 = 0x12;
pub(super) const MODE_SENSE_6: u8 = 0x1a;
pub(super) const READ_CAPACITY_10: u8 = 0x25;
pub(super) const READ_10: u8 = 0x28;
pub(super) const WRITE_10: u8 = 0x2a;
pub(super) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub(super) const WRITE_SAME_10: u8 = 0x41;
pub(super) const UNMAP: u8 = 0x42;
pub(super) const MODE_SENSE_10: u8 = 0x5a;
/// PERSISTENT RESERVE IN: the service action in byte 1 is a query.
pub(super) const PERSISTENT_RESERVE_IN: u8 = 0x5e;
/// PERSISTENT RESERVE OUT: the service action in byte 1 is a change.
pub(super) const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
pub(super) const READ_16: u8 = 0x88;
pub(super) const WRITE_16: u8 = 0x8a;
pub(super) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub(super) const WRITE_SAME_16: u8 = 0x93;
/// SERVICE ACTION IN (16): byte 1 holds the service action, which identifies the command.
pub(super) const SERVICE_ACTION_IN_16: u8 = 0x9e;
pub(super) const REPORT_LUNS: u8 = 0xa0;
/// MAINTENANCE IN: byte 1 holds the service action, which identifies the command.
pub(super) const MAINTENANCE_IN: u8 = 0xa3;
/// MAINTENANCE OUT: byte 1 holds the service action, which identifies the command.
pub(super) const MAINTENANCE_OUT: u8 = 0xa4;

/// Service action of SERVICE ACTION IN (16).
pub(super) const READ_CAPACITY_16: u8 = 0x10;
/// Service action of SERVICE ACTION IN (16).
pub(super) const GET_LBA_STATUS: u8 = 0x12;

/// Service action of MAINTENANCE IN.
pub(super) const REPORT_TARGET_PORT_GROUPS: u8 = 0x0a;
/// Service action of MAINTENANCE OUT.
pub(super) const SET_TARGET_PORT_GROUPS: u8 = 0x0a;

/// Service action of SERVICE ACTION IN (16).
const READ_LONG_16: u8 = 0x11;

const RECEIVE_DIAGNOSTIC_RESULTS: u8 = 0x1c;
const READ_DEFECT_DATA_10: u8 = 0x37;
const LOG_SENSE: u8 = 0x4d;
const THIRD_PARTY_COPY_IN: u8 = 0x84;
const SECURITY_PROTOCOL_IN: u8 = 0xa2;
const READ_DEFECT_DATA_12: u8 = 0xb7;
const READ_12: u8 = 0xa8;
const WRITE_12: u8 = 0xaa;

/// The name of a command that is not in the table.
pub(super) const UNKNOWN: &str = "unknown command";

/// Returns the length of a CDB, bytes, by the group of its operation code (SPC-4); `None` for the variable
/// length, reserved and vendor specific groups.
pub(super) const fn cdb_len(code: u8) -> Option<usize> {
    match code >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

/// Returns the operation code of the ten-byte form of a 16-byte command, for commands of disks that have both
/// forms.
pub(super) const fn form_of_10(code: u8) -> Option<u8> {
    match code {
        READ_16 => Some(READ_10),
        WRITE_16 => Some(WRITE_10),
        SYNCHRONIZE_CACHE_16 => Some(SYNCHRONIZE_CACHE_10),
        WRITE_SAME_16 => Some(WRITE_SAME_10),
        _ => None,
    }
}

/// Returns the length of the block address, bytes, in a command for consecutive blocks.
pub(super) const fn block_address_len(code: u8) -> Option<usize> {
    match code {
        READ_10 | WRITE_10 | WRITE_SAME_10 => Some(4),
        READ_16 | WRITE_16 | WRITE_SAME_16 => Some(8),
        _ => None,
    }
}

/// Returns whether the command reads parameter data. They contain their own length, and the device sends what
/// it has, up to the allocation length (SPC-4 §4.2.5.6).
pub(super) const fn reads_parameter_data(code: u8, action: u8) -> bool {
    match code {
        REQUEST_SENSE
        | INQUIRY
        | MODE_SENSE_6
        | RECEIVE_DIAGNOSTIC_RESULTS
        | READ_CAPACITY_10
        | READ_DEFECT_DATA_10
        | LOG_SENSE
        | MODE_SENSE_10
        | PERSISTENT_RESERVE_IN
        | THIRD_PARTY_COPY_IN
        | REPORT_LUNS
        | SECURITY_PROTOCOL_IN
        | MAINTENANCE_IN
        | READ_DEFECT_DATA_12 => true,
        SERVICE_ACTION_IN_16 => action != READ_LONG_16,
        _ => false,
    }
}

/// Returns whether the command reads or changes blocks of the medium, or flushes them.
pub(super) const fn accesses_blocks(code: u8) -> bool {
    has_force_unit_access(code)
        || matches!(
            code,
            WRITE_SAME_10 | WRITE_SAME_16 | UNMAP | SYNCHRONIZE_CACHE_10 | SYNCHRONIZE_CACHE_16
        )
}

/// Returns whether byte 1 of the command has a FUA bit at the same place as READ (10).
pub(super) const fn has_force_unit_access(code: u8) -> bool {
    matches!(code, READ_10 | READ_12 | READ_16 | WRITE_10 | WRITE_12 | WRITE_16)
}

/// The operation of a CDB: its operation code, and the service action if several commands share the operation
/// code (SPC-4 §4.3).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Operation {
    pub(super) code: u8,
    pub(super) action: u8,
}

impl Operation {
    /// Returns the operation code, byte 0 of the CDB.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// Returns the name in the standard, such as "READ (16)"; "unknown command" if the operation code, or the
    /// service action of a shared operation code, is not in the table.
    pub const fn name(self) -> &'static str {
        let Self { code, action } = self;
        match code {
            PERSISTENT_RESERVE_IN => reservation_in(action),
            PERSISTENT_RESERVE_OUT => reservation_out(action),
            SERVICE_ACTION_IN_16 => service_action_in_16(action),
            MAINTENANCE_IN => maintenance_in(action),
            MAINTENANCE_OUT => maintenance_out(action),
            _ => plain_name(code),
        }
    }
}

/// Returns the name of a command that its operation code alone identifies.
const fn plain_name(code: u8) -> &'static str {
    match code {
        0x00..=0x1f => group_0(code),
        0x20..=0x5f => groups_1_and_2(code),
        0x7f => "variable length command",
        0x80..=0x9f => group_4(code),
        0xa0..=0xbf => group_5(code),
        _ => UNKNOWN,
    }
}

const fn group_0(code: u8) -> &'static str {
    match code {
        TEST_UNIT_READY => "TEST UNIT READY",
        0x01 => "REZERO UNIT",
        REQUEST_SENSE => "REQUEST SENSE",
        0x04 => "FORMAT UNIT",
        0x07 => "REASSIGN BLOCKS",
        0x08 => "READ (6)",
        0x0a => "WRITE (6)",
        INQUIRY => "INQUIRY",
        0x15 => "MODE SELECT (6)",
        0x16 => "RESERVE (6)",
        0x17 => "RELEASE (6)",
        MODE_SENSE_6 => "MODE SENSE (6)",
        0x1b => "START STOP UNIT",
        RECEIVE_DIAGNOSTIC_RESULTS => "RECEIVE DIAGNOSTIC RESULTS",
        0x1d => "SEND DIAGNOSTIC",
        0x1e => "PREVENT ALLOW MEDIUM REMOVAL",
        _ => UNKNOWN,
    }
}

const fn groups_1_and_2(code: u8) -> &'static str {
    match code {
        READ_CAPACITY_10 => "READ CAPACITY (10)",
        READ_10 => "READ (10)",
        WRITE_10 => "WRITE (10)",
        0x2e => "WRITE AND VERIFY (10)",
        0x2f => "VERIFY (10)",
        0x34 => "PRE-FETCH (10)",
        SYNCHRONIZE_CACHE_10 => "SYNCHRONIZE CACHE (10)",
        READ_DEFECT_DATA_10 => "READ DEFECT DATA (10)",
        0x3b => "WRITE BUFFER",
        0x3c => "READ BUFFER",
        WRITE_SAME_10 => "WRITE SAME (10)",
        UNMAP => "UNMAP",
        0x48 => "SANITIZE",
        0x4c => "LOG SELECT",
        LOG_SENSE => "LOG SENSE",
        0x55 => "MODE SELECT (10)",
        0x56 => "RESERVE (10)",
        0x57 => "RELEASE (10)",
        MODE_SENSE_10 => "MODE SENSE (10)",
        _ => UNKNOWN,
    }
}

const fn group_4(code: u8) -> &'static str {
    match code {
        0x83 => "THIRD-PARTY COPY OUT",
        THIRD_PARTY_COPY_IN => "THIRD-PARTY COPY IN",
        0x85 => "ATA PASS-THROUGH (16)",
        READ_16 => "READ (16)",
        0x89 => "COMPARE AND WRITE",
        WRITE_16 => "WRITE (16)",
        0x8b => "ORWRITE (16)",
        0x8e => "WRITE AND VERIFY (16)",
        0x8f => "VERIFY (16)",
        0x90 => "PRE-FETCH (16)",
        SYNCHRONIZE_CACHE_16 => "SYNCHRONIZE CACHE (16)",
        WRITE_SAME_16 => "WRITE SAME (16)",
        0x9b => "READ BUFFER (16)",
        0x9c => "WRITE ATOMIC (16)",
        0x9f => "SERVICE ACTION OUT (16)",
        _ => UNKNOWN,
    }
}

const fn group_5(code: u8) -> &'static str {
    match code {
        REPORT_LUNS => "REPORT LUNS",
        0xa1 => "ATA PASS-THROUGH (12)",
        SECURITY_PROTOCOL_IN => "SECURITY PROTOCOL IN",
        READ_12 => "READ (12)",
        WRITE_12 => "WRITE (12)",
        0xae => "WRITE AND VERIFY (12)",
        0xaf => "VERIFY (12)",
        0xb5 => "SECURITY PROTOCOL OUT",
        READ_DEFECT_DATA_12 => "READ DEFECT DATA (12)",
        _ => UNKNOWN,
    }
}

const fn service_action_in_16(action: u8) -> &'static str {
    match action {
        READ_CAPACITY_16 => "READ CAPACITY (16)",
        READ_LONG_16 => "READ LONG (16)",
        GET_LBA_STATUS => "GET LBA STATUS",
        0x13 => "REPORT REFERRALS",
        0x14 => "STREAM CONTROL",
        0x15 => "BACKGROUND CONTROL",
        0x16 => "GET STREAM STATUS",
        _ => "SERVICE ACTION IN (16)",
    }
}

const fn reservation_in(action: u8) -> &'static str {
    match action {
        0x00 => "PERSISTENT RESERVE IN: READ KEYS",
        0x01 => "PERSISTENT RESERVE IN: READ RESERVATION",
        0x02 => "PERSISTENT RESERVE IN: REPORT CAPABILITIES",
        0x03 => "PERSISTENT RESERVE IN: READ FULL STATUS",
        _ => "PERSISTENT RESERVE IN",
    }
}

const fn reservation_out(action: u8) -> &'static str {
    match action {
        0x00 => "PERSISTENT RESERVE OUT: REGISTER",
        0x01 => "PERSISTENT RESERVE OUT: RESERVE",
        0x02 => "PERSISTENT RESERVE OUT: RELEASE",
        0x03 => "PERSISTENT RESERVE OUT: CLEAR",
        0x04 => "PERSISTENT RESERVE OUT: PREEMPT",
        0x05 => "PERSISTENT RESERVE OUT: PREEMPT AND ABORT",
        0x06 => "PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY",
        0x07 => "PERSISTENT RESERVE OUT: REGISTER AND MOVE",
        _ => "PERSISTENT RESERVE OUT",
    }
}

const fn maintenance_in(action: u8) -> &'static str {
    match action {
        0x05 => "REPORT IDENTIFYING INFORMATION",
        REPORT_TARGET_PORT_GROUPS => "REPORT TARGET PORT GROUPS",
        0x0b => "REPORT ALIASES",
        0x0c => "REPORT SUPPORTED OPERATION CODES",
        0x0d => "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        0x0e => "REPORT PRIORITY",
        0x0f => "REPORT TIMESTAMP",
        _ => "MAINTENANCE IN",
    }
}

const fn maintenance_out(action: u8) -> &'static str {
    match action {
        0x06 => "SET IDENTIFYING INFORMATION",
        SET_TARGET_PORT_GROUPS => "SET TARGET PORT GROUPS",
        0x0b => "CHANGE ALIASES",
        0x0e => "SET PRIORITY",
        0x0f => "SET TIMESTAMP",
        _ => "MAINTENANCE OUT",
    }
}
