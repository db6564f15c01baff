//! A userspace iSCSI initiator on tokio (RFC 7143), for programs that move or serve disks over long or
//! unreliable networks: migration, backup, replication, test tools.
//!
//! It needs no kernel module, no daemon and no privileges. It runs on Linux only, because it reads
//! TCP_INFO and sets socket options of that kernel. A [`Disk`] has several sessions to its unit, keeps the
//! link full, and reconnects, retries and fails over by itself.
//!
//! ```
//! use bytes::Bytes;
//! use iscsi_initiator::Initiator;
//!
//! # use iscsi_testkit::{config::TargetConfig, disk::RamDisk, serve::Server, target::Target};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let unit = RamDisk::new(512, 4096);
//! # let target = TargetConfig::new("iqn.2026-01.org.example:disk", unit);
//! # let server = Server::start(Target::new(target)).await?;
//! # let url = format!("iscsi://{}/iqn.2026-01.org.example:disk/0", server.address());
//! let initiator = Initiator::new("iqn.2026-01.org.example:host")?;
//! // The URL of a unit, as in iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0.
//! let disk = initiator.disk(url).await?;
//! let page = Bytes::from(vec![0x5a; 4096]);
//! disk.write_at(0, vec![page.clone(), page]).await?;
//! let data = disk.read_at(4095, 2).await?;
//! assert_eq!(data, [0x5a; 2][..]);
//! disk.flush().await?;
//! disk.logout().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Map of the types
//!
//! | handle | works with |
//! |---|---|
//! | [`Initiator`] | URLs: open a [`disk`](Initiator::disk), [`connect`](Initiator::connect) to a target, [`discover`](Initiator::discover) targets |
//! | [`Session`] | iSCSI: negotiated parameters, ping, task management, logout |
//! | [`LogicalUnit`] | SCSI: blocks, typed commands, any CDB |
//! | [`Disk`] | bytes: any offset and length, flush, several sessions, retry, reconnect and failover |
//! | [`DiskStream`] | [`AsyncRead`](tokio::io::AsyncRead), [`AsyncWrite`](tokio::io::AsyncWrite), [`AsyncSeek`](tokio::io::AsyncSeek) |
//!
//! | to | use |
//! |---|---|
//! | work without async | [`blocking`] |
//! | write code for any device of bytes | [`device::Device`] |
//! | set limits, time limits, credentials and sessions | [`Options`], or options of the [URL](url) |
//! | decide what to do about an error | [`Error::kind`], [`Error::is_transient`], [`Error::may_have_executed`] |
//! | limit the rate of disks | [`Shaper`] |
//! | encrypt connections | [`Options::with_tls`], [`TlsOptions`] |
//! | connect through a tunnel, or over another network than TCP | [`transport`] |
//! | watch a disk | [`Disk::events`], [`Disk::status`], [`Disk::paths`], [`Disk::stats`] |
//! | find out what limits the throughput | [`Session::plan`], [`Session::reading`] |
//!
//! This crate exports the types of `iscsi_pdu` (SCSI and iSCSI), `iscsi_session`, `iscsi_tuner` and `iscsi_shaper` that most
//! programs name. For the others, such as a VPD page or a plan, add a dependency on the crate that has them.
//!
//! All handles except [`DiskStream`] are cheap to clone, `Send` and `Sync`, and can be used from many tasks.
//! A task runs each session in the background. A slow caller, a slow connection, or one blocked direction of
//! a socket does not stop the others.
//!
//! # Retry, reconnect and failover
//!
//! - **Retry:** a command that fails for a reason which passes by itself, such as a busy unit, is sent again
//!   after a pause; [the table below](#what-is-retried) lists these reasons.
//! - **Reconnect:** a [`Disk`] from [`Initiator::disk`] reconnects each session that it loses, over any
//!   portal of its URL, and its callers see a delay instead of an error.
//! - **Failover:** requests of a session that is lost, stuck, or whose port does not serve the unit move to
//!   another session of the disk.
//! - **Limit:** requests wait for up to [`Options::with_retry_timeout`] (5 minutes by default), and then
//!   [`OnRetryTimeout`] says whether the disk ends or only these requests fail; [`Advanced`] has the pauses.
//! - **Not retried:** [`LogicalUnit::execute`] sends its command once, and a [`Session`] that is lost stays lost:
//!   its requests fail with an error that says whether the command [may have been
//!   executed](Error::may_have_executed).
//!
//! # Data is not copied
//!
//! A write goes to the socket directly from the caller's pages, also from a list of pages. The data of a read
//! is received directly into the buffer that the caller gets. The exceptions: unaligned reads by
//! [`read_into`](Disk::read_into), bytes that were received together with their header, and [`DiskStream`]. Shared
//! `Bytes` cannot change, so a data digest always agrees with the data sent.
//!
//! # The link is kept full
//!
//! [`iscsi_tuner`] plans socket buffers, Nagle's algorithm, congestion control and the shape of transfers
//! from measurements of the link, within the limits of this host; [`Options::with_tuning`] controls it.
//! [`Session::plan`] returns the plan, each number with its reason. To find out what limits a running
//! session, and how to raise that limit, compare two [readings](Session::reading) of it.
//!
//! # Many connections as one disk
//!
//! The rate of one TCP connection is limited by its windows, and falls with every lost segment. A disk that
//! is opened by its URL ([`Initiator::disk`]) has as many sessions with its unit as the link needs (multipath):
//! the tuner's plan and the measured rate decide. [`Options::with_sessions`] sets or limits their number, and
//! [`Disk::status`] returns the number and the reason. A session joins only if it leads to the same unit (VPD
//! page 83 or 80). A session that is lost costs no request: its requests move to the others, and it is
//! reconnected. [`Options::with_connections`] asks for several connections in each session (MC/S, RFC 7143 §4.2) as
//! far as the target allows them.
//!
//! The order of requests is the same over one session and over many. Writes to the same block are executed
//! one after the other. A request that is made after a write has returned sees the data of that write. A
//! flush covers every write that had returned before the call. Concurrent requests have no order.
//!
//! # Many disks over one session
//!
//! A session leads to all units of its target, as with other initiators:
//! [`LogicalUnit::disk_without_reconnect`] makes a disk of each unit. A thousand such disks cost less
//! processor time than a thousand sessions, because responses for several disks arrive together. Also, some
//! targets accept few sessions. But when the session ends, all these disks end, and they do not reconnect.
//!
//! ```no_run
//! # async fn units() -> Result<(), iscsi_initiator::Error> {
//! let initiator = iscsi_initiator::Initiator::new("iqn.2026-01.org.example:host")?;
//! let session = initiator.connect("iscsi://192.0.2.1/iqn.2026-01.org.example:disks").await?;
//! let mut disks = Vec::new();
//! for lun in session.report_luns().await? {
//!     disks.push(session.logical_unit(lun).disk_without_reconnect().await?);
//! }
//! # Ok(()) }
//! ```
//!
//! # Memory and concurrency are limited
//!
//! A session, or a disk with all its sessions, has at most [`Options::with_max_requests`] requests with
//! [`Options::with_max_bytes_in_flight`] bytes in flight; further requests wait before they allocate. The disks of
//! one [`Session`] share these limits, so a unit that is busy for long can delay the others. Each disk of
//! [`Initiator::disk`] has separate limits. A further session of a disk also has separate limits for requests
//! made directly to it, and while it is being opened. [`Disk::queue_depth`] returns how many concurrent requests
//! keep the link busy.
//!
//! # Rates are shared by class
//!
//! A [`Shaper`] controls how much disks read and write, and when: by limits, guarantees, priorities, and
//! borrowing. [`Options::with_class`] is the class of a disk. [`shaping`] has the settings, which may change at any
//! time.
//!
//! # Statistics and logs
//!
//! [`Disk::stats`] is a snapshot of the requests of callers, with a histogram of their times, and of the
//! commands of each session; no count decreases when a session is lost. [`write_metrics`] writes it as text
//! for Prometheus and other systems that collect metrics, and the feature `serde` makes it `Serialize`. Log
//! events of `tracing` are in spans with target, LUN and ISID. A session that is reconnected keeps its ISID;
//! [`SessionKey`] distinguishes it from the one before.
//!
//! # What dropping does
//!
//! | dropped | what happens |
//! |---|---|
//! | the future of a command that is not sent yet | the command is discarded |
//! | the future of a command in flight | it is aborted in the background (ABORT TASK); the session keeps its buffers until the target has finished with them |
//! | the future of a write of a [`Disk`] | the same as for a command; in addition, a later write to the same blocks waits until the target has finished |
//! | the future of a command in flight, while a volatile cache holds writes | an aborted command may have received the report of a reset: unless another session shows that the earlier writes are not lost, the flush returns [`UnflushedWritesLost`](ErrorKind::UnflushedWritesLost). To stop without that, wait for the commands in flight, and [close](TrafficClass::close) the class of the commands that wait for their rate |
//! | the future of [`Initiator::connect`] | the login is cancelled |
//! | the last handle of a session | it logs out in the background |
//! | the last handle of a [`Disk`] | its sessions log out in the background, each when the target has finished with the writes sent over it; a lost session is reconnected for that. Only [`Disk::logout`] reports whether this succeeded |
//!
//! # What is retried
//!
//! | end of the command | retry |
//! |---|---|
//! | UNIT ATTENTION: the unit reports an event, and did not execute the command | immediately, up to 8 times |
//! | UNIT ATTENTION: NOT READY TO READY CHANGE of a unit with a removable medium (RMB), which may now hold another one | never, and nothing more is sent to the unit |
//! | BUSY, TASK SET FULL | after a pause |
//! | TASK ABORTED: another initiator has reset the unit, or aborted what is in flight there | by a disk, after a pause |
//! | NOT READY that passes by itself: becoming ready, asymmetric access state transition, an operation in progress that keeps the data (not format or sanitize) | after a pause |
//! | NOT READY: the port is in standby, or unavailable; if the unit reports port groups, also offline, or changing its state | by a disk, over another port immediately (failover); if no port serves the unit, after a pause, provided that the unit reports port groups or the URL has several portals |
//! | ABORTED COMMAND: the unit or the link gave up the command | after a pause |
//! | INVALID COMMAND OPERATION CODE for READ, WRITE, SYNCHRONIZE CACHE or WRITE SAME of 16 bytes | immediately, in 10 bytes, as are all later ones |
//! | a deferred error: an earlier command, whose status was GOOD, has failed since | never |
//! | RECOVERED ERROR: the unit succeeded with some effort | never: it counts as success |
//! | RESERVATION CONFLICT, any other status, any other sense | never |
//! | no status: the data arrived damaged, by its digest, and the target has given up or refused the command | by a disk, after a pause |
//! | no status: the command timed out, and the target has given it up | by a disk, after a pause |
//! | no status: the session ended or lost the connection | by a disk, over the next session |
//!
//! Pauses begin at 10 ms and double up to one second. The methods of [`Session`] and [`LogicalUnit`] give up
//! after about five seconds of pauses. While a port changes its state, they give up after the time that the
//! unit reports, or after a minute if it reports none. A [`Disk`] retries for as long as
//! [`Options::with_retry_timeout`] allows (after ABORTED COMMAND and damaged data: five seconds), over
//! another session if there is one. Meanwhile [`Disk::status`] reports what the disk waits for.
//! [`Advanced::with_retry_pauses`] changes the pauses. Only commands that may be executed twice without harm
//! are retried: commands that read, and commands that write to an address.
//! A lost connection ends every request of its session with an error that says whether the command may have
//! been executed. To continue, connect again, and repeat the commands that may be repeated; a disk that was
//! opened by its URL does this by itself. A command that ends its session each time is detected, and fails
//! after a few times with [`Protocol`](ErrorKind::Protocol). A session of several connections
//! ([`Options::with_connections`]) survives the loss of one connection. Only the requests that were sent over
//! that connection end with an error, after the target has given them up.
#![forbid(unsafe_code)]

