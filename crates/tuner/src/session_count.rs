//! Decides how many sessions a transfer uses: first as many as the plan has, then as many as raise the total
//! rate.
//!
//! ```text
//!           more are planned, or no queue            the rate has not risen
//!   Steady ───────────────────────────────► Trial ──────────────────────────► Steady, pausing
//!     ▲           fewer are planned           │       (the number is restored)
//!     └───────────────────────────────────────┘
//!              the rate has risen enough
//! ```
//! No trial begins while the rate rises by itself. Sessions are added as long as the total rate rises, and
//! removed as long as it does not fall. A trial without a gain is followed by a pause, which doubles each
//! time, so that a link at its limit is left alone; a rate that falls ends the pause. Sessions are removed
//! only where the link was full for a while: an unneeded session costs little, a missing one costs much.
//!
//! The rate says nothing while the caller has too little work, for example while a member of a volume waits
//! for the slowest member. Then no trial begins, and a running trial that cannot be judged is ended. If the
//! link is full nevertheless, the sessions that the plan does not need are removed, half of them at a time.

use std::time::Duration;

use crate::link::loss::{MIN_LOSS_FOR_SESSIONS, loss_ceiling};
use crate::link::model::USUAL_MSS;
use iscsi_rate::Rate;

/// State of all sessions of a transfer at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionsReading {
    /// Time since the transfer began.
    pub time: Duration,
    /// Bytes that all sessions have moved so far.
    pub bytes: u64,
    /// The number of sessions that carry data.
    pub sessions: u32,
    /// The number of sessions that are kept even if fewer fill the link: those that the plan asks for without regard
    /// to loss, and at least one for each portal in use.
    pub planned: u32,
    /// Whether the sessions had more work than they could take, during the whole time since the last reading.
    pub is_busy: bool,
    /// Whether a queue stands before the link. Then the link is full, and more sessions would only make the
    /// queue longer.
    pub has_queue: bool,
    /// The recent share of retransmitted segments, 0 to 1, for any reason.
    pub loss: f64,
    /// The round-trip time.
    pub round_trip: Duration,
}

/// A change of the number of sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Keep the number of sessions.
    Stay,
    /// Open this number of further sessions.
    Add(u32),
    /// Log out this number of sessions.
    Remove(u32),
}

/// Decides how many sessions a transfer uses.
///
/// ```
/// use iscsi_tuner::{SessionCount, SessionsReading, Step};
///
/// let mut count = SessionCount::new("one fills the link", 16);
/// let mut reading = SessionsReading::default();
/// (reading.sessions, reading.planned) = (1, 1);
/// assert_eq!(count.observe(&reading), Step::Stay);
/// assert_eq!(count.reason(), "one fills the link");
/// ```
#[derive(Clone, Debug)]
pub struct SessionCount {
    /// Largest number of sessions at present: the allowed number, or less while a [cap](Self::cap) holds.
    max: u32,
    /// Largest number of sessions that the caller allows.
    allowed: u32,
    /// Time of the last reading.
    now: Duration,
    /// When the cap ends.
    capped_until: Option<Duration>,
    reason: String,
    phase: Phase,
    /// Time before which no trial begins.
    pause_until: Duration,
    pause: Duration,
    /// Largest number of sessions that a trial has tried without a gain. A plan for more sessions than are
    /// open starts a trial only if it also exceeds this number.
    tried_in_vain: u32,
    /// The rate of the last interval, and the best rate of all.
    last: Option<Rate>,
    best: Option<Rate>,
    /// Time since which the link has been full.
    full_since: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The number of sessions has been the same since the reading `since`; `None` until the next reading.
    Steady { since: Option<SessionsReading> },
    /// The number of sessions has changed. At `until` the windows of the new sessions should be open. The
    /// rate is measured from the reading `since` on; `None` until the next reading.
    Trial { before: Before, until: Duration, since: Option<SessionsReading> },
}

