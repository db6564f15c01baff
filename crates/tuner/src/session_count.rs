//! How many sessions a transfer runs over: at first as many as the plan says, then as many as raise
//! the rate of the whole.
//!
//! ```text
//!           more are planned, or no queue            the rate has not risen
//!   Steady ───────────────────────────────► Trial ──────────────────────────► Steady, pausing
//!     ▲           fewer are planned           │       (the number is restored)
//!     └───────────────────────────────────────┘
//!              the rate has risen enough
//! ```
//! No trial begins while the rate rises by itself. Sessions are added as long as the rate of the whole
//! rises, and removed as long as it does not fall. After a trial that has raised nothing there is a
//! pause before the next, which doubles each time, so that a link at its limit is left alone; a rate
//! that falls ends the pause. Sessions are removed only where the link was full for a while: a session
//! that is not needed costs little, one that is missing costs much.
//!
//! A rate tells nothing while the caller has too little to do, as a member of a volume has that waits for
//! the slowest. There no trial begins, and one that could not be judged is given up; where the link is
//! full all the same, sessions that the plan does without go one after the other.

use std::time::Duration;

use crate::link::loss::{MIN_LOSS_FOR_SESSIONS, loss_ceiling};
use crate::link::model::USUAL_MSS;
use iscsi_rate::Rate;

/// All sessions of a transfer at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SessionsReading {
    /// Since the transfer began.
    pub time: Duration,
    /// Bytes that all sessions have moved so far.
    pub bytes: u64,
    /// The number of sessions that carry data.
    pub sessions: u32,
    /// The number of sessions that the plan asks for, loss aside.
    pub planned: u32,
    /// Whether there was more work than the sessions took, ever since the last reading.
    pub is_busy: bool,
    /// Whether a queue stands before the link: then it is full, and more sessions would only crowd it.
    pub has_queue: bool,
    /// The share of segments that had to be sent again lately, 0 to 1, for whatever reason.
    pub loss: f64,
    /// The round-trip time.
    pub round_trip: Duration,
}

/// A change of the number of sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Nothing.
    Stay,
    /// Open this number of further sessions.
    Add(u32),
    /// Log this number of sessions out.
    Remove(u32),
}

/// Decides how many sessions a transfer runs over.
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
    /// Maximum number of sessions now. A [cap](Self::cap) lowers it for a while.
    max: u32,
    /// Maximum that the caller allows.
    allowed: u32,
    /// Time of the last reading.
    now: Duration,
    /// When the cap ends.
    capped_until: Option<Duration>,
    reason: String,
    phase: Phase,
    /// No trial before that time.
    pause_until: Duration,
    pause: Duration,
    /// So many sessions, which the plan asked for, have raised nothing.
    tried_in_vain: u32,
    /// The rate of the last interval, and the best of all.
    last: Option<Rate>,
    best: Option<Rate>,
    /// Since when the link has been full.
    full_since: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The number has not changed since that reading.
    Steady { since: Option<SessionsReading> },
    /// The number has changed; the rate counts from `since` on, when the number has settled.
    Trial { before: Before, until: Duration, since: Option<SessionsReading> },
}

/// The sessions before a trial, and what the trial aims at.
#[derive(Clone, Copy, Debug)]
struct Before {
    sessions: u32,
    rate: Rate,
    /// How many there shall be.
    aim: u32,
    /// Bytes moved when the trial began, and when that was.
    bytes: u64,
    time: Duration,
}

/// A rate is measured over at least so long, and over so many round trips.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_ROUND_TRIPS: u32 = 10;
/// With fewer bytes in an interval the rate leaps by chance, from request to request, and one session fills such a link at any
/// round-trip time: 2 Mbit/s.
const MIN_TELLING: u64 = 256 << 10;
/// A new session opens its window in so many round trips.
const RAMP_ROUND_TRIPS: u32 = 15;
/// The pause after a trial that has raised nothing: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(160);
/// A session is not worth it that adds less than this share of what each of the others carries.
const MIN_GAIN: f64 = 0.25;
/// A rate within this of another is the same.
const UNCHANGED: f64 = 0.97;
/// A rate below this share of the best is a fall.
const FALL: f64 = 0.9;
/// Loss keeps sessions small if each carries no more than so many times what theory gives it.
const CEILING_SLACK: f64 = 3.0;
/// One that carries less than this share of what theory gives it is held by something else.
const CEILING_SHARE: f64 = 0.125;
/// There so many times as many are tried at once: a trial takes seconds, and too many sessions harm
/// nobody.
const GROWTH_UNDER_LOSS: u32 = 4;
/// The pause between trials there.
const PAUSE_UNDER_LOSS: Duration = Duration::from_secs(2);
/// A rate that was expected to rise is judged after so long already, and after so many round trips.
const EARLY_INTERVAL: Duration = Duration::from_millis(500);
const EARLY_ROUND_TRIPS: u32 = 5;
/// More than this times the last rate is a rise.
const RISE: f64 = 1.1;
/// More than this crowd out others, and no link in the plan's tables needs them; but those that loss
/// keeps small harm nobody.
const MAX_WITHOUT_LOSS: u32 = 32;
/// A trial that could not be judged so long after the new sessions have opened their windows is given
/// up: the time, and in round trips.
const MAX_UNJUDGED: Duration = Duration::from_secs(4);
const MAX_UNJUDGED_ROUND_TRIPS: u32 = 40;
/// How long a cap holds after the target has refused a further session.
const CAP_TIME: Duration = Duration::from_secs(600);
/// The link must have been full for so long before fewer are tried.
const FULL_TIME: Duration = Duration::from_secs(4);

