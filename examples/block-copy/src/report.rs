//! The report of a copy.

pub(crate) mod observation;
pub(crate) mod own_limits;
pub mod passes;
pub mod reach;

use std::fmt;
use std::time::Duration;

use iscsi_copy::{Progress, RangeSet};
use iscsi_tuner::{Diagnosis, Finding, Limiter};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};

use self::passes::PassesReport;
use self::reach::Reach;
use crate::plan::CopyPlan;
use crate::progress::status::mbit_per_s;
use crate::side::Side;
use iscsi_tuner::Size;

/// The report of a copy. For a failed copy, it covers the time up to the failure.
#[derive(Clone, Debug)]
pub struct Report {
    /// The progress of the copy.
    pub progress: Progress,
    /// The ranges that the medium of the source could not read, as offsets in the copied bytes.
    pub unreadable: RangeSet,
    /// Time from the first read to the end of the flush, or to the failure.
    pub time: Duration,
    /// The sessions of the units, and what limited the copy.
    pub links: Links,
    /// Whether digests were used to skip blocks that the destination has already.
    pub is_delta: bool,
    /// The report of each pass over a source in use.
    pub passes: Option<PassesReport>,
    /// Whether all bytes were read back and are equal.
    pub verified: bool,
    /// Whether the length of the source file, or its time of last change, differs from the beginning. For a
    /// source in use, the comparison is with the beginning of the last pass.
    pub source_changed: bool,
    /// Processor time of the whole process during the copy and its verification.
    pub cpu: Duration,
    /// The rate of each full second of the copy, Mbit/s.
    pub samples: Vec<f64>,
    /// Warnings about source and destination that are probably mistakes of the user.
    pub notes: Vec<String>,
    /// Description of the data on the destination before the copy: a partition table, file systems and the
    /// like. `None` if nothing was recognised, or if it was not checked because an earlier run has written it.
    pub destination_held: Option<String>,
}

/// The sessions of a copy's units, and what limited them.
#[derive(Clone, Debug)]
pub struct Links {
    /// The smallest round-trip time before the copy, to the destination's unit, or else to the source's. `None`
    /// without a unit.
    pub round_trip: Option<Duration>,
    /// The sessions of each unit at the end of the copy. Units of the destination come first.
    pub reaches: Vec<Reach>,
    /// Concurrent reads or writes, as planned at the end of the copy.
    pub queue_depth: usize,
    /// The chosen numbers and their reasons.
    pub plan: CopyPlan,
    /// The plan with source and destination, as JSON.
    pub plan_json: Value,
    /// The limit of a connection, for each side of the copy.
    pub diagnoses: Vec<(Side, Diagnosis)>,
    /// Number of commands that were sent again.
    pub retries: u64,
}

impl Report {
    /// Returns the mean rate of the copy including its flush, Mbit/s (10^6 bits). Bytes of an earlier run do
    /// not count.
    pub fn goodput(&self) -> f64 {
        mbit_per_s(self.progress.done.saturating_sub(self.progress.resumed), self.time)
    }

    /// Returns the bytes that were sent to the destination as data.
    pub const fn sent(&self) -> u64 {
        self.progress.written + self.progress.zeros_written
    }

    /// Returns the bytes that the destination zeroed by a command without data.
    pub const fn zeroed(&self) -> u64 {
        self.progress.zeroed - self.progress.zeros_written
    }

    /// Returns the number of sessions that were lost and reconnected.
    pub fn reconnects(&self) -> u64 {
        self.links.reaches.iter().map(|reach| reach.reconnects).sum()
    }

    /// Removes the notes on trouble with sessions, for output after the log has shown them:
    /// [`log::has_warnings`](crate::log::has_warnings).
    #[must_use]
    pub fn without_notes(mut self) -> Self {
        self.links.reaches = self.links.reaches.into_iter().map(Reach::without_notes).collect();
        self
    }

    /// Returns the report of a successful copy as JSON. For a failed copy, see
    /// [`Failure::to_json`](crate::Failure::to_json).
    pub fn to_json(&self) -> Value {
        let reach = self.links.reaches.first();
        let mut object = json!({
            "bytes": self.progress.done,
            "bytes_sent": self.sent(),
            "bytes_zeroed": self.zeroed(),
            "bytes_skipped": self.progress.skipped,
            "bytes_again": self.progress.lost,
            "bytes_resumed": self.progress.resumed,
            "bytes_flushed": self.progress.flushed,
            "unreadable": self.unreadable.iter().map(|range| {
                json!({ "offset": range.start, "length": range.end - range.start })
            }).collect::<Vec<_>>(),
            "seconds": self.time.as_secs_f64(),
            "goodput_mbit_per_s": self.goodput(),
            "rtt_ms": self.links.round_trip.map(|trip| trip.as_secs_f64() * 1e3),
            "sessions": reach.map_or(0, |reach| reach.sessions),
            "sessions_peak": reach.map_or(0, |reach| reach.peak),
            "sessions_reason": reach.map(|reach| reach.reason.as_str()),
            "notes": self.links.reaches.iter().flat_map(Reach::notes).chain(self.notes.clone()).collect::<Vec<_>>(),
            "destination_held": self.destination_held,
            "portals": self.links.reaches.iter().map(Reach::portals_to_json).collect::<Vec<_>>(),
            "connections": reach.map_or(0, |reach| reach.connections.open),
            "queue_depth": self.links.queue_depth,
            "io_size_bytes": self.links.plan.io_size.value,
            "plan": self.links.plan_json,
            "diagnosis": self.links.diagnoses.iter().map(to_json).collect::<Vec<_>>(),
            "retries": self.links.retries,
            "reconnects": self.reconnects(),
            "verified": self.verified,
            "source_changed": self.source_changed,
            "cpu_seconds": self.cpu.as_secs_f64(),
            "samples_mbit_per_s": self.samples,
            "error": null,
            "kind": null,
        });
        if let (Some(passes), Value::Object(members)) = (&self.passes, &mut object) {
            members.insert("passes".to_owned(), passes.to_json());
        }
        object
    }
}

