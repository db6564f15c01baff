//! Executes one read, write or other transfer of a disk, step by step as
//! [`Requests`](iscsi_multipath::requests::Requests) decides.

use std::future::{pending, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use iscsi_multipath::requests::{AttemptId, Failure, RequestSpec, Route};
use iscsi_session::Completion;
use smallvec::SmallVec;

use crate::boxed::BoxFuture;
use crate::error::{CallerCause, Error};
use crate::multipath::paths::path::{Path, SentCommand};
use crate::multipath::paths::{Paths, now};
use crate::multipath::requests::inbox::{Answer, Attempt, Order, Unproven};
use crate::multipath::requests::outputs::Flight;
use crate::multipath::requests::report::RequestReport;
use crate::multipath::requests::request::Request;
use crate::runtime;
use crate::scheduler::Charge;
use crate::state::budget::Permit;
use crate::state::counters::RequestKind;
use crate::unit::logical_unit::LogicalUnit;
use crate::unit::transfer::Transfer;

type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The result of a transfer, and the time that it took, including waits.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answer: Completion,
    pub(crate) time: Duration,
}

impl Answered {
    /// Returns the result of a transfer that began at `begun`.
    fn since(begun: Instant, Answer { completion, came, .. }: Answer) -> Self {
        Self { answer: completion, time: came.saturating_duration_since(begun) }
    }
}

/// A transfer that its first attempt has not completed yet, or could not complete.
struct Execution<'a> {
    request: Request<'a>,
    paths: &'a Paths,
    /// The transfer, which each attempt sends.
    transfer: Transfer,
    /// The share of the budget that the request holds.
    memory: Arc<Permit>,
    copies: SmallVec<[Copy; 2]>,
    /// Memory of a copy that ended while another one was in flight. If the copy is sent again, it uses this
    /// memory.
    spare: Option<Arc<Permit>>,
    payment: Payment<'a>,
    /// Payment to the traffic class for a second copy that was not sent yet.
    hedge_payment: Payment<'a>,
    /// Memory for a second copy of a read.
    permit: Option<Permit>,
    reserving: Option<Waiting<'a, Permit>>,
    last: Option<Path>,
    report: RequestReport,
}

/// Payment to the traffic class for an attempt that was not sent yet.
#[derive(Default)]
struct Payment<'a> {
    waiting: Option<Waiting<'a, Charge>>,
    charge: Option<Charge>,
}

/// One copy of the request. Copies may be in flight on several paths.
struct Copy {
    attempt: AttemptId,
    /// Memory of the copy; `None` if the copy uses the memory of the request.
    permit: Option<Arc<Permit>>,
    charge: Option<Charge>,
    progress: Progress,
}

/// Progress of a copy. The rare states are boxed.
enum Progress {
    /// The copy is held back until the unit on its path is confirmed.
    Held(Box<Held>),
    /// The copy was handed over to its session, which reports its end.
    Sent(SentCommand),
    /// The copy was executed, but perhaps by another unit. Its result does not count until the unit is
    /// confirmed.
    Unproven(Box<Proving>),
    /// The copy has ended. The next [`Order`] says what follows.
    Over,
}

struct Held {
    flight: Flight,
    path: Path,
    recognition: BoxFuture<'static, Result<(), Error>>,
}

struct Proving {
    flight: Flight,
    unproven: Box<Unproven>,
    proof: BoxFuture<'static, Result<(), Error>>,
}

/// Event that the execution waits for.
enum Event {
    Order(Order),
    /// The check of the unit for the copy at this index has ended.
    Recognized(usize, Result<(), Error>),
    /// The traffic class has admitted an attempt or a second copy.
    Charged {
        charged: Result<Charge, Error>,
        is_hedge: bool,
    },
    Reserved(Result<Permit, Error>),
}

