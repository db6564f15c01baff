//! One read, write or other transfer of a disk, carried out by the orders of [`Requests`](iscsi_multipath::requests::Requests).

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use iscsi_multipath::requests::{AttemptId, Failure, RequestSpec, Route};
use iscsi_session::Completion;
use smallvec::SmallVec;

use crate::error::Error;
use crate::multipath::inbox::{Attempt, Order};
use crate::multipath::path::Path;
use crate::multipath::paths::{Paths, now};
use crate::multipath::request::Request;
use crate::multipath::request_report::RequestReport;
use crate::runtime;
use crate::scheduler::Charge;
use crate::state::budget::Permit;
use crate::state::cancellation::Cancellation;
use crate::state::counters::RequestKind;
use crate::unit::transfer::Transfer;

/// An answer, and when it came.
type Timed = (Completion, Instant);
/// The end of an attempt, with the transfer for another one.
type Carried = Pin<Box<dyn Future<Output = (Transfer, Option<Timed>)> + Send>>;
type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The answer to a transfer, and the time that it took, waits included.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answer: Completion,
    pub(crate) time: Duration,
}

impl Answered {
    /// The answer that came at this time to a transfer that had begun at that.
    fn since(begun: Instant, (answer, came): Timed) -> Self {
        Self { answer, time: came.saturating_duration_since(begun) }
    }
}

/// A transfer that needs more than one attempt over the only path.
struct Execution<'a> {
    request: Request<'a>,
    paths: &'a Paths,
    /// What the next attempt sends.
    transfer: Transfer,
    copies: SmallVec<[Copy; 2]>,
    /// The copy that has just ended beside another one: it may be sent again, within its own memory.
    ended: Option<Transfer>,
    /// The answer of the attempt that has succeeded.
    answer: Option<Timed>,
    payment: Payment<'a>,
    /// What is paid to the class for a second copy, before it is sent.
    hedge_payment: Payment<'a>,
    /// The memory of a second copy of a read.
    permit: Option<Permit>,
    reserving: Option<Waiting<'a, Permit>>,
    /// The path of the last attempt.
    last: Option<Path>,
    report: RequestReport,
}

/// What is paid to the class for an attempt, before it is sent.
#[derive(Default)]
struct Payment<'a> {
    waiting: Option<Waiting<'a, Charge>>,
    charge: Option<Charge>,
}

/// One of the copies of a request in flight.
struct Copy {
    attempt: AttemptId,
    carried: Carried,
    /// How a write is given up.
    cancellation: Option<Cancellation>,
}

/// What happens next.
#[expect(clippy::large_enum_variant, reason = "it is handled where it is made")]
enum Event {
    Order(Order),
    /// The copy at this place has ended.
    Ended(usize, Transfer, Option<Timed>),
    /// The class has let an attempt pass, or a second copy.
    Charged {
        charged: Result<Charge, Error>,
        is_hedge: bool,
    },
    Reserved(Result<Permit, Error>),
}

impl Paths {
    /// Executes a transfer over whichever path takes it, and over another one if that is lost. Invariant: a second execution
    /// of it changes nothing that the first did not.
    ///
    /// It waits for its share of the budget first, then for its class, then for a path: so it takes whichever has credit when
    /// it can go, no path's time runs while it waits, and what it has paid to its class goes out immediately.
    ///
    /// # Errors
    /// The error of the last attempt that may have been executed, if there was one, or else the last error. But an answer
    /// of the unit to the last attempt that will not change stands, whatever became of the earlier ones.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep the transfer twice")]
    pub(crate) fn execute(
        &self,
        mut transfer: Transfer,
    ) -> impl Future<Output = Result<Answered, Error>> + Send {
        async move {
            runtime::require()?;
            let len = transfer.len();
            let begun = now();
            // Mostly it need not wait, and the clock is not read again.
            let (permit, ready) = match self.try_reserve(len) {
                Some(permit) => (permit, begun),
                None => (self.reserve(len).await?, now()),
            };
            transfer.set_permit(Arc::new(permit));
            let (mut request, order) =
                Request::submit(self, transfer.kind(), self.spec(&transfer), ready);
            let mut last = None;
            let order = match order {
                Some(Order::Send(attempt)) if attempt.is_only => {
                    let flight = request.flight(&attempt);
                    // It has paid to no class, which it would wait for.
                    let (result, now) = carry(&attempt.carrier, None, &mut transfer).await;
                    let order =
                        flight.end_and_take(result.as_ref().map(drop), Some(&transfer), now);
                    if let Ok(answer) = result {
                        request.complete();
                        return Ok(Answered::since(begun, (answer, now)));
                    }
                    last = Some(attempt.carrier);
                    order
                }
                order => order,
            };
            // Boxed, since a request that succeeds over the only path does not need the room.
            let timed = Box::pin(Execution::new(request, self, transfer, last).run(order)).await?;
            Ok(Answered::since(begun, timed))
        }
    }

    fn spec(&self, transfer: &Transfer) -> RequestSpec {
        RequestSpec {
            len: transfer.len() as u64,
            writes: transfer.writes(),
            is_plain: matches!(transfer.kind(), RequestKind::Read | RequestKind::Write),
            // When the unit does not know a form, it is known whether there is a shorter one.
            can_shorten: true,
            can_double: self.budget().max_of(transfer.len()) >= 2,
            route: Route::Credit,
        }
    }
}

