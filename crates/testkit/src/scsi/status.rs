//! SCSI status codes that the target returns (SAM-5 §5.3).

/// The command succeeded.
pub const GOOD: u8 = 0x00;
/// The command failed; the sense data give the reason.
pub const CHECK_CONDITION: u8 = 0x02;
/// The unit cannot take a command now.
pub const BUSY: u8 = 0x08;
/// Another initiator holds a reservation.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// Too many commands are queued.
pub const TASK_SET_FULL: u8 = 0x28;
/// Another initiator aborted the task.
pub const TASK_ABORTED: u8 = 0x40;
