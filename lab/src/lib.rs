//! The measuring lab: runs programs between two hosts with a chosen round-trip time, rate and loss,
//! against LIO with chosen keys, keeps every figure in a result file, and draws tables and plots
//! from such files.
//!
//! [`run`] and [`exec`] are the halves on the machine: they read the [`scenario`], find a
//! [`environment`] for the lab, and hand a [`job`] to the same program there, the [`agent`], where the
//! [`testbed`] is set up and the [`peers`] are measured.

pub mod agent;
pub mod args;
pub mod draw;
pub mod environment;
pub mod error;
pub mod exec;
pub mod failover;
pub mod faults;
mod figure;
pub mod flows;
pub mod images;
pub mod job;
pub mod mirror;
pub mod peers;
pub mod process;
pub mod provenance;
pub mod rate;
pub mod record;
pub mod result;
pub mod run;
pub mod scenario;
pub mod signals;
pub mod size;
pub mod stripe;
pub mod target;
pub mod testbed;
