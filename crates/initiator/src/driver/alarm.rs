//! Wakes the event loop at its earliest deadline, with one timer for all deadlines.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep_until};

/// Wakes the task that polls this alarm when the deadline has come. The event loop also checks its deadlines by
/// the clock in each turn. So the timer is polled only if it is not set to the deadline yet, or if the task was
/// woken and found nothing else to do (docs/design/hot-path.md).
pub(super) struct Alarm {
    timer: Pin<Box<Sleep>>,
    deadline: Option<Instant>,
    /// Deadline for which the timer is set, and may already have woken the task; `None` if the timer must be
    /// polled.
    armed: Option<Instant>,
    is_polled: bool,
}

impl Alarm {
    pub(super) fn new() -> Self {
        let timer = Box::pin(sleep_until(Instant::now()));
        Self { timer, deadline: None, armed: None, is_polled: false }
    }

    /// Begins a wait until `deadline` at most. The clock was last read at `now`, and the task has not slept
    /// since.
    pub(super) fn set(&mut self, deadline: Option<Instant>, now: Instant) {
        self.deadline = deadline;
        // The timer may have fired already, and the task may have used that wake-up for something else.
        let may_have_rung = deadline.is_some_and(|deadline| deadline <= now);
        self.is_polled = self.armed != deadline || may_have_rung;
    }

    /// Returns `Ready` when the deadline has come. The first poll after [`set`](Self::set) may skip the timer:
    /// see [`Alarm`].
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_polled = std::mem::replace(&mut self.is_polled, true);
        let Some(deadline) = self.deadline.filter(|_| is_polled) else { return Poll::Pending };
        if self.timer.deadline() != deadline {
            self.timer.as_mut().reset(deadline);
        }
        let result = self.timer.as_mut().poll(context);
        // When the task has used up its cooperative budget, the poll returns `Pending` without setting the
        // timer, so the next turn must poll it again.
        let is_set = result.is_pending() && coop::has_budget_remaining();
        self.armed = is_set.then_some(deadline);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::{advance, timeout};

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    async fn poll_once(alarm: &mut Alarm) -> Poll<()> {
        poll_fn(|context| Poll::Ready(alarm.poll(context))).await
    }

    async fn rings(alarm: &mut Alarm) -> bool {
        timeout(10 * SOON, poll_fn(|context| alarm.poll(context))).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_deadline_however_often_that_is_set() {
        let (mut alarm, begun) = (Alarm::new(), Instant::now());
        for _ in 0..3 {
            alarm.set(Some(begun + SOON), begun);
            assert!(poll_once(&mut alarm).await.is_pending());
        }
        alarm.set(Some(begun + SOON), begun);
        assert!(rings(&mut alarm).await);
        assert_eq!(begun.elapsed(), SOON);
        for deadline in [begun + 3 * SOON, begun + 2 * SOON] {
            alarm.set(Some(deadline), begun + SOON);
            assert!(poll_once(&mut alarm).await.is_pending());
        }
        alarm.set(Some(begun + 2 * SOON), begun + SOON);
        assert!(rings(&mut alarm).await);
        assert_eq!(begun.elapsed(), 2 * SOON);
        alarm.set(None, begun + 2 * SOON);
        assert!(!rings(&mut alarm).await, "nothing is due");
    }

    /// The timer fires, the task handles another event in that wake-up, and waits without a deadline. Then the
    /// alarm is set again to the deadline that has passed: it must fire immediately.
    #[tokio::test(start_paused = true)]
    async fn it_rings_though_its_task_has_not_looked_when_it_was_woken() {
        let (mut alarm, begun) = (Alarm::new(), Instant::now());
        alarm.set(Some(begun + SOON), begun);
        assert!(poll_once(&mut alarm).await.is_pending());
        advance(SOON).await;
        tokio::task::yield_now().await;
        alarm.set(None, begun);
        assert!(poll_once(&mut alarm).await.is_pending());
        alarm.set(Some(begun + SOON), Instant::now());
        assert!(poll_once(&mut alarm).await.is_ready());
    }

    /// The first poll does not set the timer, because the task has used up its cooperative budget. The next
    /// turn must set it.
    #[tokio::test(start_paused = true)]
    async fn it_rings_though_its_task_had_used_up_its_turn_when_it_was_set() {
        let (mut alarm, begun) = (Alarm::new(), Instant::now());
        poll_fn(|context| {
            while coop::has_budget_remaining() {
                let Poll::Ready(progress) = coop::poll_proceed(context) else { break };
                progress.made_progress();
            }
            alarm.set(Some(begun + SOON), begun);
            assert!(alarm.poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
        alarm.set(Some(begun + SOON), begun);
        assert!(rings(&mut alarm).await);
        assert_eq!(begun.elapsed(), SOON);
    }
}