pub mod blocking;
mod boxed;
mod class_waits;
mod completion;
mod driver;
mod error;
mod events;
mod handles;
mod multipath;
mod name;
mod options;
mod published;
mod runtime;
mod scheduler;
mod session;
mod shaper;
#[cfg(test)]
mod simulated;
mod state;
mod traffic_class;
pub mod transport;
mod unit;
pub mod url;

pub use driver::connection_count::Connections;
pub use driver::measure::reading::Reading;
#[cfg(feature = "samples")]
#[doc(hidden)]
pub use error::samples;
pub use error::{Advice, Error, ErrorKind, Fault};
pub use events::disk_event::DiskEvent;
pub use events::disk_events::DiskEvents;
pub use events::waiting::{WaitCause, Waiting};
pub use handles::disk::Disk;
pub use handles::disk::reservation::Preempt;
pub use handles::disk::stream::DiskStream;
pub use handles::initiator::Initiator;
pub use multipath::disk_status::{DiskStatus, SessionsReason};
pub use multipath::paths::status::{PathState, PathStatus};
pub use multipath::stats::exposition::{MetricsFormat, write_metrics};
pub use multipath::stats::samples::{Sample, SampleKind};
pub use multipath::stats::{DiskStats, SessionStats};
pub use name::default_name;
pub use options::Options;
pub use options::advanced::Advanced;
pub use options::back_off::BackOff;
pub use options::hedge::HedgeOptions;
pub use options::redirects::Redirects;
pub use options::retry_timeout::OnRetryTimeout;
pub use options::sessions::Sessions;
pub use options::socket::SocketOptions;
pub use session::Session;
pub use session::discovered_target::DiscoveredTarget;
pub use session::path_check::PathCheck;
pub use shaper::Shaper;
pub use state::counters::{KindStats, RequestStats};
pub use state::latency::Latency;
pub use state::notices::Notices;
pub use state::session_key::SessionKey;
pub use traffic_class::TrafficClass;
pub use unit::logical_unit::LogicalUnit;
pub use unit::port_groups::TargetPort;
pub use url::{TlsOptions, Url, UrlError};