/// The state before a trial, and the number of sessions that the trial aims at.
#[derive(Clone, Copy, Debug)]
struct Before {
    sessions: u32,
    rate: Rate,
    /// The number of sessions that the trial aims at.
    aim: u32,
    /// Bytes moved when the trial began, and the time of its beginning.
    bytes: u64,
    time: Duration,
}

/// Shortest interval over which a rate is measured.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval over which a rate is measured, in round trips.
const INTERVAL_ROUND_TRIPS: u32 = 10;
/// Fewest bytes in an interval whose rate may start a trial of more sessions without loss. With fewer, the
/// rate varies at random from request to request. A session fills such a link, of up to 2 Mbit/s, at any
/// round-trip time.
const MIN_BYTES: u64 = 256 << 10;
/// Round trips in which a new session opens its window.
const RAMP_ROUND_TRIPS: u32 = 15;
/// First pause after a trial without a gain.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// Longest pause after a trial without a gain.
const MAX_PAUSE: Duration = Duration::from_secs(160);
/// A session is worth its cost if it adds at least this share of the rate of each other session.
const MIN_GAIN: f64 = 0.25;
/// A rate of at least this share of another one counts as equal.
const UNCHANGED: f64 = 0.97;
/// A rate below this share of the best one is a fall.
const FALL: f64 = 0.9;
/// Loss limits the sessions if each carries at most this many times the theoretical rate (`loss_ceiling`).
const CEILING_SLACK: f64 = 3.0;
/// Below this share of the theoretical rate (`loss_ceiling`), something else than loss limits a session.
const CEILING_SHARE: f64 = 0.125;
/// Factor by which a trial under loss raises the number of sessions. It is large, because a trial takes
/// seconds, and too many sessions do no harm under loss.
const GROWTH_UNDER_LOSS: u32 = 4;
/// Pause between trials under loss.
const PAUSE_UNDER_LOSS: Duration = Duration::from_secs(2);
/// Shortest interval after which a rate that was expected to rise is judged.
const EARLY_INTERVAL: Duration = Duration::from_millis(500);
/// Shortest interval after which a rate that was expected to rise is judged, in round trips.
const EARLY_ROUND_TRIPS: u32 = 5;
/// A rate above this many times the last one is a rise.
const RISE: f64 = 1.1;
/// Largest number of sessions without loss: more would displace other traffic, and no link in the tables of
/// the plan needs them. Under loss, sessions do not displace other traffic, so the caller's maximum applies,
/// by default `Sessions::MAX` of the initiator.
const MAX_WITHOUT_LOSS: u32 = 32;
/// Time, from when the new sessions have opened their windows, after which a trial that could not be judged
/// is ended.
const MAX_UNJUDGED: Duration = Duration::from_secs(4);
/// [`MAX_UNJUDGED`] in round trips; the longer of the two counts.
const MAX_UNJUDGED_ROUND_TRIPS: u32 = 40;
/// How long a cap holds after the target has refused a further session.
const CAP_TIME: Duration = Duration::from_secs(600);
/// Shortest time for which the link must have been full before fewer sessions are tried.
const FULL_TIME: Duration = Duration::from_secs(4);

impl SessionCount {
    /// Creates the decision with the current number of sessions and its reason. It never asks for more than
    /// `max` sessions (at least 1), nor for more than 32 unless loss limits each of them.
    #[must_use]
    pub fn new(reason: impl Into<String>, max: u32) -> Self {
        Self {
            max: max.max(1),
            allowed: max.max(1),
            now: Duration::ZERO,
            capped_until: None,
            reason: reason.into(),
            phase: Phase::Steady { since: None },
            pause_until: Duration::ZERO,
            pause: FIRST_PAUSE,
            tried_in_vain: 0,
            last: None,
            best: None,
            full_since: None,
        }
    }

