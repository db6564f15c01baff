//! Finds what limits a running flow, and which setting would lift the limit.
//!
//! ```text
//! total time ──┬─ PDUs waited for the socket ──┬─ peer's window
//!              │  (divided by TCP_INFO)        ├─ send buffer
//!              │                               └─ congestion window: segments are lost, or the link is full
//!              ├─ write data waited for an R2T
//!              ├─ commands waited for the command window
//!              ├─ everything was sent, and answers were awaited: link, queue depth or target
//!              ├─ requests waited for a limit of the user: rate of the class, or amount in flight
//!              └─ nothing was in flight: the source of writes or the destination of reads was slow
//! ```
//!
//! The waits of the peer's kernel are not visible at this end. So reads are judged by comparing their rate
//! with what the queue and the receive window allow in a round trip.

mod flow;
mod limiter;
mod observation;
mod remedy;

use std::fmt;

use flow::ObservedFlow;
use remedy::remarks;

use crate::interface::Interface;
use crate::limits::Limits;
use crate::link::model::Measurement;
use crate::plan::Plan;
use crate::table::{self, Row};
use iscsi_rate::Rate;

pub use limiter::Limiter;
pub use observation::{Activity, Observation, OwnLimits};

/// A limiter that held a flow back, with evidence and remedy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The limiter that was found.
    pub limiter: Limiter,
    /// Share of the time for which the limiter held the flow back, 0 to 1.
    pub share: f64,
    /// The evidence, as a sentence.
    pub evidence: String,
    /// The setting that lifts the limit; `None` if there is none.
    pub remedy: Option<String>,
}

/// The limiters of a flow during an observation.
///
/// Its `Display` output is a table, with the limiter of the largest share in the first line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Payload bytes per second.
    pub goodput: Rate,
    /// The limiters, the one with the largest share of the time first. Shares below 2 % are left out.
    pub findings: Vec<Finding>,
    /// Further remarks: path MTU, offloads.
    pub remarks: Vec<Row>,
}

/// Smallest share of the time for which a limiter is listed.
const NOTABLE: f64 = 0.02;

impl Diagnosis {
    /// Creates the diagnosis of an observed connection under a plan.
    #[must_use]
    pub fn new(
        observation: &Observation,
        plan: &Plan,
        measurement: &Measurement,
        limits: &Limits,
        interface: Option<&Interface>,
    ) -> Self {
        let goodput = Rate::of(observation.bytes, observation.elapsed);
        let link = plan.link;
        let flow = ObservedFlow { observation, link, goodput, plan, limits, measurement };
        let mut findings: Vec<_> = flow
            .shares()
            .into_iter()
            .filter(|(_, share)| *share >= NOTABLE)
            .map(|(limiter, share)| {
                let (evidence, remedy) = flow.explain(limiter);
                Finding { limiter, share, evidence, remedy }
            })
            .collect();
        findings.sort_by(|one, other| other.share.total_cmp(&one.share));
        Self { goodput, findings, remarks: remarks(measurement, interface) }
    }

    /// Returns the finding with the largest share of the time; `None` if nothing was observed.
    #[must_use]
    pub fn foremost(&self) -> Option<&Finding> {
        self.findings.first()
    }

    /// Returns the diagnosis as table rows.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let findings = self.findings.iter().map(|finding| Row {
            name: finding.limiter.name(),
            value: format!("{:.0} %", finding.share * 100.0),
            reason: match &finding.remedy {
                Some(remedy) => format!("{}; {remedy}", finding.evidence),
                None => finding.evidence.clone(),
            },
        });
        findings.chain(self.remarks.iter().cloned()).collect()
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(f, &self.rows())
    }
}
