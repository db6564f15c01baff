//! What outlives a request: what is known of a unit, what is being written, what was not flushed, and
//! how much may be under way.

pub(crate) mod budget;
pub(crate) mod capacity;
pub(crate) mod notices;
pub(crate) mod profile;
pub(crate) mod range_locks;
pub(crate) mod unflushed;
pub(crate) mod unit_state;
