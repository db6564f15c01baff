//! What a request has been through, and whether it is worth another try.
//!
//! What a unit does not take now is tried again as long as patience lasts. What was under way on a
//! session that ended goes to the next one, however often that happens, unless it is the request
//! itself that ends sessions. Of many that were under way the guilty one is not known; so whoever was
//! there a few times in a row is sent with nothing else on its session. Who then ends several in a
//! row is guilty, if sessions do not end without him too: on a line that drops by itself it takes
//! more to prove it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi_multipath::reconnect::BackOff;
use tokio::time::{Instant, timeout};

use crate::error::{Error, of_blocks};
use crate::multipath::carrier::Carrier;
use crate::multipath::dispatch::Paths;
use crate::multipath::lane::{PathId, Requirements};
use crate::multipath::report::{Report, Wait};
use crate::unit::retry::answer_of;

/// After this many losses in a row a request is sent alone.
const SUSPECT: u32 = 3;
/// After this many losses while alone it fails with `EndsSessions`.
const GUILTY: u32 = 5;
/// Each unexplained loss raises that limit by this.
const DOUBT: u32 = 3;
/// The limit is raised by this at most.
const MAX_DOUBT: u32 = 15;
/// More losses than this in a row are never worth another try.
const MAX_LOSSES: u32 = 100;
/// Number of ports in a row that refuse a request before it pauses.
const MAX_REFUSALS: u32 = 8;

/// What one request has been through.
pub(super) struct Attempts<'a, C: Carrier> {
    paths: &'a Paths<C>,
    /// How often a port had been found in another state when the last try began.
    access_changes: u64,
    /// How the attempts before have failed; most requests succeed at the first attempt.
    failures: Option<Box<Failures>>,
}

/// How the tries of a request have failed.
#[derive(Default)]
struct Failures {
    /// The last error after which it may have been executed.
    executed: Option<Error>,
    /// The unit did not take it.
    held: Option<Held>,
    /// Sessions that were lost under it, whether or not it had been sent.
    losses: u32,
    suspicion: Suspicion,
    /// Ports that have refused it in a row, without a pause between them.
    refusals: u32,
    /// The report of the suspicion.
    wait: Option<Wait>,
}

struct Held {
    since: Instant,
    /// The limit that counts now, and since when it does.
    limit: Duration,
    limit_since: Instant,
    pauses: BackOff,
    wait: Wait,
}

/// Whether a request is what ends the sessions that it is sent over.
#[derive(Debug, Default)]
struct Suspicion {
    /// Sessions that it had been sent over.
    losses: u32,
    /// Number of those where nothing else was in flight.
    alone: u32,
    /// Sessions that had been lost without a suspect alone on them, before it was.
    plain_losses: u64,
}

impl<'a, C: Carrier> Attempts<'a, C> {
    pub(super) const fn new(paths: &'a Paths<C>) -> Self {
        Self { paths, access_changes: 0, failures: None }
    }

    fn failures(&mut self) -> &mut Failures {
        self.failures.get_or_insert_default()
    }

    /// A try begins, and a port had been found in another state so often.
    pub(super) const fn begin(&mut self, access_changes: u64) {
        self.access_changes = access_changes;
    }

    /// The port of a path has refused it. Says whether it goes over another one at once: not where none serves the
    /// unit, and not for ever where each port that is said to serve it refuses.
    pub(super) fn goes_elsewhere(&mut self, path: PathId) -> bool {
        let failures = self.failures();
        failures.refusals += 1;
        failures.refusals < MAX_REFUSALS && self.paths.others_serve(path)
    }

    /// What the request asks of its path.
    pub(super) fn requirements(&self) -> Requirements {
        let is_suspect = |failures: &Failures| failures.suspicion.losses >= SUSPECT;
        Requirements { avoid: None, is_alone: self.failures.as_deref().is_some_and(is_suspect) }
    }

    /// One of two copies has ended so; the other one decides. What becomes of the request tells of
    /// this one as well.
    pub(super) fn note(&mut self, error: Error) {
        if error.may_have_executed() {
            self.failures().executed = Some(error);
        }
    }

