//! A userspace iSCSI initiator on tokio (RFC 7143): no kernel module, no daemon, no privileges.
//! For Linux only: it reads TCP_INFO and sets socket options of that kernel.
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
//! | handle | speaks |
//! |---|---|
//! | [`Initiator`] | URLs: [`disk`](Initiator::disk), [`connect`](Initiator::connect), [`discover`](Initiator::discover) |
//! | [`Session`] | iSCSI: what was negotiated, ping, task management, logout |
//! | [`LogicalUnit`] | SCSI: blocks, typed commands, any CDB |
//! | [`Disk`] | bytes: any offset and length, splitting, unaligned edges |
//! | [`DiskStream`] | [`AsyncRead`](tokio::io::AsyncRead), [`AsyncWrite`](tokio::io::AsyncWrite), [`AsyncSeek`](tokio::io::AsyncSeek) |
//!
//! Programs without async have the same in [`blocking`]; [`device`] is what a disk has in common with
//! other devices of bytes.
//!
//! All handles but the last are cheap to clone, `Send` and `Sync`, and usable from many tasks. A
//! task of its own runs each session; it never waits for a caller, never for one direction of a
//! socket while the other could move, and never for one connection while another could.
//!
//! # Data is not copied
//!
//! A write goes to the socket from the caller's own pages, lists of them included; a read lands in
//! the buffer that the caller gets. The exceptions: reads into an unaligned
//! [`read_into`](Disk::read_into) buffer, bytes that were read ahead of a header, and
//! [`DiskStream`]. Because `Bytes` cannot change while they are shared, a data digest never
//! disagrees with what was sent.
//!
//! # The link is kept full
//!
//! [`tuning`] plans socket buffers, Nagle's algorithm, congestion control and the shape of transfers
//! from what is measured of the link, within what this host permits; [`Options::tuning`] says what
//! it shall do. [`Session::plan`] is the plan, each number with its reason. Two
//! [readings](Session::reading) of a running session tell what held it back between them, and what
//! would lift that.
//!
//! # Many connections as one disk
//!
//! One TCP connection stops at its windows, and shrinks with every lost segment. A disk that is opened
//! by its URL ([`Initiator::disk`]) has as many sessions with its unit as the link needs, by the
//! tuner's plan and by what they bring; [`Options::sessions`] fixes or bounds their number,
//! [`Disk::spread`] tells it and why. A session joins only if it leads to the same unit (VPD page 83
//! or 80). One that is lost costs no request: the others take over what it had, and it is opened
//! anew. [`Options::connections`] asks for several connections in each session (MC/S, RFC 7143 §4.2)
//! as far as the target allows them.
//!
//! What holds for the order of requests is the same over one session and over many: writes to the
//! same block are carried out one after the other, a request that follows the end of a write sees its
//! data, and a flush covers every write that had ended when it was called. Requests under way at
//! the same time have no order.
//!
//! # Many disks over one session
//!
//! A session leads to all units of its target, as those of other initiators do: [`LogicalUnit::disk`] makes a disk of each. A
//! thousand of them cost less of the processor than as many sessions, since answers of several come together, and some targets
//! take few sessions. But the end of the session is that of all these disks, which nobody opens anew.
//!
//! ```no_run
//! # async fn units() -> Result<(), iscsi_initiator::Error> {
//! let initiator = iscsi_initiator::Initiator::new("iqn.2026-01.org.example:host")?;
//! let session = initiator.connect("iscsi://192.0.2.1/iqn.2026-01.org.example:disks").await?;
//! let mut disks = Vec::new();
//! for lun in session.report_luns().await? {
//!     disks.push(session.logical_unit(lun).disk().await?);
//! }
//! # Ok(()) }
//! ```
//!
//! # Memory is bounded
//!
//! A session, or a disk with all its sessions, has at most [`Options::max_requests`] requests with
//! [`Options::max_bytes_in_flight`] bytes under way; further ones wait before they allocate. The disks of
//! one [`Session`] share this room, so a unit that is busy for long can hold up the others: each disk of
//! [`Initiator::disk`] has room of its own. A further session of a disk has room of its own, too, for what
//! is asked of it directly and while it is being opened.
//!
//! # Rates are shared by class
//!
//! A [`Shaper`] rules how much disks read and write, and when: by limits, guarantees, priorities, and what
//! one borrows from another. [`Options::class`] is the class of a disk; [`shaping`] has the settings,
//! which may change at any time.
//!
//! # What is counted
//!
//! [`Disk::stats`] is a snapshot of what callers have asked for, with a histogram of how long it took,
//! and of what each session has carried; nothing in it gets less when a session is lost.
//! [`DiskStats::samples`] names it for a system that collects metrics; the feature `serde` makes it
//! `Serialize`. What is logged through `tracing` stands in spans with target, LUN and ISID. A session
//! that is opened anew keeps its ISID, and [`SessionKey`] tells it from the one before.
//!
//! # What dropping does
//!
//! | dropped | what happens |
//! |---|---|
//! | the future of a command that is not on the wire | the command disappears |
//! | the future of a command on the wire | it is aborted in the background (ABORT TASK); its buffers stay with the session until the target has finished with them |
//! | the future of a write of a [`Disk`] | the same; a later write to the same blocks waits for that |
//! | the future of [`Initiator::connect`] | the login is given up |
//! | the last handle of a session | it logs out in the background |
//! | the last handle of a [`Disk`] | its sessions log out in the background, each when the target has finished with what was written over it; one that is lost is opened anew for that. Only [`Disk::logout`] proves it |
//!
//! # What is tried again
//!
//! | end | tried again |
//! |---|---|
//! | UNIT ATTENTION: the unit has something to tell, and did not execute the command | at once, up to 8 times |
//! | UNIT ATTENTION: NOT READY TO READY CHANGE of a unit whose medium can be taken out (RMB), as another one may be there | never, nor is anything else sent to it |
//! | BUSY, TASK SET FULL | after a pause |
//! | TASK ABORTED: another initiator has reset the unit, or aborted what is under way there | by a disk, after a pause |
//! | NOT READY that passes by itself: becoming ready, asymmetric access state transition, an operation in progress that keeps the content (not format or sanitize) | after a pause |
//! | NOT READY: the port is in standby, or unavailable; of a unit that tells its port groups also offline, or changing its state | by a disk, over another port at once; where none serves the unit, but it tells its port groups or the URL has several portals, after a pause |
//! | ABORTED COMMAND: the unit or the link gave up on it | after a pause |
//! | INVALID COMMAND OPERATION CODE to READ, WRITE, SYNCHRONIZE CACHE or WRITE SAME of 16 bytes | at once, in 10 bytes, and all further ones as well |
//! | a deferred error: an earlier command failed after it had ended well | never |
//! | RECOVERED ERROR: the unit did what it was asked, with some effort | never: it counts as success |
//! | RESERVATION CONFLICT, any other status, any other sense | never |
//! | no status: data came damaged, by their digest, and the target has given the command up, or has refused it | by a disk, after a pause |
//! | no status: the command timed out, and the target has given it up | by a disk, after a pause |
//! | no status: the session ended or lost the connection | by a disk, over the next session |
//!
//! Pauses begin at 10 ms and double up to one second. They end after some five seconds in all for the
//! methods of [`Session`] and [`LogicalUnit`], but while a port changes its state after as long as the unit says, or a minute;
//! a [`Disk`] goes on for as long as [`Options::patience`]
//! says (after ABORTED COMMAND and damaged data five seconds), over another session where there is one, and
//! [`Disk::spread`] tells meanwhile what it waits for. [`Options::retry`] changes these numbers. This
//! holds for commands whose second execution changes nothing that the first did not: those that
//! read, and those that write to an address. [`LogicalUnit::execute`] sends its command once.
//!
//! A lost connection ends every request of its session once, with an error that says whether the
//! command may have been executed; connect again, and repeat what may be repeated. A disk that was
//! opened by its URL does so by itself. A command that ends its session each time is found out, and
//! given up after a few times with [`Error::EndsSessions`]. A session of several connections
//! ([`Options::connections`]) outlives the loss of one: only what had been sent over it ends so, once
//! the target has given it up.
#![forbid(unsafe_code)]