    /// Returns the reason for the number of sessions, as a sentence without its full stop.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Limits the number of sessions to `max` for ten minutes, because the target refuses more; `reason` says
    /// why. After that time the target may accept more again, for example because it was being reconfigured,
    /// or other initiators have logged out.
    pub fn cap(&mut self, max: u32, reason: impl Into<String>) {
        self.max = max.max(1).min(self.allowed);
        self.capped_until = Some(self.now + CAP_TIME);
        self.reason = reason.into();
        self.phase = Phase::Steady { since: None };
    }

    /// Takes a reading, and returns the change to make. Call it several times a second while there is work.
    pub fn observe(&mut self, now: &SessionsReading) -> Step {
        self.full_since = now.has_queue.then(|| self.full_since.unwrap_or(now.time));
        self.now = now.time;
        if self.capped_until.is_some_and(|until| now.time >= until) {
            (self.max, self.capped_until) = (self.allowed, None);
        }
        if !now.is_busy {
            self.discard();
            return self.without_work(now);
        }
        match self.phase {
            Phase::Steady { since: None } => {
                self.phase = Phase::Steady { since: Some(*now) };
                Step::Stay
            }
            Phase::Steady { since: Some(since) } if since.sessions != now.sessions => {
                self.phase = Phase::Steady { since: Some(*now) };
                Step::Stay
            }
            Phase::Steady { since: Some(since) } => self.steady(&since, now),
            Phase::Trial { before, until, since } => self.trial(before, until, since, now),
        }
    }

    /// Discards the current measurement, because the caller had too little work.
    const fn discard(&mut self) {
        match &mut self.phase {
            Phase::Steady { since } | Phase::Trial { since, .. } => *since = None,
        }
    }

    /// Decides while the caller has too little work, so that the rate says nothing.
    fn without_work(&mut self, now: &SessionsReading) -> Step {
        let surplus = match self.phase {
            Phase::Trial { before, until, .. } => {
                let patience = MAX_UNJUDGED.max(now.round_trip * MAX_UNJUDGED_ROUND_TRIPS);
                if now.time < until + patience {
                    return Step::Stay;
                }
                // Under loss, too many sessions do no harm, so they are kept.
                let is_lossy = now.loss >= MIN_LOSS_FOR_SESSIONS;
                let kept = if is_lossy { now.sessions } else { self.planned(now) };
                now.sessions.saturating_sub(before.sessions.max(kept))
            }
            Phase::Steady { .. } => {
                let Some(surplus) = self.surplus(now) else { return Step::Stay };
                surplus.div_ceil(2)
            }
        };
        (self.phase, self.full_since) = (Phase::Steady { since: None }, None);
        self.pause_until = self.pause_until.max(now.time + self.pause);
        self.reason = format!("{} do what there is to do", now.sessions - surplus);
        if surplus == 0 { Step::Stay } else { Step::Remove(surplus) }
    }

    /// Returns the number of sessions that the plan does not need, if the link has been full for a while.
    fn surplus(&self, now: &SessionsReading) -> Option<u32> {
        let full = now.time.saturating_sub(self.full_since?);
        let is_full = full >= FULL_TIME && now.loss < MIN_LOSS_FOR_SESSIONS;
        let surplus = now.sessions.saturating_sub(self.planned(now));
        (is_full && surplus > 0).then_some(surplus)
    }

    /// Returns the largest number of sessions without loss.
    fn max_without_loss(&self) -> u32 {
        self.max.min(MAX_WITHOUT_LOSS)
    }

    /// Returns the number of sessions that the plan asks for, within the limits.
    fn planned(&self, now: &SessionsReading) -> u32 {
        now.planned.clamp(1, self.max_without_loss())
    }

