//! Several sessions with one unit as one way to it.
//!
//! ```text
//!   requests ──► queue ──► schedule ──► path 0: session, unit
//!                  ▲           │   └──► path 1: session, unit
//!                  └───────────┘
//!        what a path could not finish, when it is gone
//! ```
//! A request takes a path when its turn comes and a path has room, not when it is made. All that
//! comes this way may be carried out twice without harm, so what was under way on a session that
//! ends goes to the others; and a request that is late on one is sent over another as well when
//! that has nothing else to do, or when it is stuck: the first answer counts.

pub(crate) mod access;
mod closing;
mod confirmation;
pub(crate) mod disk_status;
pub(crate) mod dispatch;
pub(crate) mod event;
pub(crate) mod execute;
pub(crate) mod exposition;
mod flush;
mod flush_watch;
mod idle_poll;
mod in_use;
mod inbox;
mod leaving;
mod left_behind;
mod lost_sessions;
mod outage;
mod outputs;
pub(crate) mod path;
mod path_set;
pub(crate) mod path_status;
mod port_states;
mod portal_discovery;
mod portal_race;
pub(crate) mod portals;
mod progress;
mod reconnecting;
mod refusal;
mod reinstatement;
pub(crate) mod reopen;
pub(crate) mod report;
mod request;
mod request_length;
mod request_report;
mod review;
mod reviewing;
pub(crate) mod samples;
pub(crate) mod session_changes;
mod shaping;
mod shared_link;
mod silence;
mod slow_target;
pub(crate) mod stats;
pub(crate) mod supervisor;
mod witness;