pub mod blocking;
mod boxed;
mod class_waits;
mod completion;
pub mod device;
mod driver;
mod error;
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
mod unit;
pub mod url;

pub use driver::connection_count::Connections;
pub use driver::measure::reading::Reading;
pub use error::{Advice, ConnectError, Error, ErrorKind, Fault, LoginFailure, SessionFailure};
pub use handles::disk::Disk;
pub use handles::disk::stream::DiskStream;
pub use handles::initiator::Initiator;
pub use multipath::samples::{Sample, SampleKind};
pub use multipath::spread::{Spread, Waiting};
pub use multipath::stats::{DiskStats, SessionStats};
pub use name::default_name;
pub use options::Options;
pub use options::lateness::LatenessOptions;
pub use options::redirects::Redirects;
pub use options::reopening::ReopeningOptions;
pub use options::retry::RetryOptions;
pub use options::sessions::Sessions;
pub use options::socket::SocketOptions;
pub use session::Session;
pub use session::path_check::PathCheck;
pub use shaper::Shaper;
pub use state::capacity::Capacity;
pub use state::counters::{KindStats, RequestStats};
pub use state::latency::Latency;
pub use state::notices::Notices;
pub use state::profile::Profile;
pub use state::session_key::SessionKey;
pub use state::unit_changes::{UnitChange, UnitChanges};
pub use traffic_class::TrafficClass;
pub use unit::logical_unit::LogicalUnit;
pub use unit::port_groups::TargetPort;
pub use url::{Url, UrlError};