    fn steady(&mut self, since: &SessionsReading, now: &SessionsReading) -> Step {
        let Some(rate) = rate_between(since, now) else { return Step::Stay };
        let (max, planned) = (self.max_without_loss(), self.planned(now));
        let has_fallen = self.best.is_some_and(|best| share(rate, best) < FALL);
        // While windows open, the rate rises by itself, so no trial begins.
        let rises = self.last.is_none_or(|last| share(rate, last) > RISE);
        self.last = Some(rate);
        self.best = self.best.max(Some(rate));
        if planned > now.sessions && planned > self.tried_in_vain {
            return self.try_more(planned - now.sessions, rate, now, "the plan asks for more");
        }
        let has_paused = now.time >= self.pause_until;
        let has_room = |max: u32| now.sessions < max && !now.has_queue;
        if has_room(self.max) && now.is_held_by_loss(rate) && (has_paused || has_fallen) {
            let more =
                now.sessions.saturating_mul(GROWTH_UNDER_LOSS - 1).min(self.max - now.sessions);
            return self.try_more(more, rate, now, "loss keeps each of them small");
        }
        let is_significant = now.bytes.saturating_sub(since.bytes) >= MIN_BYTES;
        if has_room(max) && has_paused && !rises && is_significant {
            let more = (now.sessions / 2).max(1).min(max - now.sessions);
            // Only a rate above the best one so far counts as a gain; less may be chance.
            let best = self.best.unwrap_or(rate);
            return self.try_more(more, best, now, "no queue stands before the link");
        }
        if has_paused && let Some(surplus) = self.surplus(now) {
            return self.try_fewer(surplus, rate, now);
        }
        self.phase = Phase::Steady { since: Some(*now) };
        Step::Stay
    }

    fn try_more(&mut self, more: u32, rate: Rate, now: &SessionsReading, why: &str) -> Step {
        let aim = now.sessions + more;
        self.reason = format!("trying {aim} after {} with {rate}: {why}", now.sessions);
        self.begin_trial(aim, rate, now);
        Step::Add(more)
    }

    fn try_fewer(&mut self, spare: u32, rate: Rate, now: &SessionsReading) -> Step {
        let fewer = (spare / 2).max(1);
        let aim = now.sessions - fewer;
        self.reason = format!("trying {aim} after {} with {rate}: the link is full", now.sessions);
        self.begin_trial(aim, rate, now);
        Step::Remove(fewer)
    }

    fn begin_trial(&mut self, aim: u32, rate: Rate, now: &SessionsReading) {
        let SessionsReading { sessions, bytes, time, .. } = *now;
        let before = Before { sessions, rate, aim, bytes, time };
        let until = time + MIN_INTERVAL.max(now.round_trip * RAMP_ROUND_TRIPS);
        self.phase = Phase::Trial { before, until, since: None };
    }

    fn trial(
        &mut self,
        before: Before,
        until: Duration,
        since: Option<SessionsReading>,
        now: &SessionsReading,
    ) -> Step {
        if let Some(rate) = before.rate_under_loss(now) {
            return self.accept(&before, rate, now);
        }
        let Some(since) = since.filter(|since| since.sessions == now.sessions) else {
            self.phase = Phase::Trial { before, until, since: Some(*now) };
            return Step::Stay;
        };
        let Some(rate) = rate_over(&since, now, EARLY_INTERVAL, EARLY_ROUND_TRIPS) else {
            return Step::Stay;
        };
        if before.grows() && now.sessions <= before.sessions {
            // No further session could be opened, so the trial ends.
            return self.take_back(&before, rate, now);
        }
        // Where a gain is expected, a shorter interval is enough to judge it.
        let is_expected = now.is_held_by_loss(rate) || now.sessions <= now.planned;
        if before.grows() && is_expected && before.is_worth(now.sessions, rate) {
            return self.accept(&before, rate, now);
        }
        if now.time < until {
            // The sessions are still opening or closing their windows, so the measurement begins again.
            let since = if rate_between(&since, now).is_some() { *now } else { since };
            self.phase = Phase::Trial { before, until, since: Some(since) };
            return Step::Stay;
        }
        let Some(rate) = rate_between(&since, now) else { return Step::Stay };
        if before.is_worth(now.sessions, rate) {
            return self.accept(&before, rate, now);
        }
        if before.grows() && now.is_held_by_loss(rate) {
            // Under loss the rate varies at random. The sessions do not harm each other, and together they smooth the
            // rate.
            self.pause_until = now.time + PAUSE_UNDER_LOSS;
            return self.accept(&before, rate, now);
        }
        self.take_back(&before, rate, now)
    }

