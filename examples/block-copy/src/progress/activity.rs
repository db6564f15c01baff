//! Derives what a pass is doing at the moment, for the progress display.

use std::time::Duration;

use iscsi_copy::Progress;
use tokio::time::Instant;

use crate::end::awaited::Awaited;

/// A pause of at least this length is a stall if the source or the destination waits for its target.
const STALL: Duration = Duration::from_secs(2);
/// A pause of at least this length is shown even without a known reason. A long request over a slow link takes
/// seconds.
const SILENCE: Duration = Duration::from_secs(10);

/// Present activity of a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Activity {
    /// No byte has moved yet.
    Starting,
    /// Bytes move.
    Running,
    /// No byte has moved for a while.
    Stalled {
        /// Time since the last byte.
        time: Duration,
        /// The peer that the copy waits for, if known.
        awaited: Option<Awaited>,
    },
    /// A command on the control socket has paused the pass.
    Paused,
    /// All bytes are written. The flush has been running for this time.
    Flushing(Duration),
}

impl Activity {
    /// Returns the texts to show in place of rate and time left, the longest first. There are none while bytes
    /// move.
    pub(crate) fn texts(&self) -> Vec<String> {
        match self {
            Self::Running => Vec::new(),
            Self::Starting => vec!["starting".to_owned()],
            Self::Paused => vec!["paused".to_owned()],
            Self::Flushing(time) => vec![format!("flushing {} s", time.as_secs())],
            Self::Stalled { time, awaited: None } => {
                vec![format!("no progress for {} s", time.as_secs())]
            }
            Self::Stalled { time, awaited: Some(awaited) } => {
                let stalled = format!("stalled {} s", time.as_secs());
                let waiting = format!("{stalled}, waiting for {awaited}");
                let limit =
                    awaited.limit.map(|limit| format!("{waiting} (up to {} s)", limit.as_secs()));
                limit.into_iter().chain([waiting, stalled]).collect()
            }
        }
    }
}

/// Follows the progress of a pass, and derives its activity.
#[derive(Debug)]
pub(crate) struct Watch {
    last: Option<Progress>,
    since: Instant,
    has_moved: bool,
}

impl Watch {
    /// Creates a watch of a pass that begins at the current time.
    pub(crate) fn new() -> Self {
        Self { last: None, since: Instant::now(), has_moved: false }
    }

    /// Returns the activity of a pass with the progress `now`. `awaited` is called only if no byte moves.
    pub(crate) fn update(
        &mut self,
        now: &Progress,
        is_paused: bool,
        awaited: impl FnOnce() -> Option<Awaited>,
    ) -> Activity {
        if is_paused || self.last != Some(*now) {
            self.has_moved |= moved(now) > self.last.as_ref().map_or(0, moved);
            self.last = Some(*now);
            self.since = Instant::now();
        }
        if is_paused {
            return Activity::Paused;
        }
        let time = self.since.elapsed();
        let awaited = if time >= STALL { awaited() } else { None };
        let is_written = now.total == Some(now.done) && now.flushed < now.done;
        if awaited.is_some() {
            Activity::Stalled { time, awaited }
        } else if is_written {
            Activity::Flushing(time)
        } else if time >= SILENCE {
            Activity::Stalled { time, awaited }
        } else if self.has_moved {
            Activity::Running
        } else {
            Activity::Starting
        }
    }
}

/// Returns the bytes that this run has moved.
const fn moved(progress: &Progress) -> u64 {
    progress.done.saturating_sub(progress.resumed)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::side::Side;

    const TARGET: Awaited =
        Awaited { side: None, what: "target", limit: Some(Duration::from_secs(300)) };

    fn at(done: u64) -> Progress {
        let mut progress = Progress::default();
        (progress.done, progress.total) = (done, Some(8));
        progress
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_starts_runs_stalls_goes_on_pauses_and_flushes() {
        let (second, stalled) = (Duration::from_secs(1), |seconds, awaited| Activity::Stalled {
            time: Duration::from_secs(seconds),
            awaited,
        });
        let mut watch = Watch::new();
        let nothing = || None;
        assert_eq!(watch.update(&at(0), false, nothing), Activity::Starting);
        assert_eq!(watch.update(&at(1), false, nothing), Activity::Running);
        advance(second).await;
        assert_eq!(watch.update(&at(1), false, || Some(TARGET)), Activity::Running);
        advance(13 * second).await;
        assert_eq!(watch.update(&at(1), false, || Some(TARGET)), stalled(14, Some(TARGET)));
        assert_eq!(watch.update(&at(1), false, nothing), stalled(14, None));
        assert_eq!(watch.update(&at(2), false, || Some(TARGET)), Activity::Running);
        advance(60 * second).await;
        assert_eq!(watch.update(&at(2), true, nothing), Activity::Paused);
        assert_eq!(watch.update(&at(2), false, nothing), Activity::Running, "a pause is no stall");
        assert_eq!(watch.update(&at(8), false, nothing), Activity::Flushing(Duration::ZERO));
        advance(3 * second).await;
        assert_eq!(watch.update(&at(8), false, nothing), Activity::Flushing(3 * second));
        assert_eq!(watch.update(&at(8), false, || Some(TARGET)), stalled(3, Some(TARGET)));
        let mut flushed = at(8);
        flushed.flushed = 8;
        assert_eq!(watch.update(&flushed, false, nothing), Activity::Running);
    }

    #[test]
    fn an_outage_names_what_is_waited_for_and_how_long() {
        let time = Duration::from_secs(14);
        let texts = |awaited| Activity::Stalled { time, awaited }.texts();
        assert_eq!(texts(Some(TARGET))[0], "stalled 14 s, waiting for the target (up to 300 s)");
        let of_source = Awaited { side: Some(Side::Source), limit: None, ..TARGET };
        assert_eq!(
            texts(Some(of_source)),
            ["stalled 14 s, waiting for the source's target", "stalled 14 s"]
        );
        assert_eq!(texts(None), ["no progress for 14 s"], "it may be a slow answer");
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_earlier_run_has_done_is_no_movement() {
        let mut resumed = at(4);
        let mut watch = Watch::new();
        assert_eq!(watch.update(&at(0), false, || None), Activity::Starting);
        resumed.resumed = 4;
        assert_eq!(watch.update(&resumed, false, || None), Activity::Starting);
        resumed.done = 5;
        assert_eq!(watch.update(&resumed, false, || None), Activity::Running);
    }
}
