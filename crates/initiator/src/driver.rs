//! The event loop: the one task that owns a session's state machine and its sockets.
//!
//! It waits for whatever comes first (a socket, a request, a deadline) and never for one
//! direction of a socket alone: a full send buffer does not stop it from reading, nor does one
//! connection stop another. Callers are never waited for: what they ask for comes through a queue,
//! and what they get goes into a slot of their own.

mod bytes;
pub(crate) mod connection_count;
mod connections;
pub(crate) mod connector;
pub(crate) mod io;
pub(crate) mod measure;
pub(crate) mod peer;
pub(crate) mod request;
pub(crate) mod shared;
mod transports;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use iscsi_pdu::Itt;
use iscsi_session::{Notice, Output, Session, SessionError, TaskError};
use iscsi_tuner::Coalescing;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::driver::connector::{Connected, Connector};
use crate::driver::measure::tuner;
use crate::driver::peer::Peer;
use crate::driver::request::{Answer, Holds, Message, Outcome, Submission};
use crate::driver::shared::{RequestId, SessionPhase, Shared};
use crate::error::Error;
use transports::{Readiness, Transport, poll_any};

/// Requests taken from the queue at once, so that one system call sends many.
const MESSAGES_PER_TURN: usize = 64;

/// Owns a session, and runs it to its end.
pub(crate) struct Driver {
    session: Session,
    peer: Peer,
    shared: Arc<Shared>,
    messages: mpsc::UnboundedReceiver<Message>,
    /// Messages taken from the queue, not yet acted on.
    taken: Vec<Message>,
    /// All handles are gone.
    orphaned: bool,
    /// The connections, the leading one first.
    transports: Vec<Transport>,
    /// Which of them sends first in this turn.
    first: usize,
    connector: Connector,
    /// A connection to the portal of the URL that stands already.
    reached: Option<Connected>,
    /// How many connections the session shall have.
    connections: u16,
    /// When the kernel is asked next what the connections wait for, as long as the driver is awake.
    poll_due: Instant,
    awake_until: Instant,
    /// When this turn began: all that it does is done then. The clock is the runtime's, so that tests
    /// can turn it, and asked once a turn.
    now: Instant,
    /// Wakes for whatever is due first. A timer is looked at in each turn: a second one costs 1,200
    /// instructions more for each read of 4 KiB, which takes 24,100.
    alarm: Pin<Box<Sleep>>,
    pending: HashMap<Itt, Pending>,
    /// Requests that ended when something was read last, each of which had a caller, who has not asked again.
    answered: usize,
    /// Requests since the sockets were written to last.
    unsent: usize,
    /// Bytes that were read, of all connections.
    received: u64,
    /// When something was read last.
    read_at: Instant,
    coalescing: Coalescing,
    /// Bytes of the answers that are waited for together on each connection; 0 for any.
    awaited: u64,
    /// When the sockets are looked at next that keep bytes to themselves.
    look_due: Instant,
    ended: bool,
}

/// A request that the session has and has not finished with.
struct Pending {
    id: RequestId,
    name: &'static str,
    answer: Answer,
    holds: Holds,
}

/// What the loop waits for.
enum Event {
    Connection(Readiness),
    Poll,
    Look,
    Messages(usize),
    Alarm,
}

impl Driver {
    pub(crate) fn new(
        session: Session,
        peer: Peer,
        shared: Arc<Shared>,
        messages: mpsc::UnboundedReceiver<Message>,
        connector: Connector,
        reached: Option<Connected>,
        connections: u16,
    ) -> Self {
        let now = Instant::now();
        Self {
            session,
            peer,
            shared,
            messages,
            taken: Vec::with_capacity(MESSAGES_PER_TURN),
            orphaned: false,
            transports: Vec::with_capacity(connections.into()),
            first: 0,
            connector,
            reached,
            connections,
            poll_due: now,
            awake_until: now,
            now,
            alarm: Box::pin(sleep_until(now)),
            pending: HashMap::new(),
            answered: 0,
            unsent: 0,
            received: 0,
            read_at: now,
            coalescing: Coalescing::default(),
            awaited: 0,
            look_due: now,
            ended: false,
        }
    }