    /// The unit does not take the request now: waits until it is worth another try.
    ///
    /// # Errors
    /// The same error, when that has gone on for so long; that of an earlier try, if it may have been
    /// executed.
    pub(super) async fn pause(&mut self, error: Error, limit: Duration) -> Result<(), Error> {
        let (paths, seen) = (self.paths, self.access_changes);
        let failures = self.failures();
        if error.may_have_executed() {
            failures.executed = Some(error.clone());
        } else {
            // It has been answered, so it need not end sessions.
            (failures.suspicion, failures.wait) = (Suspicion::default(), None);
        }
        let now = Instant::now();
        let answers = format!("the unit answers {}", answer_of(&error));
        let wait = || paths.report().wait(answers.clone(), Some(limit));
        let held = failures.held.get_or_insert_with(|| Held {
            since: now,
            limit,
            limit_since: now,
            pauses: paths.policy().retry.back_off(),
            wait: wait(),
        });
        if held.limit != limit {
            (held.limit, held.limit_since, held.wait) = (limit, now, wait());
        }
        let pause = held.pauses.next();
        let is_over = |since: Instant, limit| (now - since).saturating_add(pause) > limit;
        if is_over(held.limit_since, limit) || is_over(held.since, paths.policy().patience) {
            return Err(failures.executed.take().unwrap_or(error));
        }
        held.wait.say(answers);
        failures.refusals = 0;
        // A port that is found in another state may take it now.
        if timeout(pause, paths.access_changes_beyond(seen)).await.is_ok() {
            held.pauses = paths.policy().retry.back_off();
        }
        Ok(())
    }

    /// So long the next try waited for the class of the request: the unit has nothing to do with that.
    pub(super) fn waited_in_class(&mut self, time: Duration) {
        let held = self.failures.as_deref_mut().and_then(|failures| failures.held.as_mut());
        if let Some(held) = held {
            held.since += time;
            held.limit_since += time;
        }
    }

    /// A session was lost under the request, or a connection. The command and its blocks are what people are told of it.
    ///
    /// # Errors
    /// When there is no use in another try.
    pub(super) fn lost(
        &mut self,
        (command, blocks): (&'static str, Option<Range<u64>>),
        error: Error,
        was_alone: bool,
        goes_on: bool,
    ) -> Result<(), Error> {
        let paths = self.paths;
        let failures = self.failures();
        failures.losses += 1;
        // Over the next session the unit may take it immediately.
        failures.held = None;
        if error.may_have_executed() {
            let plain_losses = paths.lock().paths.plain_losses();
            failures.suspicion.add(was_alone, plain_losses);
            if failures.suspicion.is_proven(plain_losses) {
                let (times, cause) = (failures.suspicion.alone, Box::new(error));
                return Err(Error::EndsSessions { command, blocks, times, cause });
            }
            failures.tell(paths.report(), command, blocks.as_ref(), &error);
            failures.executed = Some(error.clone());
        }
        if goes_on && failures.losses < MAX_LOSSES {
            return Ok(());
        }
        Err(failures.executed.take().unwrap_or(error))
    }

    /// The error for the request, when nothing goes any more.
    pub(super) fn end(&mut self, end: Error) -> Error {
        let executed = self.failures.as_deref_mut().and_then(|failures| failures.executed.take());
        match executed {
            Some(lost) => end.after_loss(lost),
            None => end,
        }
    }
}

impl Failures {
    /// Tells people of a suspicion: the same of all who are under it, until one was alone on a session.
    fn tell(
        &mut self,
        report: &Arc<Report>,
        command: &'static str,
        blocks: Option<&Range<u64>>,
        error: &Error,
    ) {
        let Suspicion { losses, alone, .. } = self.suspicion;
        if alone == 0 {
            if losses >= SUSPECT {
                let text = "requests that were in flight on several sessions in a row that were \
                            lost are sent alone";
                self.wait = Some(report.wait(text.to_owned(), None));
            }
            return;
        }
        let blocks = of_blocks(blocks);
        let sessions = if alone == 1 { "session that was" } else { "sessions that were" };
        let text = format!("{command}{blocks} was alone on {alone} {sessions} lost: {error}");
        if alone == 1 {
            report.note(text.clone());
        }
        match &self.wait {
            Some(wait) => wait.say(text),
            None => self.wait = Some(report.wait(text, None)),
        }
    }
}

impl Suspicion {
    /// One more session was lost; so many had been without a suspect alone on them.
    const fn add(&mut self, was_alone: bool, plain_losses: u64) {
        self.losses += 1;
        if was_alone {
            if self.alone == 0 {
                self.plain_losses = plain_losses;
            }
            self.alone += 1;
        }
    }

    fn is_proven(&self, plain_losses: u64) -> bool {
        let others = u32::try_from(plain_losses.saturating_sub(self.plain_losses));
        let doubt = DOUBT.saturating_mul(others.unwrap_or(MAX_DOUBT)).min(MAX_DOUBT);
        self.alone >= GUILTY + doubt
    }
}