/// Executes a transfer over any path that takes it. If the session of that path is lost, executes it over
/// another path. Invariant: a second execution of the transfer changes nothing that the first execution did
/// not change.
///
/// The transfer first waits for its share of the budget, then for its traffic class, then for a path. So it
/// takes a path only when it can be sent immediately. While the transfer waits, no time limit of a path runs.
/// Bytes paid to the class are sent immediately.
///
/// # Errors
/// The error of the last attempt that may have been executed; the last error if there was no such attempt.
/// Exception: if the unit reports a permanent error for the last attempt, that error is returned, whatever
/// the results of earlier attempts.
#[expect(clippy::manual_async_fn, reason = "an async fn would keep the transfer twice")]
pub(crate) fn execute(
    paths: &Paths,
    mut transfer: Transfer,
) -> impl Future<Output = Result<Answered, Error>> + Send {
    async move {
        runtime::require()?;
        let len = transfer.len();
        let begun = now();
        // Usually the budget has room. Then the transfer did not wait, and the clock need not be read
        // again.
        let (permit, ready) = match paths.try_reserve(len) {
            Some(permit) => (permit, begun),
            None => (paths.reserve(len).await?, now()),
        };
        let memory = Arc::new(permit);
        let (kind, spec) = (transfer.kind(), spec(paths, &transfer));
        let (mut request, mut order) =
            Request::submit_and_listen(paths, kind, spec, (begun, ready)).await;
        let mut first = None;
        if let Some(Order::Send(attempt)) = order {
            first = Copy::send(&request, attempt, (&mut transfer, &memory), (None, None));
            order = match &first {
                Some(Copy { progress: Progress::Sent(_), .. }) => Some(request.next().await),
                Some(_) | None => None,
            };
        }
        if let Some(Order::Completed(Ok(_))) = order
            && let Some(answer) = request.answer.take()
        {
            request.complete();
            first.into_iter().for_each(Copy::leave);
            return Ok(Answered::since(begun, answer));
        }
        // Boxed, because a request that succeeds at the first attempt does not need this memory.
        let execution = Execution::new(request, paths, (transfer, memory), first);
        let answer = Box::pin(execution.run(order)).await?;
        Ok(Answered::since(begun, answer))
    }
}

fn spec(paths: &Paths, transfer: &Transfer) -> RequestSpec {
    RequestSpec {
        len: transfer.len() as u64,
        writes: transfer.writes(),
        is_plain: matches!(transfer.kind(), RequestKind::Read | RequestKind::Write),
        // If the unit does not support a form of the command, the transfer decides whether there is a
        // shorter form.
        can_shorten: true,
        can_double: paths.budget().max_of(transfer.len()) >= 2,
        route: Route::Credit,
    }
}

/// Waits until the traffic class admits `len` bytes. Every attempt of a request pays for its bytes, and so
/// does a second copy, because its bytes use the link too.
async fn pass(paths: &Paths, len: usize) -> Result<Charge, Error> {
    let class = paths.policy().class.as_ref().ok_or(CallerCause::ClassClosed)?;
    let _waiting = paths.in_class().join();
    class.pass(len as u64).await.ok_or_else(|| CallerCause::ClassClosed.into())
}

impl Copy {
    /// Sends a copy of a request over a path after the unit on that path is confirmed. `charge` is the payment
    /// to the traffic class. Returns `None` if the session did not take the copy.
    fn send(
        request: &Request<'_>,
        attempt: Attempt,
        (transfer, memory): (&mut Transfer, &Arc<Permit>),
        (permit, charge): (Option<Arc<Permit>>, Option<Charge>),
    ) -> Option<Self> {
        let attempted = request.attempted(&attempt);
        let Attempt { id, carrier: path, .. } = attempt;
        let progress = match path.unit.recognition_for(transfer) {
            Some(recognition) => {
                let flight = request.flight(attempted);
                Progress::Held(Box::new(Held { flight, path, recognition }))
            }
            None => {
                let permit = Arc::clone(permit.as_ref().unwrap_or(memory));
                let requester = request.requester();
                match path.hand_over(transfer, permit, requester, attempted) {
                    Ok(sent) => Progress::Sent(sent),
                    Err(error) => {
                        request.flight(attempted).fail(&error);
                        return None;
                    }
                }
            }
        };
        // From here on the command may be on the wire, even if its caller stops waiting. So the payment is not
        // refunded when the copy is dropped; that includes a copy that is held back.
        let charge = charge.map(Charge::sent);
        Some(Self { attempt: id, permit, charge, progress })
    }
}

impl<'a> Execution<'a> {
    fn new(
        request: Request<'a>,
        paths: &'a Paths,
        (transfer, memory): (Transfer, Arc<Permit>),
        first: Option<Copy>,
    ) -> Self {
        let last = first.as_ref().and_then(Copy::path).cloned();
        let report = RequestReport::new(paths.report(), transfer.name(), transfer.blocks());
        Self {
            request,
            paths,
            transfer,
            memory,
            copies: first.into_iter().collect(),
            spare: None,
            payment: Payment::default(),
            hedge_payment: Payment::default(),
            permit: None,
            reserving: None,
            last,
            report,
        }
    }

    async fn run(mut self, mut order: Option<Order>) -> Result<Answer, Error> {
        loop {
            let event = match order.take() {
                Some(order) => Event::Order(order),
                None => self.next().await,
            };
            match event {
                Event::Order(Order::Completed(result)) => {
                    self.request.complete();
                    return self.completed(result).await;
                }
                Event::Order(order) => self.follow(order),
                Event::Recognized(at, result) => self.recognized(at, result),
                Event::Charged { charged, is_hedge } => self.charged(charged, is_hedge),
                Event::Reserved(reserved) => self.reserved(reserved.ok()),
            }
        }
    }

