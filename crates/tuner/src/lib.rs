//! A plan for TCP and for the transfers above it, from what is measured on a link.
//!
//! | from | comes |
//! |---|---|
//! | [`TcpInfo`], [`Rtt`]: reports of the kernel, and pings | [`Measurement`] |
//! | the wishes of the user | [`Tuning`] |
//! | the limits of this host | [`Limits`] |
//! | all three, by [`plan`], which is pure | [`Plan`], each number with its reason |
//! | the plan on a socket, by [`Plan::apply`] | [`Granted`]: the settings that the kernel granted |
//! | samples of its rate and round-trip time | [`LinkEstimator`], and from it the limit of data in flight: [`inflight_limit`], [`WriteLimit`] |
//! | what has arrived | [`ReadLimit`]: how much may be asked for |
//! | what was sent again, and whether a queue stood before the link | [`LossDetector`], [`RecentLoss`] |
//! | readings of a connection that stands still, and pings over connections with segments of several lengths | [`StallWatch`], [`PathTrial`]: whether the path swallows long packets, and the [`SegmentLimit`] that helps |
//! | two readings of a running connection | [`Diagnosis`]: what holds it back, and what would lift that |
//! | how many answers come, and how large they are | [`Coalescing`]: how many of them to wait for |
//! | the total of several, while they run | [`SessionCount`]: whether there should be more of them, or fewer |
//!
//! What asks the kernel, and what sets options of a socket, is there on Linux only (`TcpInfo::read`, `Limits::read`,
//! `Interface::with_address`, `Plan::prepare`, `Plan::apply`); everything else compiles for any system.
//!
//! Nothing here knows a protocol above TCP: transfers are commands that move bytes, some of them
//! unasked, the rest when the peer asks for it.

mod coalescing;
mod diagnosis;
mod drain;
mod granted;
mod inflight;
mod interface;
mod limits;
mod link;
#[cfg(target_os = "linux")]
mod linux;
mod path_mtu;
mod plan;
mod policy;
mod read_limit;
mod session_count;
mod size;
mod table;
mod transfers;
mod tuning;

pub use coalescing::Coalescing;
pub use diagnosis::{Activity, Diagnosis, Finding, Limiter, Observation, OwnLimits};
pub use drain::DrainLimit;
pub use granted::{Granted, Refusal};
pub use inflight::{
    STARTUP_GAIN, WriteLimit, inflight_limit, wait_for_answers, wait_for_write_data,
};
pub use interface::{Interface, Offload};
pub use iscsi_rate::{Rate, RateError};
pub use limits::{Autotuning, Limits};
pub use link::estimator::{EstimatorWindow, LinkEstimator, RateSample};
pub use link::loss::{LossDetector, RecentLoss};
pub use link::model::{Basis, LinkModel, Measurement};
pub use link::rtt::Rtt;
pub use link::tcp_info::TcpInfo;
#[cfg(target_os = "linux")]
pub use linux::apply::{limit_pacing, send_with_more_to_come, set_receive_low_water};
pub use path_mtu::{PathTrial, SegmentLimit, Stall, StallWatch, TrialVerdict, Way};
pub use plan::{Buffer, Choice, Plan, TransferOffer};
pub use policy::plan;
pub use read_limit::ReadLimit;
pub use session_count::{SessionCount, SessionsReading, Step};
pub use size::{Size, SizeError};
pub use table::Row;
pub use transfers::TransferTerms;
pub use tuning::{Policy, Sends, Tuning, UnknownPolicy};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