/// Carries a transfer over a path, for which it has paid this to its class. Returns the answer, and when it came.
async fn carry(
    carrier: &Path,
    charge: Option<Charge>,
    transfer: &mut Transfer,
) -> (Result<Completion, Error>, Instant) {
    // What is dropped from here on may have been sent.
    let charge = charge.map(Charge::sent);
    let result = carrier.carry(transfer).await;
    let now = now();
    // What is written is on its way whatever comes of it.
    if let Some(charge) = charge.filter(|_| !transfer.writes()) {
        charge.settle(result.as_ref().map_or(0, |answer| answer.data.len() as u64));
    }
    (result, now)
}

impl<'a> Execution<'a> {
    fn new(request: Request<'a>, paths: &'a Paths, transfer: Transfer, last: Option<Path>) -> Self {
        let report = RequestReport::new(paths.report(), transfer.name(), transfer.blocks());
        Self {
            request,
            paths,
            transfer,
            copies: SmallVec::new(),
            ended: None,
            answer: None,
            payment: Payment::default(),
            hedge_payment: Payment::default(),
            permit: None,
            reserving: None,
            last,
            report,
        }
    }

    async fn run(mut self, mut order: Option<Order>) -> Result<Timed, Error> {
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
                Event::Ended(at, transfer, timed) => self.ended(at, transfer, timed),
                Event::Charged { charged, is_hedge } => self.charged(charged, is_hedge),
                Event::Reserved(reserved) => self.reserved(reserved.ok()),
            }
        }
    }

    /// Waits for what happens next. The end of a copy comes before what follows from it, and that before what is not wanted
    /// any more by then.
    async fn next(&mut self) -> Event {
        let Self { request, copies, payment, hedge_payment, reserving, .. } = self;
        tokio::select! {
            biased;
            (at, (transfer, timed)) = ended(copies) => Event::Ended(at, transfer, timed),
            order = request.next() => Event::Order(order),
            charged = some(&mut payment.waiting) => Event::Charged { charged, is_hedge: false },
            charged = some(&mut hedge_payment.waiting) => Event::Charged { charged, is_hedge: true },
            reserved = some(reserving) => Event::Reserved(reserved),
        }
    }

    fn follow(&mut self, order: Order) {
        let ended = self.ended.take();
        match order {
            Order::Send(attempt) => self.send(attempt, ended),
            Order::Abort(attempt) => {
                let copy = self.copies.iter().find(|copy| copy.attempt == attempt);
                copy.and_then(|copy| copy.cancellation.as_ref())
                    .into_iter()
                    .for_each(Cancellation::cancel);
            }
            Order::Charge { is_hedge } => {
                let waiting = Box::pin(self.paths.pass(self.transfer.len()));
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
                // What it has paid goes back.
                self.hedge_payment = Payment::default();
                (self.permit, self.reserving) = (None, None);
            }
            Order::Report(report) => self.report.apply(report),
            // A flush is no transfer, and the end is seen to before.
            Order::Prepare | Order::Completed(_) => {}
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

    /// Sends a copy over a path: the one that has `ended` there, if there is one.
    fn send(&mut self, attempt: Attempt, ended: Option<Transfer>) {
        let flight = self.request.flight(&attempt);
        let mut transfer = match ended {
            Some(transfer) if !attempt.is_hedge => transfer,
            Some(_) | None => {
                let again = self.transfer.again();
                std::mem::replace(&mut self.transfer, again)
            }
        };
        if attempt.is_hedge {
            let permit = self.permit.take();
            permit.into_iter().for_each(|permit| transfer.set_permit(Arc::new(permit)));
        }
        if attempt.is_short {
            transfer.shorten();
        }
        let cancellation = transfer.writes().then(Cancellation::default);
        if let Some(cancellation) = &cancellation {
            transfer = transfer.cancelled_by(cancellation.clone());
        }
        self.last = Some(attempt.carrier.clone());
        let charge = self.payment_of(attempt.is_hedge).charge.take();
        let (id, carrier) = (attempt.id, attempt.carrier);
        let carried = Box::pin(async move {
            let (result, now) = carry(&carrier, charge, &mut transfer).await;
            flight.end(result.as_ref().map(drop), &transfer, now);
            (transfer, result.ok().map(|answer| (answer, now)))
        });
        self.copies.push(Copy { attempt: id, carried, cancellation });
    }

    fn ended(&mut self, at: usize, transfer: Transfer, timed: Option<Timed>) {
        drop(self.copies.remove(at));
        if self.answer.is_none() {
            self.answer = timed;
        }
        if self.copies.is_empty() {
            // It has the caller's buffer, if there is one.
            self.transfer = transfer;
        } else {
            self.ended = Some(transfer);
        }
    }

    async fn completed(
        mut self,
        result: Result<AttemptId, Failure<Error>>,
    ) -> Result<Timed, Error> {
        // Their ends are not waited for, but each keeps its place and its range until then.
        for copy in self.copies.drain(..) {
            tokio::spawn(copy.carried);
        }
        let failure = match (result, self.answer) {
            (Ok(_), Some(answer)) => return Ok(answer),
            (Ok(_), None) => return Err(Error::closed()),
            (Err(failure), _) => failure,
        };
        let has_met_reservation = matches!(failure, Failure::Reservation(_));
        let error = self.report.error_of(failure);
        Err(match self.last {
            Some(last) if has_met_reservation => last.explain(&self.transfer, error).await,
            Some(_) | None => error,
        })
    }
}

/// Waits for the end of a copy, and returns its place.
async fn ended(copies: &mut [Copy]) -> (usize, (Transfer, Option<Timed>)) {
    poll_fn(|context| {
        for (at, copy) in copies.iter_mut().enumerate() {
            if let Poll::Ready(ended) = copy.carried.as_mut().poll(context) {
                return Poll::Ready((at, ended));
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
