//! Several sessions with one unit as one way to it.
//!
//! ```text
//!   requests ──► queue ──► schedule ──► path 0: session, unit
//!                  ▲           │   └──► path 1: session, unit
//!                  └───────────┘
//!        what a path could not finish, when it is gone
//! ```
//! A request takes a path when its turn comes and a path has room, not when it is made. All that
//! comes this way may be carried out twice without harm, so what was under way on a session that
//! ends goes to the others; and a request that is late on one is sent over another as well when
//! that has nothing else to do, or when it is stuck: the first answer counts.

mod back_off;
mod carriage;
mod flush;
mod identity;
mod keeper;
mod life;
mod opener;
pub(crate) mod opening;
mod path;
mod report;
mod schedule;
#[cfg(test)]
mod tests;
mod together;
mod trials;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::error::Error;
use crate::transfer::Transfer;

use carriage::Grant;
pub(crate) use identity::Identity;
pub(crate) use keeper::{Coming, Keep, Keeper};
pub(crate) use opener::{Opener, Wanted};
pub(crate) use path::Path;
pub(crate) use report::Report;
pub(crate) use schedule::{PathId, Room};
use schedule::{Schedule, Wish};

/// What brings a transfer to the unit.
pub(crate) trait Carrier: Clone + Send + Sync + 'static {
    /// How a transfer ends.
    type Answer: Send + 'static;

    /// Its end is looked after: what it leaves behind when it is lost counts until
    /// [`settle`](Self::settle).
    fn keep_unsettled(&self);

    /// Nothing that it left behind can happen any more, or matters.
    fn settle(&self);

    /// One more command is sent again.
    fn count_retry(&self);

    /// How many commands it has sent again.
    fn retries(&self) -> u64;

    /// Carries a transfer out, once or, where the unit asks for it, again.
    fn carry(
        self,
        transfer: Transfer,
    ) -> impl Future<Output = Result<Self::Answer, Error>> + Send + 'static;
}

/// The paths to one unit. Clones are the same paths.
pub(crate) struct Paths<C: Carrier = Path>(Arc<Shared<C>>);

/// The paths, as whoever looks after them knows them: they end with the last disk.
pub(crate) struct WeakPaths<C: Carrier = Path>(Weak<Shared<C>>);

struct Shared<C: Carrier> {
    state: Mutex<State<C>>,
    /// A path was lost, all of it has ended, or there is work after a rest.
    attention: Arc<Notify>,
    /// How long what may pass is put up with.
    patience: Duration,
    report: Arc<Report>,
}

struct State<C: Carrier> {
    paths: Vec<(PathId, C)>,
    schedule: Schedule,
    waiting: VecDeque<Waiting<C>>,
    /// Paths that were lost, for whoever opens them anew.
    lost: Vec<(C, Error)>,
    /// Paths that lead to the unit and are not served there, each with the reason.
    useless: Vec<(PathId, Error)>,
    /// Whether somebody opens lost paths anew.
    is_kept: bool,
    /// Why nothing goes any more.
    end: Option<Error>,
    next: u32,
    /// Bytes that were answered.
    moved: u64,
    /// Some path had nothing to do.
    was_idle: bool,
    /// Sessions that were lost while no request was alone there to see whether it ends them.
    plain_losses: u64,
    /// Commands that were sent again over paths that are gone.
    retries: u64,
    /// Whoever looks after the paths sleeps until there is work.
    is_unattended: bool,
}

/// A request that waits for a path with room.
struct Waiting<C: Carrier> {
    len: u64,
    wish: Wish,
    answer: oneshot::Sender<Grant<C>>,
}

/// What the paths have moved, and what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Bytes answered so far.
    pub(crate) moved: u64,
    /// Whether every path had something to do ever since the last look.
    pub(crate) is_busy: bool,
}

impl<C: Carrier> Clone for Paths<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Carrier> fmt::Debug for Paths<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths").field("open", &self.0.lock().paths.len()).finish_non_exhaustive()
    }
}

impl<C: Carrier> WeakPaths<C> {
    pub(crate) fn upgrade(&self) -> Option<Paths<C>> {
        self.0.upgrade().map(Paths)
    }
}

impl<C: Carrier> Paths<C> {
    /// A single path, with so much patience for what may pass.
    pub(crate) fn new(carrier: C, room: Room, patience: Duration, report: Arc<Report>) -> Self {
        let paths = Self(Arc::new(Shared {
            state: Mutex::new(State {
                paths: Vec::new(),
                schedule: Schedule::default(),
                waiting: VecDeque::new(),
                lost: Vec::new(),
                useless: Vec::new(),
                is_kept: false,
                end: None,
                next: 0,
                moved: 0,
                was_idle: false,
                plain_losses: 0,
                retries: 0,
                is_unattended: false,
            }),
            attention: Arc::default(),
            patience,
            report,
        }));
        paths.add(carrier, room);
        paths
    }

