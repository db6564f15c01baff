//! Accesses logical units through one session: reads their properties, and sends commands to them.

pub(crate) mod execute;
mod fencing;
mod flush;
pub(crate) mod identity;
mod in_flight;
pub(crate) mod inventory;
pub(crate) mod logical_unit;
pub(crate) mod port_groups;
pub(crate) mod probe;
pub(crate) mod recognition;
mod reservation;
pub(crate) mod retry;
pub(crate) mod transfer;
