//! A deterministic simulation: disks of the initiator over a simulated network to the test target.
//!
//! Everything runs in one thread and in virtual time, and one seed decides everything: the shape of the
//! links, the requests, what goes wrong and when, the random bytes of the initiator. So an episode that has
//! found something wrong can be run again, step by step.
//!
//! ```text
//!  workload ──► Disk ── initiator ── Network, Socket ──► wire ──► test target ──► RAM disk
//!     │                                                    ▲           ▲
//!     └──► oracle: what may a read return?              faults ────────┘
//! ```
//! A tenth of the seeds, by a hash of each, are episodes of copies: there the engine of copies is in the place of
//! the workload, and what a loss of power would leave is compared with what it says. An eighth of the seeds go on with a second
//! world of repeated copies: one command line runs again and again over a source that changes, processes are killed, and the host
//! that keeps the files crashes. Further seeds go on with a world of volumes: the same requests go to several units as one, each
//! of which fails by itself. A twelfth of them go on with a world of a served unit: NBD clients use it through block-serve, whose
//! processes are killed and stopped.
//!
//! A quarter of all episodes have troubles: faults with a beginning and an end. Most of these episodes have one trouble at a time
//! and no other fault. It ends within the patience of the disk, so no request may fail.

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
mod trouble;
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