    pub(crate) fn downgrade(&self) -> WeakPaths<C> {
        WeakPaths(Arc::downgrade(&self.0))
    }

    /// Adds a path; what waits may take it at once.
    pub(crate) fn add(&self, carrier: C, room: Room) -> PathId {
        let mut state = self.0.lock();
        let id = PathId(state.next);
        state.next = state.next.wrapping_add(1);
        if state.is_kept {
            carrier.keep_unsettled();
        }
        state.schedule.add(id, room);
        state.paths.push((id, carrier));
        self.dispatch(&mut state, now());
        id
    }

    pub(crate) fn set_room(&self, id: PathId, room: Room) {
        let mut state = self.0.lock();
        state.schedule.set_room(id, room);
        self.dispatch(&mut state, now());
    }

    /// The paths that take requests, the oldest first.
    pub(crate) fn working(&self) -> Vec<PathId> {
        let state = self.0.lock();
        let ids = state.paths.iter().map(|(id, _)| *id);
        ids.filter(|id| !state.schedule.is_closing(*id)).collect()
    }

    /// The paths that are open.
    pub(crate) fn open(&self) -> Vec<(PathId, C)> {
        self.0.lock().paths.clone()
    }

    /// Somebody opens lost paths anew from now on: without any, requests wait for the next.
    pub(crate) fn keep(&self) {
        let mut state = self.0.lock();
        state.is_kept = true;
        state.paths.iter().for_each(|(_, carrier)| carrier.keep_unsettled());
    }

    /// The paths that were set aside since the last call, each with the reason.
    pub(crate) fn take_useless(&self) -> Vec<(PathId, Error)> {
        std::mem::take(&mut self.0.lock().useless)
    }

    /// The path takes nothing more.
    pub(crate) fn close(&self, id: PathId) {
        self.0.lock().schedule.close(id);
    }

    /// Gives back the carrier of a path that was closed, once what is under way on it has ended;
    /// `None` if it is needed again, or was lost.
    pub(crate) async fn let_go(&self, id: PathId) -> Option<C> {
        const LOOK: Duration = Duration::from_millis(20);
        loop {
            {
                let mut state = self.0.lock();
                if !state.schedule.is_closing(id) {
                    return None;
                }
                if state.schedule.under_way(id) == 0 {
                    state.schedule.remove(id);
                    return state.take_out(id);
                }
            }
            sleep(LOOK).await;
        }
    }

    /// The paths that were lost since the last call, each with the reason.
    pub(crate) fn take_lost(&self) -> Vec<(C, Error)> {
        std::mem::take(&mut self.0.lock().lost)
    }

    /// Tells when a path is lost, when all of it has ended, and when there is work after a rest.
    pub(crate) fn attention(&self) -> Arc<Notify> {
        Arc::clone(&self.0.attention)
    }

    /// How many commands were sent again, over all paths that there are and were.
    pub(crate) fn retries(&self) -> u64 {
        let state = self.0.lock();
        let open = state.paths.iter().map(|(_, carrier)| carrier.retries());
        state.retries + open.sum::<u64>()
    }

    /// Nobody looks until the next request calls for [`attention`](Self::attention).
    pub(crate) fn leave_unattended(&self) {
        self.0.lock().is_unattended = true;
    }