    fn accept(&mut self, before: &Before, rate: Rate, now: &SessionsReading) -> Step {
        self.phase = Phase::Steady { since: Some(*now) };
        self.pause = FIRST_PAUSE;
        self.reason =
            format!("{} carry {rate}, {} carried {}", now.sessions, before.sessions, before.rate);
        Step::Stay
    }

    fn take_back(&mut self, before: &Before, rate: Rate, now: &SessionsReading) -> Step {
        self.phase = Phase::Steady { since: Some(*now) };
        if before.grows() {
            // The earlier best rate may not be reachable any more, so the measured rate replaces it.
            (self.tried_in_vain, self.best) = (self.tried_in_vain.max(before.aim), Some(rate));
        }
        self.pause_until = now.time + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.reason =
            format!("{} carry {}, {} carried {rate}", before.sessions, before.rate, now.sessions);
        if now.sessions > before.sessions {
            Step::Remove(now.sessions - before.sessions)
        } else if now.sessions < before.sessions {
            Step::Add(before.sessions - now.sessions)
        } else {
            Step::Stay
        }
    }
}

impl SessionsReading {
    /// Returns whether loss limits the rate of each session. Then more sessions carry more, and do not
    /// displace other traffic.
    fn is_held_by_loss(&self, rate: Rate) -> bool {
        let each = rate.mbit_per_second() / f64::from(self.sessions.max(1));
        let ceiling = loss_ceiling(self.loss, self.round_trip, USUAL_MSS);
        self.loss >= MIN_LOSS_FOR_SESSIONS
            && ceiling.is_some_and(|ceiling| {
                let ceiling = ceiling.mbit_per_second();
                (CEILING_SHARE * ceiling..=CEILING_SLACK * ceiling).contains(&each)
            })
    }
}

impl Before {
    const fn grows(&self) -> bool {
        self.aim > self.sessions
    }

    /// Returns the rate since the trial began, if nearly all new sessions are open and loss still limits each
    /// of them. Then more sessions are needed, and the decision need not wait for the last session.
    fn rate_under_loss(&self, now: &SessionsReading) -> Option<Rate> {
        let nearly_all = self.sessions + (self.aim.saturating_sub(self.sessions) * 3).div_ceil(4);
        if !self.grows() || now.sessions < nearly_all || now.has_queue {
            return None;
        }
        let since = SessionsReading { bytes: self.bytes, time: self.time, ..*now };
        let rate = rate_over(&since, now, EARLY_INTERVAL, EARLY_ROUND_TRIPS)?;
        now.is_held_by_loss(rate).then_some(rate)
    }

    /// Returns whether the change of the number of sessions has raised the total rate enough.
    fn is_worth(&self, sessions: u32, rate: Rate) -> bool {
        let gain = share(rate, self.rate);
        if !self.grows() {
            return gain >= UNCHANGED;
        }
        let added =
            f64::from(sessions.saturating_sub(self.sessions)) / f64::from(self.sessions.max(1));
        gain >= 1.0 + MIN_GAIN * added
    }
}

fn share(rate: Rate, of: Rate) -> f64 {
    rate.mbit_per_second() / of.mbit_per_second()
}

/// Returns the rate between two readings; `None` until they are far enough apart.
fn rate_between(since: &SessionsReading, now: &SessionsReading) -> Option<Rate> {
    rate_over(since, now, MIN_INTERVAL, INTERVAL_ROUND_TRIPS)
}

fn rate_over(
    since: &SessionsReading,
    now: &SessionsReading,
    min: Duration,
    trips: u32,
) -> Option<Rate> {
    let time = now.time.saturating_sub(since.time);
    if time < min.max(now.round_trip * trips) {
        return None;
    }
    Some(Rate::of(now.bytes.saturating_sub(since.bytes), time))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests;
