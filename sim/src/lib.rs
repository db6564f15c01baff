//! A deterministic simulation: disks of the initiator over a simulated network to the test target.
//!
//! Everything runs in one thread and in virtual time. One seed decides everything: the shape of the links, the
//! requests, the faults and their times, and the random bytes of the initiator. So an episode that has found a
//! violation can be run again, step by step.
//!
//! ```text
//!  workload ──► Disk ── initiator ── Network, Socket ──► wire ──► test target ──► RAM disk
//!     │                                                    ▲           ▲
//!     └──► oracle: what may a read return?              faults ────────┘
//! ```
//! A hash of the seed decides the kind of an episode. In 12 % of the episodes, the copy engine takes the place
//! of the workload, and what it claims is compared with what a loss of power would leave.
//!
//! Some episodes go on in a further world:
//!
//! - 12 %, repeated copies: one command line runs again and again over a source that changes. Processes are
//!   killed, and the host that keeps the files crashes.
//! - 15 %, volumes: the same requests go to several units as one. Each unit fails by itself.
//! - 8 %, a served unit: NBD clients use it through block-serve, whose processes are killed and stopped.
//!
//! In 8 % of the episodes, and of their further worlds, a TLS tunnel stands before each target, and records arrive in
//! pieces that are cut anywhere.
//!
//! A quarter of all episodes have troubles: faults with a beginning and an end. Most of these episodes have one
//! trouble at a time and no other fault. No request may fail then, since a trouble ends within the retry
//! timeout of the disk. A partition may last longer, but cuts off only one portal.

mod busy;
mod carry;
mod clock;
mod copy;
mod counts;
mod episode;
mod faults;
mod host;
mod losses;
mod lun;
mod network;
mod opened;
mod oracle;
mod panics;
mod pending;
mod power;
mod rng;
mod run;
mod serve;
mod settings;
mod stream;
mod topology;
mod trace;
mod tunnel;
mod units;
mod volume;
mod wire;
mod workload;
mod world;

pub use counts::Counts;
pub use episode::Report;
pub use oracle::GRAIN;
pub use run::run;
pub use settings::{Class, Settings};