    /// Whether nothing goes any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().end.is_some()
    }

    /// What was moved so far.
    pub(crate) fn progress(&self) -> Progress {
        let mut state = self.0.lock();
        let is_busy = !std::mem::take(&mut state.was_idle)
            && state.paths.iter().all(|(id, _)| state.schedule.under_way(*id) > 0);
        Progress { moved: state.moved, is_busy }
    }

    /// Nothing goes any more; what waits fails.
    pub(crate) fn end(&self, why: &Error) {
        let mut state = self.0.lock();
        state.is_kept = false;
        state.end.get_or_insert_with(|| why.as_not_executed());
        state.waiting.clear();
        state.paths.iter().for_each(|(_, carrier)| carrier.settle());
        state.lost.drain(..).for_each(|(carrier, _)| carrier.settle());
        self.0.attention.notify_one();
    }

    /// Whether there is no other path that a request could go over.
    fn is_alone(&self) -> bool {
        self.0.lock().paths.len() < 2
    }

    /// How long a request had better be, bytes.
    pub(crate) fn grain(&self) -> u64 {
        self.0.lock().schedule.grain()
    }

    /// Waits for a path with room.
    async fn grant(&self, len: usize, wish: Wish) -> Result<Grant<C>, Error> {
        let waits = |state: &mut State<C>, waiting| state.waiting.push_back(waiting);
        self.granted(len, wish, waits).await
    }

    /// Gives the place on a path back for one on any path; who has waited before is the first.
    async fn grant_again(
        &self,
        grant: Grant<C>,
        len: usize,
        wish: Wish,
    ) -> Result<Grant<C>, Error> {
        let waits = |state: &mut State<C>, waiting| {
            grant.give_up(&mut state.schedule);
            state.waiting.push_front(waiting);
        };
        self.granted(len, wish, waits).await
    }

    async fn granted(
        &self,
        len: usize,
        wish: Wish,
        waits: impl FnOnce(&mut State<C>, Waiting<C>),
    ) -> Result<Grant<C>, Error> {
        let granted = {
            let mut state = self.0.lock();
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            let (answer, granted) = oneshot::channel();
            waits(&mut state, Waiting { len: len as u64, wish, answer });
            self.dispatch(&mut state, now());
            granted
        };
        granted.await.map_err(|_| self.reason_of_end())
    }

    fn grant_now(
        &self,
        state: &mut State<C>,
        len: u64,
        wish: Wish,
        now: Instant,
    ) -> Option<Grant<C>> {
        let id = state.schedule.pick(len, wish, now)?;
        self.take(state, id, len, wish, now)
    }

    fn take(
        &self,
        state: &mut State<C>,
        id: PathId,
        len: u64,
        wish: Wish,
        now: Instant,
    ) -> Option<Grant<C>> {
        let carrier = state.paths.iter().find(|(path, _)| *path == id)?.1.clone();
        let is_crowded = !state.waiting.is_empty();
        let ticket = state.schedule.begin(id, len, wish, is_crowded, now)?;
        if std::mem::take(&mut state.is_unattended) {
            self.0.attention.notify_one();
        }
        Some(Grant::new(self.clone(), carrier, id, now, ticket))
    }

    /// Gives paths to those that wait, in their order. One that only must not use the path which is
    /// free, or must be alone on one, does not hold up the others.
    fn dispatch(&self, state: &mut State<C>, now: Instant) {
        state.schedule.spare(false);
        let mut at = 0;
        while let Some(waiting) = state.waiting.remove(at) {
            if waiting.answer.is_closed() {
                continue;
            }
            let Wish { avoid, is_alone } = waiting.wish;
            let Some(grant) = self.grant_now(state, waiting.len, waiting.wish, now) else {
                state.waiting.insert(at, waiting);
                if is_alone {
                    state.schedule.spare(true);
                } else if avoid.is_none() {
                    return;
                }
                at += 1;
                continue;
            };
            if let Err(grant) = waiting.answer.send(grant) {
                // Its drop would want the lock.
                grant.give_up(&mut state.schedule);
            }
        }
    }

    /// A path is gone. Says whether there is another, or one may come.
    pub(crate) fn lose(&self, id: PathId, error: &Error) -> bool {
        let mut state = self.0.lock();
        if state.end.is_some() {
            return false;
        }
        if let Some(carrier) = state.take_out(id) {
            tracing::debug!(path = id.0, %error, "a session is lost");
            state.plain_losses += u64::from(!state.schedule.is_alone(id));
            state.schedule.remove(id);
            // One that was to be let go has to do until there is another.
            state.schedule.reopen_if_none_is_left();
            state.lost.push((carrier, error.clone()));
            self.0.attention.notify_one();
        }
        if state.paths.is_empty() && !state.is_kept {
            tracing::debug!(%error, "no session is left");
            state.end = Some(error.as_not_executed());
            state.waiting.clear();
            return false;
        }
        self.dispatch(&mut state, now());
        true
    }

    /// A path is not served by the unit: others take its requests. Says whether there are any.
    fn set_aside(&self, id: PathId, error: &Error) -> bool {
        let mut state = self.0.lock();
        if state.schedule.is_last(id) {
            return false;
        }
        if !state.schedule.is_closing(id) {
            tracing::debug!(path = id.0, %error, "a session is of no use");
            state.schedule.close(id);
            state.useless.push((id, error.clone()));
            self.0.attention.notify_one();
        }
        true
    }

    fn reason_of_end(&self) -> Error {
        self.0.lock().end.clone().unwrap_or(Error::Closed)
    }
}

impl<C: Carrier> State<C> {
    fn take_out(&mut self, id: PathId) -> Option<C> {
        let at = self.paths.iter().position(|(path, _)| *path == id)?;
        let (_, carrier) = self.paths.remove(at);
        self.retries += carrier.retries();
        Some(carrier)
    }
}

impl<C: Carrier> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Carrier> Drop for Shared<C> {
    /// Whoever looks after the paths may sleep, and need not any more.
    fn drop(&mut self) {
        self.attention.notify_one();
    }
}

/// The clock of the runtime, so that tests can turn it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
