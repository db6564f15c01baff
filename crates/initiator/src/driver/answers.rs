//! The answers of late: who may ask again, whether more are worth a look before requests are sent, and how many of the
//! next ones are waited for together.

use std::time::Duration;

use iscsi_session::Session;
use iscsi_tuner::Coalescing;
use tokio::time::Instant;

/// Who has not asked again so long after his answer does not do so at once.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(1);

/// So many looks for answers in a row that find none are enough: with four reads of 4 KiB under way on each of 1,000
/// disks, looks would be a fifth of all system calls.
const VAIN_LOOKS: u32 = 4;

/// So often in a row none is looked for then.
const LOOKS_LEFT_OUT: u32 = 64;

/// So long after something was read answers are looked for that are fewer than were to be waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What the driver knows of the answers of late.
#[derive(Debug)]
pub(super) struct Answers {
    /// Callers who have an answer and have not asked again.
    may_ask: usize,
    /// Looks in a row that found no answer.
    vain_looks: u32,
    /// So often more none is looked for.
    looks_to_leave_out: u32,
    /// Bytes that were read, of all connections.
    received: u64,
    /// When something was read last.
    read_at: Instant,
    coalescing: Coalescing,
    /// Bytes of the answers that are waited for together on each connection; 0 for any.
    awaited: u64,
    /// When the sockets are looked at next that keep bytes to themselves.
    look_due: Instant,
}

impl Answers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            may_ask: 0,
            vain_looks: 0,
            looks_to_leave_out: 0,
            received: 0,
            read_at: now,
            coalescing: Coalescing::default(),
            awaited: 0,
            look_due: now,
        }
    }

    /// So many bytes have been read.
    pub(super) fn read(&mut self, count: usize, now: Instant) {
        self.received += count as u64;
        self.read_at = now;
    }

    /// Bytes that were read, of all connections.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// A caller has an answer.
    pub(super) const fn given(&mut self) {
        self.may_ask += 1;
    }

    /// So many have asked.
    pub(super) const fn asked(&mut self, count: usize) {
        self.may_ask = self.may_ask.saturating_sub(count);
    }

    /// Nobody who had one asks again.
    pub(super) const fn nobody_asks(&mut self) {
        self.may_ask = 0;
    }

    /// How many may ask again.
    pub(super) const fn may_ask(&self) -> usize {
        self.may_ask
    }

    /// The same at this time.
    pub(super) fn may_ask_at(&mut self, now: Instant) -> usize {
        if now > self.read_at + ASK_AGAIN {
            self.may_ask = 0;
        }
        self.may_ask
    }

    /// Leaves a look for answers out, if those before it found none. Says whether it does.
    pub(super) const fn leave_look_out(&mut self) -> bool {
        let is_left_out = self.looks_to_leave_out > 0;
        self.looks_to_leave_out = self.looks_to_leave_out.saturating_sub(1);
        is_left_out
    }

    /// A look has found some, or none.
    pub(super) const fn looked(&mut self, has_found: bool) {
        self.vain_looks = if has_found { 0 } else { self.vain_looks + 1 };
        if self.vain_looks >= VAIN_LOOKS {
            // After these, one more that finds none leaves as many out again.
            (self.vain_looks, self.looks_to_leave_out) = (VAIN_LOOKS - 1, LOOKS_LEFT_OUT);
        }
    }

    /// How many bytes of answers are to be waited for together on each of so many connections, with so many requests
    /// under way; 0 for any.
    pub(super) fn wait_for(
        &mut self,
        session: &Session,
        requests: usize,
        connections: usize,
        now: Instant,
    ) -> u64 {
        self.coalescing.observe(session.stats().tasks_ended, self.received, now.into_std());
        self.awaited = self.coalescing.low_water(requests, connections).unwrap_or_default();
        self.awaited
    }

    /// Sockets keep bytes to themselves: they are looked at in time. Seldom at another time than before, since to set the
    /// alarm costs more than a look for nothing.
    pub(super) fn plan_look(&mut self, now: Instant) {
        if self.look_due <= now {
            let due = self.read_at + LOOK_INTERVAL;
            self.look_due = if due > now { due } else { now + LOOK_INTERVAL };
        }
    }

    pub(super) const fn look_due(&self) -> Instant {
        self.look_due
    }

    /// Whether something was read just now.
    pub(super) fn are_fresh(&self, now: Instant) -> bool {
        now < self.read_at + LOOK_INTERVAL
    }

    /// Answers were found that had been kept back, so many bytes with what came with them. Fewer than were waited for,
    /// they were waited for in vain.
    pub(super) fn found_kept(&mut self, bytes: u64) {
        if bytes < self.awaited {
            self.coalescing.waited_in_vain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_looks_find_nothing_most_are_left_out() {
        let mut answers = Answers::new(Instant::now());
        let mut look = |finds| {
            let is_left_out = answers.leave_look_out();
            if !is_left_out {
                answers.looked(finds);
            }
            !is_left_out
        };
        for _ in 0..100 {
            assert!(look(true) && look(false) && look(false) && look(false));
        }
        assert!(look(false));
        for _ in 0..3 {
            assert!((0..LOOKS_LEFT_OUT).all(|_| !look(false)));
            assert!(look(false), "one is enough to see that it is as before");
        }
        assert!((0..LOOKS_LEFT_OUT).all(|_| !look(true)));
        assert!(look(true) && look(false) && look(false) && look(false) && look(false));
        assert!(!look(true));
    }

    #[test]
    fn who_has_not_asked_for_a_while_does_not_ask() {
        let now = Instant::now();
        let mut answers = Answers::new(now);
        answers.read(48, now);
        answers.given();
        answers.given();
        answers.asked(1);
        assert_eq!(answers.may_ask_at(now + ASK_AGAIN), 1);
        assert_eq!(answers.may_ask_at(now + 2 * ASK_AGAIN), 0);
        assert_eq!(answers.may_ask(), 0);
        answers.asked(1);
        assert_eq!(answers.may_ask(), 0, "others ask too");
    }
}
