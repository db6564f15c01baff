//! Defines the statistics of a disk and its sessions.

pub(crate) mod exposition;
pub(crate) mod samples;

use std::fmt;
use std::time::Duration;

use iscsi_pdu::scsi::Lun;
use iscsi_tuner::Size;

use crate::multipath::paths::Paths;
use crate::state::counters::{KindStats, RequestStats};
use crate::state::session_key::SessionKey;
use crate::url::portal_name;

/// Statistics of a disk since it was opened: a snapshot.
///
/// To get a rate, compare two snapshots with [`since`](Self::since). [`write_metrics`](crate::write_metrics)
/// writes the statistics for a system that collects metrics. [`Display`](fmt::Display) writes readable text.
/// The feature `serde` makes the type `Serialize`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DiskStats {
    /// Name of the target.
    pub target: String,
    /// LUN of the unit.
    #[cfg_attr(feature = "serde", serde(serialize_with = "serialize::lun"))]
    pub lun: Lun,
    /// Capacity of the unit at the time of the snapshot, bytes.
    pub capacity: u64,
    /// Requests as callers see them. A request that is retried, or sent over two sessions, counts once. Its
    /// time is how long the caller waits, including the wait for memory and for a session.
    pub requests: RequestStats,
    /// Number of commands that were retried because the unit did not take them.
    pub retries: u64,
    /// Number of hedged requests: requests that were late on one session and were sent over another one as
    /// well.
    pub duplicates: u64,
    /// Number of sessions that were lost.
    pub sessions_lost: u64,
    /// Number of reconnects: lost sessions that were opened again.
    pub sessions_reopened: u64,
    /// Number of requests that waited because the limit of requests or bytes in flight of
    /// [`Options`](crate::Options) was reached.
    pub budget_waits: u64,
    /// Total time of the waits that `budget_waits` counts, without the waits that still last.
    #[cfg_attr(feature = "serde", serde(serialize_with = "serialize::seconds"))]
    pub budget_wait_time: Duration,
    /// Sessions that exist now, the first one first.
    pub sessions: Vec<SessionStats>,
    /// Commands of sessions that were lost or closed.
    pub closed_sessions: RequestStats,
}

/// Statistics of one session of a disk since it was opened or reconnected.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SessionStats {
    /// Key of the session.
    pub key: SessionKey,
    /// Portal that the session is connected to.
    pub portal: String,
    /// Round-trip time of the leading connection, measured by TCP; `None` until it was measured.
    #[cfg_attr(feature = "serde", serde(serialize_with = "serialize::some_seconds"))]
    pub round_trip: Option<Duration>,
    /// Commands of this disk. Each attempt counts, and its time is how long this session had the command.
    pub commands: RequestStats,
    /// Number of commands that were retried over this session.
    pub retries: u64,
}

impl DiskStats {
    /// Returns the commands of all sessions, closed ones included: the sum of
    /// [`sessions`](Self::sessions) and [`closed_sessions`](Self::closed_sessions).
    #[must_use]
    pub fn commands(&self) -> RequestStats {
        let mut sum = self.closed_sessions.clone();
        self.sessions.iter().for_each(|session| sum += &session.commands);
        sum
    }

    /// Returns the counts since an earlier snapshot of the same disk. The list of sessions and the requests
    /// in flight are those of the later snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let sessions = self.sessions.iter().map(|session| {
            let before = earlier.sessions.iter().find(|before| before.key == session.key);
            before.map_or_else(|| session.clone(), |before| session.since(before))
        });
        // If a session has ended since the earlier snapshot, its earlier counts are part of the later
        // snapshot's closed sessions.
        let is_there = |key| self.sessions.iter().any(|session| session.key == key);
        let gone = earlier.sessions.iter().filter(|session| !is_there(session.key));
        let mut closed_before = earlier.closed_sessions.clone();
        gone.for_each(|session| closed_before += &session.commands);
        Self {
            target: self.target.clone(),
            lun: self.lun,
            capacity: self.capacity,
            requests: self.requests.since(&earlier.requests),
            retries: self.retries.saturating_sub(earlier.retries),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            sessions_lost: self.sessions_lost.saturating_sub(earlier.sessions_lost),
            sessions_reopened: self.sessions_reopened.saturating_sub(earlier.sessions_reopened),
            budget_waits: self.budget_waits.saturating_sub(earlier.budget_waits),
            budget_wait_time: self.budget_wait_time.saturating_sub(earlier.budget_wait_time),
            sessions: sessions.collect(),
            closed_sessions: self.closed_sessions.since(&closed_before),
        }
    }
}

impl SessionStats {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            key: self.key,
            portal: self.portal.clone(),
            round_trip: self.round_trip,
            commands: self.commands.since(&earlier.commands),
            retries: self.retries.saturating_sub(earlier.retries),
        }
    }
}

impl DiskStats {
    /// Returns the statistics of all requests over these paths. `sessions_reopened` is the number of
    /// reconnects so far. The caller adds the names of the target and the unit.
    pub(crate) fn of(all: &Paths, sessions_reopened: u64) -> Self {
        let (open, (each, closed_sessions), sessions_lost, retries) = {
            let paths = &mut all.lock().paths;
            let counted = paths.snapshots();
            (paths.open().to_vec(), counted, paths.losses(), paths.retries())
        };
        let sessions = open.iter().zip(each).map(|((_, path), commands)| {
            let session = path.unit.session();
            let link = session.of_plan(|plan| plan.link);
            SessionStats {
                key: session.key(),
                portal: session.portal().map(portal_name).unwrap_or_default(),
                round_trip: link.and_then(|link| link.rtt.map(|_| link.round_trip())),
                commands: commands.into_stats(),
                retries: session.retries(),
            }
        });
        let (budget_waits, budget_wait_time) = all.budget().waits();
        Self {
            requests: all.counters().stats(),
            retries,
            duplicates: all.hedged(),
            sessions_lost,
            sessions_reopened,
            budget_waits,
            budget_wait_time,
            sessions: sessions.collect(),
            closed_sessions: closed_sessions.into_stats(),
            ..Self::default()
        }
    }
}