    /// Waits for the next event. Steps of the request come first, because a step may make other events
    /// irrelevant.
    async fn next(&mut self) -> Event {
        let Self { request, copies, payment, hedge_payment, reserving, .. } = self;
        tokio::select! {
            biased;
            order = request.next() => Event::Order(order),
            (at, result) = recognized(copies) => Event::Recognized(at, result),
            charged = some(&mut payment.waiting) => Event::Charged { charged, is_hedge: false },
            charged = some(&mut hedge_payment.waiting) => Event::Charged { charged, is_hedge: true },
            reserved = some(reserving) => Event::Reserved(reserved),
        }
    }

    fn follow(&mut self, order: Order) {
        let spare = self.spare.take();
        match order {
            Order::Send(attempt) => self.send(attempt, spare),
            Order::Abort(attempt) => self.abort(attempt),
            Order::Ended(attempt, buffer) => self.ended(attempt, buffer),
            Order::Prove(unproven) => self.prove(unproven),
            Order::Charge { is_hedge } => {
                let waiting = Box::pin(pass(self.paths, self.transfer.len()));
                self.payment_of(is_hedge).waiting = Some(waiting);
            }
            Order::Reserve { waits: true } => {
                self.reserving = Some(Box::pin(self.paths.reserve(self.transfer.len())));
            }
            Order::Reserve { waits: false } => {
                let permit = self.paths.try_reserve(self.transfer.len());
                self.reserved(permit);
            }
            Order::Unreserve => {
                // Dropping the payment refunds the bytes to the traffic class.
                self.hedge_payment = Payment::default();
                (self.permit, self.reserving) = (None, None);
            }
            Order::Report(report) => self.report.apply(report),
            // A transfer gets no `Prepare`, and `run` handles `Completed`. `TimerSet` needs no action, because
            // the next wait reads the timer again.
            Order::Prepare | Order::Completed(_) | Order::TimerSet => {}
        }
    }