pub use bytes;
pub use iscsi_pdu::keys::{TextError, printable};
pub use iscsi_pdu::{
    AsyncEvent, Cid, DecodeError, Digest, FunctionResponse, IscsiName, Isid, Itt, LoginStatus,
    NameError, RejectReason, Residual, ServiceResponse, StatSn, TargetAddress, TargetAddressError,
    TaskAttribute, TaskFunction,
};
pub use iscsi_session::{
    AuthenticationError, Chap, ChapAlgorithm, Command, Completion, DigestOffer, DiscoveredTarget,
    LoginError, LoginViolation, Negotiated, NegotiationFault, Notice, Offer, Payload,
    ProtocolError, ReadBuffer, Secret, SessionError, Stats, SubmitError, TargetCredentials,
    TaskError, Timeouts, Timer, TransportError, UnknownChapAlgorithm,
};

/// SCSI: units, commands, statuses, and the data of commands (SAM-5, SPC-4, SBC-3).
pub mod scsi {
    pub use iscsi_pdu::scsi::{
        AccessState, AdditionalSense, Cdb, DeviceType, FormatError, LbaExtent, LbaStatus, Lun,
        ModePage, ModePages, ModeParameters, ProvisioningStatus, ReadCapacity10, ReadCapacity16,
        ReportLuns, Sense, SenseKey, SenseKeySpecific, SetTargetPortGroups, StandardInquiry,
        StateChange, Status, SupportedStates, TargetPortGroup, TargetPortGroupSupport,
        TargetPortGroups, UnmapList, WriteSameFlags,
    };

    /// Persistent reservations: which initiators may use a unit (SPC-4 §5.13).
    pub mod reservation {
        pub use iscsi_pdu::scsi::reservation::{
            FullStatus, HeldReservation, InvalidReservationKey, PersistentReserveIn,
            PersistentReserveOut, RegisteredKeys, Registrant, Reservation, ReservationCapabilities,
            ReservationKey, ReservationType, TransportId,
        };
    }

    /// Vital product data: what a unit says of itself, page by page (SPC-4 §7.8).
    pub mod vpd {
        pub use iscsi_pdu::scsi::vpd::{
            Association, BlockDeviceCharacteristics, BlockLimits, CodeSet, Designator,
            DesignatorType, DeviceIdentification, LogicalBlockProvisioning, MediumRotationRate,
            ProvisioningType, SupportedPages, UnitSerialNumber,
        };
    }
}

/// What is measured of a link, what is planned for it, and what holds it back.
pub mod tuning {
    pub use iscsi_tuner::{
        Activity, Autotuning, Bandwidth, BandwidthError, Basis, Buffer, Choice, Diagnosis, Finding,
        Granted, Interface, Limiter, Limits, LinkModel, Measurement, Observation, Offload,
        OwnLimits, Plan, Policy, Refusal, Row, Rtt, SegmentLimit, Sends, Size, SizeError, TcpInfo,
        TransferOffer, TransferTerms, Tuning, UnknownPolicy, Way, plan,
    };
}

/// Classes of requests that share a rate: see [`Shaper`].
pub mod shaping {
    pub use crate::scheduler::{Charge, Granting, Scheduler};
    pub use iscsi_shaper::{Class, ClassError, ClassId, Rate, Statistics, TreeError, Volume};
}

/// What lets the initiator run over a network of the caller's own, in virtual time: see
/// [`Initiator::over`]. It may change at any time.
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::driver::io::{Network, Pending, Socket};
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
