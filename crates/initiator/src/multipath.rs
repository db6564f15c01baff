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

pub(crate) mod disk_status;
pub(crate) mod paths;
pub(crate) mod portals;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod stats;
pub(crate) mod supervisor;