    fn payment_of(&mut self, is_hedge: bool) -> &mut Payment<'a> {
        if is_hedge { &mut self.hedge_payment } else { &mut self.payment }
    }

    fn charged(&mut self, charged: Result<Charge, Error>, is_hedge: bool) {
        self.payment_of(is_hedge).waiting = None;
        let (request, now) = (self.request.id(), now());
        match charged {
            Ok(charge) => {
                self.payment_of(is_hedge).charge = Some(charge);
                self.paths.change(|state| state.requests.charged(request, now));
            }
            Err(why) => self.paths.change(|state| state.requests.not_charged(request, why)),
        }
    }

    fn reserved(&mut self, permit: Option<Permit>) {
        self.reserving = None;
        let (request, is_reserved) = (self.request.id(), permit.is_some());
        self.permit = permit;
        self.paths.change(|state| state.requests.reserved(request, is_reserved, now()));
    }

    /// Sends a copy over a path. `spare` is the memory of a copy that has just ended, which this copy may
    /// use.
    fn send(&mut self, attempt: Attempt, spare: Option<Arc<Permit>>) {
        let is_hedge = attempt.is_hedge;
        // A second copy of a write without memory of its own sends the pages of the first copy.
        let permit = if is_hedge { self.permit.take().map(Arc::new) } else { spare };
        if attempt.is_short {
            self.transfer.shorten();
        }
        let charge = self.payment_of(is_hedge).charge.take();
        self.last = Some(attempt.carrier.clone());
        let Self { request, transfer, memory, copies, .. } = self;
        copies.extend(Copy::send(request, attempt, (transfer, memory), (permit, charge)));
    }

    /// Aborts a copy that is not needed. If its command was sent, the session still reports the command's
    /// end.
    fn abort(&mut self, attempt: AttemptId) {
        let Some(at) = self.position(attempt) else { return };
        match self.copies.get(at).map(|copy| &copy.progress) {
            Some(Progress::Sent(sent)) => sent.give_up(),
            Some(_) => drop(self.copies.remove(at)),
            None => {}
        }
    }

    /// Handles a copy that was sent and failed.
    fn ended(&mut self, attempt: AttemptId, buffer: BytesMut) {
        let Some(at) = self.position(attempt) else { return };
        let copy = self.copies.remove(at);
        self.spare.clone_from(&copy.permit);
        self.transfer.restore(buffer);
        copy.end(&self.transfer, 0);
    }

    /// Confirms the unit of a copy that was executed, perhaps by another unit.
    fn prove(&mut self, unproven: Box<Unproven>) {
        let Some(at) = self.position(unproven.attempt) else { return };
        let Some(copy) = self.copies.get_mut(at) else { return };
        let Some(unit) = copy.path().map(|path| path.unit.clone()) else { return };
        let Self { request, .. } = self;
        let flight = request.flight(request.attempted_over(unproven.attempt, unproven.path));
        let wants_proof = self.transfer.wants_proof();
        let proof = Box::pin(async move { unit.prove(wants_proof).await });
        let proving = Progress::Unproven(Box::new(Proving { flight, unproven, proof }));
        if let Progress::Sent(sent) = mem::replace(&mut copy.progress, proving) {
            sent.leave();
        }
    }

    /// Handles the result of confirming the unit of a copy.
    fn recognized(&mut self, at: usize, result: Result<(), Error>) {
        let Some(copy) = self.copies.get_mut(at) else { return };
        let failed = match (mem::replace(&mut copy.progress, Progress::Over), result) {
            (Progress::Held(held), Ok(())) => {
                let Held { flight, path, .. } = *held;
                let (requester, attempted) = (self.request.requester(), *flight.attempted());
                let permit = Arc::clone(copy.permit.as_ref().unwrap_or(&self.memory));
                match path.hand_over(&mut self.transfer, permit, requester, attempted) {
                    Ok(sent) => {
                        flight.leave();
                        copy.progress = Progress::Sent(sent);
                        None
                    }
                    Err(error) => Some((flight, error)),
                }
            }
            (Progress::Unproven(proving), Ok(())) => {
                let Proving { flight, unproven, .. } = *proving;
                let Unproven { begun, completion, .. } = *unproven;
                let good = LogicalUnit::good_end(&self.transfer);
                if let Err(completion) = flight.prove(&begun, good, *completion) {
                    let copy = self.copies.remove(at);
                    self.transfer.restore(completion.data);
                    copy.end(&self.transfer, 0);
                }
                None
            }
            (Progress::Held(held), Err(error)) => Some((held.flight, error)),
            (Progress::Unproven(proving), Err(error)) => Some((proving.flight, error)),
            (progress @ (Progress::Sent(_) | Progress::Over), _) => {
                copy.progress = progress;
                None
            }
        };
        if let Some((flight, error)) = failed {
            self.copies.remove(at).end(&self.transfer, 0);
            flight.fail(&error);
        }
    }

    fn position(&self, attempt: AttemptId) -> Option<usize> {
        self.copies.iter().position(|copy| copy.attempt == attempt)
    }

    async fn completed(
        mut self,
        result: Result<AttemptId, Failure<Error>>,
    ) -> Result<Answer, Error> {
        let answered = result.as_ref().ok().copied();
        let answer = self.request.answer.take();
        let moved = answer.as_ref().map_or(0, |answer| answer.completion.data.len() as u64);
        // The request does not wait for the other copies. Each copy keeps its share of the budget and its
        // locked range until its command has ended.
        for copy in self.copies.drain(..) {
            if answered == Some(copy.attempt) {
                copy.end(&self.transfer, moved);
            } else {
                copy.leave();
            }
        }
        let Err(failure) = result else { return answer.ok_or_else(Error::closed) };
        let has_met_reservation = matches!(failure, Failure::Reservation(_));
        let error = self.report.error_of(failure);
        Err(match self.last {
            Some(last) if has_met_reservation => last.explain(&self.transfer, error).await,
            Some(_) | None => error,
        })
    }
}

impl Copy {
    /// Ends the copy. `moved` is the number of bytes that a read has returned.
    fn end(mut self, transfer: &Transfer, moved: u64) {
        // The bytes of a write have been sent even if the write fails, so only reads get a refund.
        if let Some(charge) = self.charge.take().filter(|_| !transfer.writes()) {
            charge.complete(moved);
        }
        self.leave();
    }

    /// Returns the path of the copy; `None` in the states `Unproven` and `Over`.
    fn path(&self) -> Option<&Path> {
        match &self.progress {
            Progress::Held(held) => Some(&held.path),
            Progress::Sent(sent) => Some(sent.path()),
            Progress::Unproven(_) | Progress::Over => None,
        }
    }

    /// Detaches the copy: if its command was sent, the command continues without the copy.
    fn leave(self) {
        if let Progress::Sent(sent) = self.progress {
            sent.leave();
        }
    }
}

/// Waits until the check of the unit for one of the copies has ended. Returns the index of the copy, and the
/// result.
async fn recognized(copies: &mut [Copy]) -> (usize, Result<(), Error>) {
    poll_fn(|context| {
        for (at, copy) in copies.iter_mut().enumerate() {
            let waiting = match &mut copy.progress {
                Progress::Held(held) => &mut held.recognition,
                Progress::Unproven(proving) => &mut proving.proof,
                Progress::Sent(_) | Progress::Over => continue,
            };
            if let Poll::Ready(result) = waiting.as_mut().poll(context) {
                return Poll::Ready((at, result));
            }
        }
        Poll::Pending
    })
    .await
}

async fn some<T>(waiting: &mut Option<Waiting<'_, T>>) -> Result<T, Error> {
    match waiting {
        Some(waiting) => waiting.await,
        None => pending().await,
    }
}
