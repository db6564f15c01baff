//! The measuring lab. It runs programs between two hosts with a chosen round-trip time, rate and loss, against
//! LIO with chosen keys. It keeps every figure in a result file, and draws tables and plots from result files.
//!
//! [`run`] and [`exec`] run on the machine. They read the [`scenario`], find an [`environment`], and pass a
//! [`job`] to the same program there. That is the [`agent`]: it sets up the [`testbed`] and measures the
//! [`peers`].

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
