//! Operation codes (SPC-4, SBC-3).

pub(crate) const TEST_UNIT_READY: u8 = 0x00;
pub(crate) const REQUEST_SENSE: u8 = 0x03;
pub(crate) const INQUIRY: u8 = 0x12;
pub(crate) const MODE_SENSE_6: u8 = 0x1a;
pub(crate) const READ_CAPACITY_10: u8 = 0x25;
pub(crate) const READ_10: u8 = 0x28;
pub(crate) const WRITE_10: u8 = 0x2a;
pub(crate) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub(crate) const WRITE_SAME_10: u8 = 0x41;
pub(crate) const UNMAP: u8 = 0x42;
pub(crate) const MODE_SENSE_10: u8 = 0x5a;
pub(crate) const READ_16: u8 = 0x88;
pub(crate) const WRITE_16: u8 = 0x8a;
pub(crate) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub(crate) const WRITE_SAME_16: u8 = 0x93;
pub(crate) const SERVICE_ACTION_IN_16: u8 = 0x9e;
pub(crate) const REPORT_LUNS: u8 = 0xa0;
pub(crate) const PERSISTENT_RESERVE_IN: u8 = 0x5e;
pub(crate) const PERSISTENT_RESERVE_OUT: u8 = 0x5f;
pub(crate) const MAINTENANCE_IN: u8 = 0xa3;
pub(crate) const MAINTENANCE_OUT: u8 = 0xa4;
