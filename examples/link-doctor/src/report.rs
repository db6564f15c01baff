//! The report of an examination.

mod json;
mod text;

use std::time::Duration;

use iscsi_tuner::{Finding, Limiter, Rtt};

use crate::agreed::Agreed;
use crate::error::Error;
use crate::facts::LinkFacts;
use crate::path::Path;
use crate::read_test::ReadTest;
use crate::table::Line;
use crate::unit::Unit;
use crate::verdict::Reads;
use crate::writes::Writes;

/// The report of an examination. `Display` writes it as readable text.
#[derive(Debug)]
pub struct Report {
    /// The names of initiator and target, and the portal.
    pub who: Who,
    /// The parameters agreed at login.
    pub agreed: Agreed,
    /// The unit, if it was found.
    pub unit: Option<Unit>,
    /// Whether the URL names a unit.
    pub is_unit_named: bool,
    /// The round trip as the kernel measured it before the first read.
    pub tcp: Option<Rtt>,
    /// Round trips of iSCSI pings while nothing else was in flight.
    pub pings: Vec<Duration>,
    /// The facts about the link.
    pub facts: LinkFacts,
    /// Whether packets of full length arrive.
    pub path: Path,
    /// The read test, if there was one.
    pub read: Option<ReadTest>,
    /// The measurements of the reads for the verdict; `None` if nothing was read.
    pub reads: Option<Reads>,
    /// The rates that writes could reach.
    pub writes: Writes,
    /// The error if the examination is not complete; `None` if it is complete.
    pub end: Option<Error>,
}

/// The names of initiator and target, and the portal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Who {
    /// Name of the target.
    pub target: String,
    /// The target's readable name (TargetAlias).
    pub alias: Option<String>,
    /// The portal of the session, as a URL.
    pub portal: String,
    /// The portal that the URL names, if it has redirected the login to another portal.
    pub redirected_from: Option<String>,
    /// Name of the initiator.
    pub initiator: String,
}

impl Report {
    /// Returns the round trips of the pings, summarised.
    #[must_use]
    pub fn ping(&self) -> Option<Rtt> {
        Rtt::of(self.pings.iter().copied())
    }

    /// Returns the exit status of a complete report: 3 if packets of full length do not arrive, otherwise 0.
    #[must_use]
    pub fn status(&self) -> u8 {
        if self.path.limit().is_some() { 3 } else { 0 }
    }

    /// Returns what limited the reads, and the advice to raise that limit.
    #[must_use]
    pub fn verdict(&self) -> Option<(String, Option<String>)> {
        Some(self.reads?.explain(&self.facts.plan.link))
    }
}

/// Notes on some limiters for the reads of this program. They replace the tuner's notes, which are for any
/// work.
const OF_READS: [(Limiter, &str); 3] = [
    (Limiter::Target, "it had the commands, and their data were not all here"),
    (Limiter::QueueDepth, "everything in flight was on its way"),
    (Limiter::Destination, "this program had not asked for more yet"),
];

/// Returns what the session has waited for, as lines of text.
fn waits(test: &ReadTest) -> Vec<Line> {
    let line = |finding: &Finding| {
        let share = format!("{:.0} %", finding.share * 100.0);
        Line::new(finding.limiter.name(), share, note(finding))
    };
    test.diagnosis().findings.iter().map(line).collect()
}

fn note(finding: &Finding) -> String {
    let own = OF_READS.into_iter().find(|(limiter, _)| *limiter == finding.limiter);
    match (own, &finding.remedy) {
        (Some((_, text)), _) => text.to_owned(),
        (None, Some(remedy)) => format!("{}; {remedy}", finding.evidence),
        (None, None) => finding.evidence.clone(),
    }
}
