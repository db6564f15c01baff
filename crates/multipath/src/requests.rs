//! Requests: what one has been through, and what follows from the end of each attempt.

pub mod disposition;
pub mod end;
pub mod history;