impl SessionCount {
    /// Begins with as many sessions as there are for a reason, and never asks for more than `max`, 1
    /// or more; for more than 32 only where loss keeps each of them small.
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

    /// The target refuses further sessions, for this reason: at most `max` are asked for in the next ten minutes. After that the target may
    /// have room again: it was being reconfigured, or other initiators have left.
    pub fn cap(&mut self, max: u32, reason: impl Into<String>) {
        self.max = max.max(1).min(self.allowed);
        self.capped_until = Some(self.now + CAP_TIME);
        self.reason = reason.into();
        self.phase = Phase::Steady { since: None };
    }

    /// Takes a reading in; to be called several times a second while there is work.
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

    /// Discards what was measured so far: the caller had too little to do.
    const fn discard(&mut self) {
        match &mut self.phase {
            Phase::Steady { since } | Phase::Trial { since, .. } => *since = None,
        }
    }

    /// What can be said though the rate tells nothing.
    fn without_work(&mut self, now: &SessionsReading) -> Step {
        let surplus = match self.phase {
            Phase::Trial { before, until, .. } => {
                let patience = MAX_UNJUDGED.max(now.round_trip * MAX_UNJUDGED_ROUND_TRIPS);
                if now.time < until + patience {
                    return Step::Stay;
                }
                // Under loss those too many harm nobody.
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

    /// How many sessions the plan does without, where the link has been full for a while.
    fn surplus(&self, now: &SessionsReading) -> Option<u32> {
        let full = now.time.saturating_sub(self.full_since?);
        let is_full = full >= FULL_TIME && now.loss < MIN_LOSS_FOR_SESSIONS;
        let surplus = now.sessions.saturating_sub(self.planned(now));
        (is_full && surplus > 0).then_some(surplus)
    }

    /// How many sessions there may be without loss.
    fn max_without_loss(&self) -> u32 {
        self.max.min(MAX_WITHOUT_LOSS)
    }

    /// How many of them the plan asks for.
    fn planned(&self, now: &SessionsReading) -> u32 {
        now.planned.clamp(1, self.max_without_loss())
    }

    fn steady(&mut self, since: &SessionsReading, now: &SessionsReading) -> Step {
        let Some(rate) = rate_between(since, now) else { return Step::Stay };
        let (max, planned) = (self.max_without_loss(), self.planned(now));
        let has_fallen = self.best.is_some_and(|best| share(rate, best) < FALL);
        // While windows open, rates rise by themselves.
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
        let is_telling = now.bytes.saturating_sub(since.bytes) >= MIN_TELLING;
        if has_room(max) && has_paused && !rises && is_telling {
            let more = (now.sessions / 2).max(1).min(max - now.sessions);
            // More than the best so far is a gain; less may be chance.
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
            // None was to be had.
            return self.take_back(&before, rate, now);
        }
        // Where there is reason to expect a gain, the first sign of it counts.
        let is_expected = now.is_held_by_loss(rate) || now.sessions <= now.planned;
        if before.grows() && is_expected && before.is_worth(now.sessions, rate) {
            return self.accept(&before, rate, now);
        }
        if now.time < until {
            // The sessions are still opening their windows, or closing them.
            let since = if rate_between(&since, now).is_some() { *now } else { since };
            self.phase = Phase::Trial { before, until, since: Some(since) };
            return Step::Stay;
        }
        let Some(rate) = rate_between(&since, now) else { return Step::Stay };
        if before.is_worth(now.sessions, rate) {
            return self.accept(&before, rate, now);
        }
        if before.grows() && now.is_held_by_loss(rate) {
            // Under loss rates leap; none of them harms another, and together they smooth it.
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
            // What was best before may be no more to be had.
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
    /// Whether it is loss that keeps each session small: then more of them carry more, and harm nobody.
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

    /// The rate since the trial began, if nearly all that were to come are there, and loss still keeps
    /// each of them small: then nobody need wait for the last one to tell that more are needed.
    fn rate_under_loss(&self, now: &SessionsReading) -> Option<Rate> {
        let nearly_all = self.sessions + (self.aim.saturating_sub(self.sessions) * 3).div_ceil(4);
        if !self.grows() || now.sessions < nearly_all || now.has_queue {
            return None;
        }
        let since = SessionsReading { bytes: self.bytes, time: self.time, ..*now };
        let rate = rate_over(&since, now, EARLY_INTERVAL, EARLY_ROUND_TRIPS)?;
        now.is_held_by_loss(rate).then_some(rate)
    }

    /// Whether the whole has gained by the change.
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

/// The rate between two readings, once they are far enough apart.
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
