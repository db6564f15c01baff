//! The driver: what owns a session's state machine and its sockets, and those that run it.
//!
//! It is behind a lock. A caller hands its request to the session itself, and sends a small one that nothing else goes
//! with; the [event loop](event_loop) waits for all else: the sockets, the deadlines, and what is left to it in a queue.
//! Callers are never waited for: what they get goes into a slot of their own.

mod alarm;
pub(crate) mod answers;
mod bytes;
mod callers;
pub(crate) mod connection_count;
mod connections;
pub(crate) mod connector;
mod event_loop;
pub(crate) mod handle;
pub(crate) mod io;
mod lock;
pub(crate) mod measure;
pub(crate) mod peer;
mod queue;
pub(crate) mod referral;
pub(crate) mod request;
pub(crate) mod shared;
mod stalls;
mod transports;
pub(crate) mod waiter;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use iscsi_pdu::Itt;
use iscsi_session::{Notice, Output, Session, SessionError, TaskError, TransportError};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;

use crate::driver::answers::Answers;
use crate::driver::connector::{Connected, Connector, Reach};
use crate::driver::peer::Peer;
use crate::driver::queue::Queue;
use crate::driver::request::{Answer, Holds, Message, Outcome, RequestId, Submission};
use crate::driver::shared::{SessionPhase, Shared};
use crate::error::{Error, SessionCause};
use crate::state::segment_limits::StartTrial;
use transports::Transport;

/// A session with its connections.
pub(crate) struct Driver {
    session: Session,
    peer: Peer,
    shared: Arc<Shared>,
    /// Around what is logged of the session: that of `shared`, which each request would have to fetch.
    span: Span,
    /// Number of messages that were announced and are not handled yet.
    told: usize,
    /// Memory for those that are acted on.
    messages: Vec<Message>,
    /// All handles are gone.
    orphaned: bool,
    /// The largest command window that the tuners of all connections know of; `None` when one of them may know of none.
    window: Option<u32>,
    /// The connections, the leading one first.
    transports: SmallVec<[Transport; 1]>,
    /// Which of them sends first in this turn.
    first: usize,
    connector: Connector,
    /// A connection to the portal of the URL that stands already.
    reached: Option<Box<Connected>>,
    /// How many connections the session shall have.
    connections: u16,
    /// Tries the path of a connection that stands still.
    start_trial: Option<StartTrial>,
    /// When the kernel is asked next what the connections wait for, as long as the driver is awake.
    poll_due: Instant,
    awake_until: Instant,
    /// For how many [`POLL_INTERVAL`](measure::tuner::POLL_INTERVAL)s the next answer counts.
    intervals: u32,
    /// For how long requests had waited in their class when that was asked last.
    waited_in_class: Duration,
    /// The command data that had been moved when the kernel was asked last.
    moved_at_poll: u64,
    /// When this turn began: all that it does is done then. The clock is the runtime's, so that tests
    /// can turn it, and asked once a turn.
    now: Instant,
    /// Wakes the event loop.
    waker: Option<Waker>,
    /// The event loop has something to do, or to wait for, that it does not know of.
    calls_loop: bool,
    /// When it wakes by itself.
    loop_due: Option<Instant>,
    pending: FxHashMap<Itt, Pending>,
    /// Requests since the sockets were written to last.
    unsent: usize,
    answers: Answers,
    ended: bool,
}

/// A request that the session has and has not finished with.
struct Pending {
    id: RequestId,
    name: &'static str,
    answer: Answer,
    holds: Holds,
}

impl Driver {
    fn new(session: Session, peer: Peer, shared: Arc<Shared>, reach: Reach) -> Self {
        let now = Instant::now();
        let Reach { connector, reached, connections, start_trial } = reach;
        Self {
            session,
            peer,
            span: shared.span.clone(),
            shared,
            told: 0,
            messages: Vec::new(),
            orphaned: false,
            window: None,
            transports: SmallVec::with_capacity(connections.into()),
            first: 0,
            connector,
            reached: reached.map(Box::new),
            connections,
            start_trial,
            poll_due: now,
            awake_until: now,
            intervals: 1,
            waited_in_class: Duration::ZERO,
            moved_at_poll: 0,
            now,
            waker: None,
            calls_loop: false,
            loop_due: None,
            pending: FxHashMap::default(),
            unsent: 0,
            answers: Answers::new(now),
            ended: false,
        }
    }

    /// Does and sends all that there is to do and to send now.
    fn finish_turn(&mut self) {
        self.dispatch();
        while !self.ended
            && let Err((cid, why)) = self.write_within_limits()
        {
            self.lose_unread(cid, why);
            self.dispatch();
        }
    }

    /// Acts on the messages that have come, up to so many at once; says how many there were.
    fn obey_messages(&mut self, queue: &Queue) -> usize {
        self.told = 0;
        queue.take(&mut self.messages);
        let count = self.messages.len();
        if count > 0 {
            self.answers.asked(count);
            let mut messages = std::mem::take(&mut self.messages);
            messages.drain(..).for_each(|message| self.obey(message));
            self.messages = messages;
        }
        count
    }

