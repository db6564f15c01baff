//! Presents several sessions with one unit as one disk. Executes what
//! [`Requests`](iscsi_multipath::requests::Requests) decides.
//!
//! ```text
//!   request ──submit──► Requests ──steps───► request ──command──► path 0: session, unit
//!                         ▲  ▲                  │           └────► path 1: session, unit
//!         lost, opened,   │  └──end of attempt──┘
//!         closed          │
//!                     supervisor: opens, watches and closes sessions
//! ```
//! A request takes a path when its turn comes and a path has credit, not when it is submitted. Every request
//! here can be executed twice without harm. So requests that were in flight on a session that ends are sent
//! over other sessions. A request that is late is hedged: it is sent over a second path as well, and the
//! first response counts.

pub(crate) mod access;
mod closing;
pub(crate) mod confirmation;
pub(crate) mod disk_status;
pub(crate) mod event;
pub(crate) mod execute;
pub(crate) mod exposition;
pub(crate) mod flush;
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
pub(crate) mod paths;
mod port_states;
mod portal_discovery;
mod portal_race;
pub(crate) mod portals;
mod progress;
mod reconnecting;
mod reinstatement;
pub(crate) mod reopen;
pub(crate) mod report;
mod request;
mod request_report;
mod review;
mod reviewing;
pub(crate) mod samples;
pub(crate) mod session_changes;
mod shared_link;
mod slow_target;
pub(crate) mod stats;
pub(crate) mod supervisor;
mod witness;
