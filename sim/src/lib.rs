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
//! world, of copies night after night: the same command line over a source that changes, with processes that are killed, and
//! files of a host that crashes.
//!
//! A quarter of all episodes have troubles: what goes wrong from a begin to an end. In most of these one trouble alone goes
//! wrong, and passes in time, so that no request may fail for it.

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
mod oracle;
mod panics;
mod pending;
mod rng;
mod run;
mod settings;
mod stream;
mod topology;
mod trace;
mod trouble;
mod wire;
mod workload;
mod world;

pub use counts::Counts;
pub use episode::Report;
pub use oracle::GRAIN;
pub use run::run;
pub use settings::{Class, Settings};