impl fmt::Display for DiskStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.target, self.lun, self.requests)?;
        let Self { retries, duplicates, sessions_lost, sessions_reopened, budget_waits, .. } = self;
        for (count, noun, what) in [
            (*retries, "command", "sent again"),
            (*duplicates, "request", "sent over two sessions"),
            (*sessions_lost, "session", "lost"),
            (*sessions_reopened, "session", "reconnected"),
        ] {
            if count > 0 {
                write!(f, "\n  {} {what}", Count(count, noun))?;
            }
        }
        if *budget_waits > 0 {
            let time = self.budget_wait_time;
            let requests = Count(*budget_waits, "request");
            write!(f, "\n  {requests} waited for memory, {time:.1?} in all")?;
        }
        self.sessions.iter().try_for_each(|session| write!(f, "\n  {session}"))
    }
}

impl fmt::Display for SessionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, portal, commands, retries, .. } = self;
        let count = Count(commands.requests(), "command");
        let bytes = Size(commands.reads.bytes + commands.writes.bytes);
        write!(f, "session {key} with {portal}: {count}, {bytes}")?;
        if commands.errors() > 0 {
            write!(f, ", {}", Count(commands.errors(), "error"))?;
        }
        if *retries > 0 {
            write!(f, ", {retries} sent again")?;
        }
        Ok(())
    }
}

/// Writes an indented line for each kind that has requests.
impl fmt::Display for RequestStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, kind) in self.kinds() {
            if kind.requests + kind.errors > 0 {
                write!(f, "\n  {name}: {kind}")?;
            }
        }
        if self.requests_in_flight > 0 {
            let requests = Count(self.requests_in_flight, "request");
            write!(f, "\n  in flight: {requests}, {}", Size(self.bytes_in_flight))?;
        }
        Ok(())
    }
}

impl fmt::Display for KindStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, bytes, errors, latency } = self;
        Count(*requests, "request").fmt(f)?;
        if *bytes > 0 {
            write!(f, ", {}", Size(*bytes))?;
        }
        if *errors > 0 {
            write!(f, ", {}", Count(*errors, "error"))?;
        }
        if *requests == 0 {
            return Ok(());
        }
        let (median, most) = (latency.quantile(0.5), latency.quantile(0.99));
        write!(
            f,
            "; half within {median:.1?}, 99 % within {most:.1?}, all within {:.1?}",
            latency.max()
        )
    }
}

/// Formats a number with its noun.
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(feature = "serde")]
mod serialize {
    use std::time::Duration;

    use iscsi_pdu::scsi::Lun;
    use serde::{Serialize, Serializer};

    pub(super) fn lun<S: Serializer>(lun: &Lun, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(lun)
    }

    pub(super) fn some_seconds<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs_f64()).serialize(serializer)
    }

    pub(super) fn seconds<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_there_was_and_no_more() {
        let target = "iqn.2026-01.org.example:disk".to_owned();
        let mut stats = DiskStats { target, ..DiskStats::default() };
        assert_eq!(stats.to_string(), "iqn.2026-01.org.example:disk/0:");
        let reads = &mut stats.requests.reads;
        (reads.requests, reads.bytes) = (1, 3 << 19);
        reads.latency.record(Duration::from_millis(100));
        stats.requests.flushes.errors = 2;
        (stats.retries, stats.sessions_lost) = (1, 2);
        let portal = "192.0.2.1".to_owned();
        stats.sessions.push(SessionStats { portal, ..SessionStats::default() });
        let lines = [
            "iqn.2026-01.org.example:disk/0:",
            "  read: 1 request, 1.5 MiB; half within 100.4ms, 99 % within 100.4ms, all within 100.4ms",
            "  flush: 0 requests, 2 errors",
            "  1 command sent again",
            "  2 sessions lost",
            "  session 000000000000 with 192.0.2.1: 0 commands, 0 bytes",
        ];
        assert_eq!(stats.to_string().lines().collect::<Vec<_>>(), lines);
    }

    /// The counts of a session before the earlier snapshot are not counted again when the session has ended
    /// since then.
    #[test]
    fn a_difference_is_right_also_when_sessions_have_come_and_gone() {
        let key = |reopened| SessionKey { reopened, ..SessionKey::default() };
        let commands = |errors| {
            let mut commands = RequestStats::default();
            commands.reads.errors = errors;
            commands
        };
        let session = |reopened, errors| SessionStats {
            key: key(reopened),
            commands: commands(errors),
            ..SessionStats::default()
        };
        let stats = |sessions, closed| DiskStats {
            sessions,
            closed_sessions: commands(closed),
            ..DiskStats::default()
        };
        let (before, after) = (stats(vec![session(0, 5)], 1), stats(vec![session(1, 3)], 8));
        let difference = after.since(&before);
        assert_eq!(difference.sessions, [session(1, 3)]);
        assert_eq!(difference.closed_sessions.errors(), 2);
        assert_eq!(difference.commands().errors(), 5);
    }
}
