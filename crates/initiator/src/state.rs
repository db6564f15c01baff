//! Holds the state that outlives a request: what is known of a unit, ranges that are being written, unflushed
//! writes, limits of what may be in flight, and statistics.

pub(crate) mod attempt;
pub(crate) mod budget;
pub(crate) mod counters;
pub(crate) mod fencing;
pub(crate) mod flush_in_progress;
pub(crate) mod isids;
pub(crate) mod latency;
pub(crate) mod loss_cursor;
pub(crate) mod notices;
pub(crate) mod outstanding;
pub(crate) mod range_locks;
pub(crate) mod read_buffers;
pub(crate) mod revalidating;
pub(crate) mod segment_limits;
pub(crate) mod session_key;
pub(crate) mod unit_flushes;
pub(crate) mod unit_lock;
pub(crate) mod unit_registry;
pub(crate) mod unit_state;
pub(crate) mod waiters;