    fn obey(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.submit(*submission),
            Message::Cancel(id) => self.cancel(id),
            Message::Logout => self.session.logout(self.now()),
            Message::Loss(loss) => self.hear_of_loss(loss),
            Message::SlowTarget(bytes) => self.hear_of_slow_target(bytes),
            Message::Read(answer) => self.tell(answer),
        }
    }

    fn cancel(&mut self, id: RequestId) {
        let found = self.pending.iter().find(|(_, pending)| pending.id == id);
        let Some(itt) = found.map(|(itt, _)| *itt) else { return };
        let was_sent = self.session.give_up(itt, self.now());
        // What the unit never saw, it did not answer.
        if let Some(pending) = self.pending.get_mut(&itt).filter(|_| !was_sent) {
            pending.holds.listener = None;
        }
    }

    fn submit(&mut self, submission: Submission) {
        self.wake();
        let Submission { id, request, holds } = submission;
        if request.is_abandoned() {
            return;
        }
        let name = request.name();
        if holds.is_in_doubt() {
            let cause = TaskError::Withdrawn;
            return request
                .into_answer()
                .fail(Error::from(SessionCause::Task { request: name, cause }));
        }
        let now = self.now();
        let (result, answer) = request.start(&mut self.session, now);
        match result {
            Ok(itt) => {
                if holds.extent.is_some() {
                    self.shared.unsettled.begin();
                }
                self.pending.insert(itt, Pending { id, name, answer, holds });
                self.unsent += 1;
            }
            Err(iscsi_session::SubmitError::Closed) => answer.fail(Error::closed()),
            Err(why) => answer.fail(why.into()),
        }
    }

    /// Does and passes on all that the session wants done and passed on.
    fn dispatch(&mut self) {
        self.note_window();
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Connect { cid, address } => self.open(cid, address),
                Output::Disconnect { cid, abortive } => self.close(cid, abortive),
                Output::ConnectionLost { cid, why } => self.lost(cid, &why),
                Output::LoggedIn { cid } => self.logged_in(cid),
                Output::Notice(notice) => self.announce(&notice),
                Output::Completed { itt, result } => self.answer(itt, Outcome::Command(result)),
                Output::Managed { itt, result } => self.answer(itt, Outcome::Manage(result)),
                Output::Discovered { itt, result } => {
                    self.answer(itt, Outcome::SendTargets(result));
                }
                Output::Ponged { itt, result } => self.answer(itt, Outcome::Ping(result)),
                Output::Ended(result) => self.end(result),
                _ => {}
            }
        }
    }

    fn announce(&self, notice: &Notice) {
        if let Notice::Redirected { permanent, .. } = notice {
            self.shared.is_redirected(*permanent);
        }
        self.shared.notices.announce(notice);
    }

    /// When this turn began, for the session.
    fn now(&self) -> std::time::Instant {
        self.now.into_std()
    }

    /// Passes the end of a request on to its caller.
    fn answer(&mut self, itt: Itt, outcome: Outcome) {
        let Some(Pending { name, answer, mut holds, .. }) = self.pending.remove(&itt) else {
            return;
        };
        self.answers.given();
        if let (Some(listener), Outcome::Command(result)) = (&mut holds.listener, &outcome)
            && listener.ended(result)
        {
            self.withdraw_doubtful();
        }
        match holds.extent {
            Some(extent) if outcome.is_unsettled() => self.shared.unsettled.put(extent),
            Some(_) => self.shared.unsettled.end(),
            None => {}
        }
        answer.give(outcome, |why| self.peer.explain_task(name, why));
    }

    /// Takes back what is not on its way yet and must not be sent before its unit has been asked which
    /// one it is.
    fn withdraw_doubtful(&mut self) {
        let doubtful = self.pending.iter().filter(|(_, pending)| pending.holds.is_in_doubt());
        let mut doubtful: Vec<_> = doubtful.map(|(itt, _)| *itt).collect();
        doubtful.sort_unstable();
        let now = self.now();
        doubtful.into_iter().for_each(|itt| self.session.withdraw(itt, now));
    }

    fn end(&mut self, result: Result<(), SessionError>) {
        let result = result.map_err(|cause| self.peer.explain(cause, false));
        if let Some(reopening) = self.session.reopening() {
            self.shared.reopening.get_or_init(|| reopening);
        }
        self.shared.phase.set(SessionPhase::Ended(result));
        self.shared.notices.end();
        self.ended = true;
    }

    /// Nobody runs the session any more, and it may not have ended. The target may carry out what it was sent; what of that
    /// was still to be sent, a driver that a panic has left behind cannot be asked.
    fn abandon(&mut self) {
        if self.ended {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let extents = pending.values().filter_map(|pending| pending.holds.extent.as_ref());
        extents.for_each(|extent| self.shared.unsettled.put(Arc::clone(extent)));
        self.shared.phase.set(SessionPhase::Ended(Err(Error::closed())));
        self.shared.notices.end();
        self.ended = true;
        for Pending { name, answer, .. } in pending.into_values() {
            let cause = TransportError::Io("the task of its session has ended".to_owned()).into();
            answer.fail(self.peer.explain_task(name, TaskError::Session { cause, sent: true }));
        }
    }
}
