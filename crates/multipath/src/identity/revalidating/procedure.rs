//! Runs the revalidation of one path: its waiting callers, the tries, and their results.

use std::collections::VecDeque;
use std::time::Instant;

use super::interview::{Doubt, Findings, Interview};
use super::step::{End, Failure, Question, Step, Terms, WaiterId};
use crate::PathId;
use crate::identity::reasons::Reasons;
use crate::identity::resize::SizeQuestion;
use crate::reconnect::BackOff;
use crate::unit::Unit;

#[derive(Clone, Debug)]
pub(super) struct Procedure {
    path: PathId,
    terms: Terms,
    pauses: BackOff,
    /// The callers, and when each began to wait.
    waiting: Vec<(WaiterId, Instant)>,
    stage: Stage,
    /// Steps that are returned next.
    steps: VecDeque<Step>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The next poll checks whether there are reasons for a try.
    Checking,
    Asking(Box<Try>),
    Pausing(Instant),
}

/// A try in progress.
#[derive(Clone, Debug)]
struct Try {
    interview: Interview,
    /// The reasons that existed when the commands were sent.
    asked_at: Reasons,
    size: SizeQuestion,
}

impl Procedure {
    pub(super) const fn new(path: PathId, terms: Terms) -> Self {
        Self {
            path,
            pauses: terms.pauses,
            terms,
            waiting: Vec::new(),
            stage: Stage::Checking,
            steps: VecDeque::new(),
        }
    }

    pub(super) fn join(&mut self, waiter: WaiterId, now: Instant) {
        self.waiting.push((waiter, now));
    }

    pub(super) fn leave(&mut self, waiter: WaiterId) {
        self.waiting.retain(|(other, _)| *other != waiter);
        self.steps.retain(|step| !matches!(step, Step::Answer(other, _) if *other == waiter));
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = WaiterId> {
        let answered = self.steps.iter().filter_map(|step| match step {
            Step::Answer(waiter, _) => Some(*waiter),
            Step::Wait | Step::Ask(_) | Step::Resized(_) | Step::Idle => None,
        });
        answered.chain(self.waiting.iter().map(|(waiter, _)| *waiter))
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        if let Stage::Pausing(until) = self.stage { Some(until) } else { None }
    }

    /// Returns the next step; a command gets the next number.
    pub(super) fn poll(&mut self, next_question: &mut u32, unit: &mut Unit, now: Instant) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            if self.waiting.is_empty() {
                return Step::Idle;
            }
            match &mut self.stage {
                Stage::Checking => self.check(unit),
                Stage::Pausing(until) if now < *until => return Step::Wait,
                Stage::Pausing(_) => self.stage = Stage::Checking,
                Stage::Asking(attempt) => {
                    let number = *next_question;
                    if let Some(command) = attempt.interview.next(number) {
                        *next_question = number.wrapping_add(1);
                        return Step::Ask(Question { number, path: self.path, command });
                    }
                    let Some(findings) = attempt.interview.findings(&self.terms) else {
                        return Step::Wait;
                    };
                    let (asked_at, size) = (attempt.asked_at, attempt.size);
                    self.stage = Stage::Checking;
                    self.take(findings, asked_at, size, unit, now);
                }
            }
        }
    }

    pub(super) fn on_end(&mut self, number: u32, end: End<'_>) {
        if let Stage::Asking(attempt) = &mut self.stage {
            attempt.interview.on_end(number, end, &self.terms.name);
        }
    }

    /// Starts a try if there is a reason.
    fn check(&mut self, unit: &mut Unit) {
        let identity = &mut unit.identity;
        if let Err(verdict) = identity.verdict(self.path) {
            self.answer_all(&Err(Failure::Verdict(verdict)));
        } else if identity.has_reasons(self.path) {
            self.stage = Stage::Asking(Box::new(Try {
                interview: Interview::new(&self.terms.name),
                asked_at: identity.reasons(self.path),
                size: identity.ask_size(),
            }));
        } else {
            self.answer_all(&Ok(()));
        }
    }

    fn take(
        &mut self,
        findings: Findings,
        asked_at: Reasons,
        size: SizeQuestion,
        unit: &mut Unit,
        now: Instant,
    ) {
        if findings.may_have_cache {
            unit.durability.on_cache();
        }
        match findings.result {
            Ok(capacity) => {
                let resized = unit.identity.on_size(size, capacity.bytes());
                self.steps.extend(resized.map(Step::Resized));
                unit.identity.on_revalidated(self.path, asked_at);
            }
            Err(Doubt::Verdict(verdict)) => unit.identity.on_another_unit(self.path, verdict),
            Err(Doubt::Lasting(failure)) => self.answer_all(&Err(failure)),
            Err(Doubt::Passing(failure)) => self.pause(&failure, now),
        }
    }

    /// Schedules another try after a pause, for the callers whose time limit allows it. The other callers
    /// receive the failure.
    fn pause(&mut self, failure: &Failure, now: Instant) {
        let pause = self.pauses.next();
        let limit = self.terms.retry_timeout;
        let steps = &mut self.steps;
        self.waiting.retain(|(waiter, since)| {
            let waited = now.saturating_duration_since(*since);
            let is_over = waited.saturating_add(pause) > limit;
            if is_over {
                steps.push_back(Step::Answer(*waiter, Err(failure.clone())));
            }
            !is_over
        });
        if let Some(until) = now.checked_add(pause) {
            self.stage = Stage::Pausing(until);
        }
    }

    fn answer_all(&mut self, result: &Result<(), Failure>) {
        let waiting = self.waiting.drain(..);
        self.steps.extend(waiting.map(|(waiter, _)| Step::Answer(waiter, result.clone())));
    }
}