    /// Runs the session to its end.
    pub(crate) async fn run(mut self) {
        loop {
            self.dispatch();
            if self.ended {
                return;
            }
            if let Err((cid, why)) = self.write_within_limits() {
                self.lose_unread(cid, why);
                continue;
            }
            self.shared.set_stats(self.session.stats());
            self.await_answers();
            let event = self.next_event().await;
            let is_asked = matches!(event, Event::Messages(1..));
            if is_asked && self.may_others_ask() {
                self.let_others_ask().await;
            }
            self.now = Instant::now();
            self.handle(event);
            if is_asked {
                self.read_before_writing().await;
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let deadline = self.session.poll_timeout().map(|(deadline, _)| Instant::from_std(deadline));
        let poll_due = (self.now < self.awake_until).then_some(self.poll_due);
        let look_due = self.is_coalescing().then_some(self.look_due);
        let due = deadline.into_iter().chain(poll_due).chain(look_due).min();
        if let Some(due) = due.filter(|due| *due != self.alarm.deadline()) {
            self.alarm.as_mut().reset(due);
        }
        // In an order that does not change, so that a simulation can be repeated. What is rare comes
        // first, and last what may be ready all the time: as many requests as have room are under way.
        tokio::select! {
            biased;
            () = self.alarm.as_mut(), if due.is_some() => {
                match due {
                    _ if due == deadline => Event::Alarm,
                    _ if due == poll_due => Event::Poll,
                    _ => Event::Look,
                }
            }
            count = self.messages.recv_many(&mut self.taken, MESSAGES_PER_TURN), if !self.orphaned => {
                Event::Messages(count)
            }
            readiness = poll_fn(|context| poll_any(&mut self.transports, context)) => {
                Event::Connection(readiness)
            }
        }
    }

    /// Whether callers may be about to ask that have not yet: each asks again when it has its answer. For one that has asked
    /// nobody else is waited for; a turn for others takes its request to another thread and back: 26 us of processor time for
    /// a read of 4 KiB, 16 without.
    fn may_others_ask(&self) -> bool {
        self.answered > self.taken.len()
    }

    /// The first of many requests wakes the driver before the others have been made: a turn later
    /// one system call takes them all.
    async fn let_others_ask(&mut self) {
        let_others_run().await;
        while self.taken.len() < MESSAGES_PER_TURN
            && let Ok(message) = self.messages.try_recv()
        {
            self.taken.push(message);
        }
    }

    /// Before requests are sent, takes the answers that have come meanwhile: who waited for these asks again, and one
    /// system call sends all. The target has at least as many requests as are kept back, and when no answer is there,
    /// they are sent at once. A read of 4 KiB among 32 takes 2.5 system calls that way instead of 3.8, and a fifth less
    /// of the processor, from a target that sends each answer by itself.
    async fn read_before_writing(&mut self) {
        while self.unsent > 0 && 2 * self.unsent <= self.pending.len() {
            self.answered = 0;
            self.read_unasked();
            if self.answered == 0 {
                return;
            }
            self.let_others_ask().await;
            self.now = Instant::now();
            self.obey_taken();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connection(Readiness::Opened(cid, result)) => self.opened(cid, *result),
            Event::Connection(Readiness::Ready) => {
                self.answered = 0;
                self.read();
            }
            Event::Messages(0) => {
                self.orphaned = true;
                self.session.logout(self.now());
            }
            Event::Messages(_) => self.obey_taken(),
            Event::Poll => {
                self.poll_due = self.now + tuner::POLL_INTERVAL;
                self.read_kept();
                self.poll_kernel();
            }
            Event::Look => self.look(),
            Event::Alarm => {
                self.read_kept();
                self.session.handle_timeout(self.now());
            }
        }
    }

    fn obey_taken(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        self.answered = self.answered.saturating_sub(taken.len());
        taken.drain(..).for_each(|message| self.obey(message));
        self.taken = taken;
    }

    fn obey(&mut self, message: Message) {
        match message {
            Message::Submit(submission) => self.submit(*submission),
            Message::Cancel(id) => self.cancel(id),
            Message::Logout => self.session.logout(self.now()),
            Message::Loss(loss) => self.hear_of_loss(loss),
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
            return request.into_answer().fail(Error::Task { request: name, cause });
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
            Err(iscsi_session::SubmitError::Closed) => answer.fail(Error::Closed),
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
        if let Notice::Redirected { address, permanent } = notice {
            self.shared.redirected(address, *permanent);
        }
        self.shared.notices.announce(notice);
    }

    /// When this turn began, for the session.
    fn now(&self) -> std::time::Instant {
        self.now.into_std()
    }

    /// Passes the end of a request on to whoever waits for it.
    fn answer(&mut self, itt: Itt, outcome: Outcome) {
        let Some(Pending { name, answer, holds, .. }) = self.pending.remove(&itt) else { return };
        self.answered += 1;
        if let (Some(listener), Outcome::Command(result)) = (&holds.listener, &outcome)
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
        self.shared.set_stats(self.session.stats());
        if let Some(reopening) = self.session.reopening() {
            self.shared.reopening.get_or_init(|| reopening);
        }
        self.shared.phase.set(SessionPhase::Ended(result));
        self.shared.notices.end();
        self.ended = true;
    }
}

/// Goes behind the tasks that are to run already. In contrast to `tokio::task::yield_now` the runtime need not look at its
/// sockets in between, which is a system call.
async fn let_others_run() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