const CHANGED: &str = "\nwarning: the source was changed while it was copied, so the copy may be neither what it was \
    nor what it is; copy again when nothing changes it";

impl Report {
    /// Returns the report as readable text: one line, a second line with what limited the copy, and trouble.
    /// With `is_verbose` it also lists the sessions of each unit, and everything that held them back.
    pub fn text(&self, is_verbose: bool) -> String {
        if is_verbose { format!("{self:#}") } else { self.to_string() }
    }

    /// Returns what limited the copy most. A side that waited for requests of the other side is considered only
    /// if no side has another limit.
    fn limited_by(&self) -> Option<String> {
        let foremost = self.links.diagnoses.iter().filter_map(|(side, diagnosis)| {
            let finding = diagnosis.foremost()?;
            Some((*side, finding))
        });
        let starved = |finding: &Finding| finding.limiter == Limiter::Source;
        let (side, finding) = foremost.max_by(|(_, one), (_, other)| {
            let order = starved(other).cmp(&starved(one));
            order.then(one.share.total_cmp(&other.share))
        })?;
        let name = match (finding.limiter, side) {
            // This side was waiting for requests, so the other side was slower.
            (Limiter::Source, Side::Source) => Side::Destination.to_string(),
            (Limiter::Source, Side::Destination) => Side::Source.to_string(),
            (limiter, side) if self.links.diagnoses.len() > 1 => format!("{limiter} ({side})"),
            (limiter, _) => limiter.to_string(),
        };
        Some(format!("limited by: {name}, {:.0}% of the time", finding.share * 100.0))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { done, skipped, lost, resumed, .. } = self.progress;
        write!(f, "copied {}", Size(done))?;
        let rest = skipped + self.zeroed();
        if rest > 0 {
            let (sent, rest) = (Size(self.sent()), Size(rest));
            let what = if self.is_delta { "zero, or there already," } else { "of zeros" };
            write!(f, " ({sent} of data, {rest} {what} that needed no transfer)")?;
        }
        if resumed > 0 {
            write!(f, ", {} of it by an earlier run,", Size(resumed))?;
        }
        let seconds = self.time.as_secs_f64();
        write!(f, " in {seconds:.2} s, {:.1} Mbit/s, flushed", self.goodput())?;
        if lost > 0 {
            write!(f, ", {} written again", Size(lost))?;
        }
        // After each login a unit reports a unit attention, so some commands are always sent again. The user
        // cannot change that, so only the alternate form shows the number.
        if self.links.retries > 0 && f.alternate() {
            write!(f, ", {} sent again", counted(self.links.retries, "command", "commands"))?;
        }
        f.write_str(if self.verified { ", read back equal" } else { "" })?;
        if let Some(passes) = &self.passes {
            write!(f, ", in {}{passes}", counted(passes.ended.len() as u64, "pass", "passes"))?;
        }
        if self.source_changed {
            f.write_str(CHANGED)?;
        }
        if !f.alternate() {
            self.limited_by().map_or(Ok(()), |limit| write!(f, "\n{limit} (-v explains it)"))?;
            return self
                .links
                .reaches
                .iter()
                .flat_map(Reach::notes)
                .try_for_each(|note| write!(f, "\n{note}"));
        }
        self.links.reaches.iter().try_for_each(|reach| write!(f, "\n{reach}"))?;
        self.links.diagnoses.iter().try_for_each(|(side, diagnosis)| {
            write!(f, "\nwhat held the {side} back:\n{diagnosis}")
        })
    }
}

fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn to_json((side, diagnosis): &(Side, Diagnosis)) -> Value {
    let findings = diagnosis.findings.iter().map(|finding| {
        json!({
            "limiter": finding.limiter.name(),
            "share": finding.share,
            "evidence": finding.evidence,
            "remedy": finding.remedy,
        })
    });
    let remarks = diagnosis
        .remarks
        .iter()
        .map(|row| json!({ "name": row.name, "value": row.value, "reason": row.reason }));
    json!({
        "end": side.to_string(),
        "goodput_mbit_per_s": diagnosis.goodput.mbit_per_second(),
        "findings": findings.collect::<Vec<_>>(),
        "remarks": remarks.collect::<Vec<_>>(),
    })
}

/// Returns the processor time of this process so far, user and system; zero if the system does not report it.
pub(crate) fn cpu_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let total = |usage: &Usage| duration(usage.user_time()) + duration(usage.system_time());
    total(&usage)
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
    let micros = u64::try_from(time.tv_usec()).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
