//! Plans TCP settings, and the transfers above TCP, from measurements of a link.
//!
//! It is meant for programs that move data over long links, and want to know why a link is not full:
//!
//! ```
//! use std::time::Duration;
//!
//! use iscsi_tuner::{Limits, Measurement, Rate, Rtt, Tuning, plan};
//!
//! let mut link = Measurement::default();
//! link.rtt = Some(Rtt::first(Duration::from_millis(100)));
//! link.bandwidth = Some(Rate::GIGABIT);
//! // Each number of the plan has its reason.
//! let plan = plan(&link, &Limits::default(), &Tuning::default());
//! assert!(plan.connections.value >= 1 && !plan.connections.reason.is_empty());
//! println!("{plan}");
//! ```
//!
//! | input | result |
//! |---|---|
//! | [`TcpInfo`], [`Rtt`]: reports of the kernel, and pings | [`Measurement`] |
//! | the user's settings | [`Tuning`] |
//! | the limits of this host | [`Limits`] |
//! | all three, by [`plan`], which is pure | [`Plan`], each number with its reason |
//! | a plan applied to a socket, by [`Plan::apply`] | [`Granted`]: the settings that the kernel granted |
//! | samples of a link's rate and round-trip time | [`LinkEstimator`], and from it the limit of data in flight: [`inflight_limit`], [`WriteLimit`] |
//! | the bytes received | [`ReadLimit`]: how much read data may be requested |
//! | retransmissions, and whether a queue stood before the link | [`LossDetector`], [`RecentLoss`] |
//! | readings of a stalled connection, and pings over connections with segments of several lengths | [`StallWatch`], [`PathTrial`]: whether the path drops long packets, and the [`SegmentLimit`] that helps |
//! | two readings of a running connection | [`Diagnosis`]: what holds it back, and what would lift that |
//! | the number and the length of answers | [`Coalescing`]: how many of them to wait for |
//! | the total rate of several sessions, while they run | [`SessionCount`]: whether there should be more or fewer sessions |
//!
//! The functions that ask the kernel or set socket options exist on Linux only (`TcpInfo::read`,
//! `Limits::read`, `Interface::with_address`, `Plan::prepare`, `Plan::apply`). Everything else compiles on
//! any system.
//!
//! This crate knows no protocol above TCP. A transfer is a command that moves bytes, some of them
//! unsolicited, the rest when the peer requests them.

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

/// Compiles the code examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
