//! The measuring lab: runs programs between two hosts with a chosen round-trip time, rate and loss,
//! against LIO with chosen keys, keeps every figure in a result file, and draws tables and plots
//! from such files.
//!
//! [`run`] and [`exec`] are the halves on the machine: they read the [`scenario`], find a
//! [`place`] for the lab, and hand an [`order`] to the same program [`inside`] it, where the
//! [`rig`] is set up and the [`peers`] are measured.

pub mod args;
pub mod draw;
pub mod error;
pub mod exec;
pub mod facts;
mod figure;
pub mod images;
pub mod inside;
pub mod order;
pub mod peers;
pub mod place;
pub mod process;
pub mod rate;
pub mod record;
pub mod result;
pub mod rig;
pub mod run;
pub mod scenario;
pub mod signals;
pub mod size;
pub mod target;