pub use bytes;
pub use iscsi_block_device as device;
#[doc(inline)]
pub use iscsi_multipath::{Capacity, Profile};
pub use iscsi_pdu::{IscsiName, TargetAddress, TaskFunction};
pub use iscsi_session::{
    Chap, Command, Completion, DigestOffer, Negotiated, Notice, Offer, Payload, Secret,
    TargetCredentials, Timeouts,
};
pub use iscsi_tuner::{Policy, Tuning};

/// SCSI types that most programs use: units, statuses and reservations. The data of commands is in
/// `iscsi_pdu::scsi`.
pub mod scsi {
    pub use iscsi_pdu::scsi::reservation::{ReservationKey, ReservationType};
    pub use iscsi_pdu::scsi::{Cdb, Lun, Sense, SenseKey, Status};
}

/// Limits the rate of requests: classes of requests that share a rate; see [`Shaper`].
pub mod shaping {
    pub use crate::scheduler::{Charge, Granting, Scheduler};
    pub use iscsi_shaper::{Class, ClassId, RateLimit};
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_go_to_any_task() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        fn sent<T: Send + 'static>() {}
        shared::<Initiator>();
        shared::<Session>();
        shared::<LogicalUnit>();
        shared::<Disk>();
        sent::<DiskStream>();
    }
}
