//! Counters of a session.

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// PDUs put in wire order.
    pub pdus_sent: u64,
    /// PDUs received completely.
    pub pdus_received: u64,
    /// Bytes of write data put in wire order.
    pub data_out_bytes: u64,
    /// Bytes of read data received.
    pub data_in_bytes: u64,
    /// R2Ts received.
    pub r2ts: u64,
    /// Tasks that have ended.
    pub tasks_ended: u64,
}
