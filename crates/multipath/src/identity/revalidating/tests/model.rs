//! Models a target that exchanges one unit for another and back while commands are in flight over a session
//! of several connections. The test checks that a read that is accepted as executed by the known unit was
//! executed by it.

use proptest::prelude::*;

use super::*;
use crate::unit::{Begun, CommandEnd, CommandFacts};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A caller requests a read of a block.
    Read,
    /// The unit takes the oldest command: it executes the command, or reports that it may be another unit.
    Execute,
    /// The status of one of the commands arrives, or the command is given up.
    Deliver(u8, bool),
    /// The other unit replaces the present one.
    Exchange,
    /// The other unit replaces the present one, takes this number of commands, and is replaced again.
    Visit(u8),
    /// The unit reports that it may be another one, although it is the same.
    Touch,
    Seconds(u8),
}

#[derive(Clone, Debug)]
enum Kind {
    Read,
    Question(Question),
}

#[derive(Clone, Debug)]
struct Sent {
    begun: Begun,
    kind: Kind,
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Attention,
    /// The command was executed by the known unit, or by the other unit.
    Good {
        is_known: bool,
    },
}

/// A read that has ended with GOOD.
struct Proving {
    begun: Begun,
    is_known: bool,
    proof: Proof,
    waiter: Option<WaiterId>,
}

#[derive(Debug, Default)]
struct Seen {
    counted: usize,
    sent_again: usize,
    revalidated: usize,
    refused: usize,
}

struct Model {
    world: World,
    is_known_there: bool,
    /// Number of reports that the unit has for the session.
    reports: usize,
    sent: Vec<Sent>,
    /// Number of reads that wait to be sent.
    waiting: usize,
    proving: Vec<Proving>,
    waiter: Option<WaiterId>,
    seen: Seen,
}

impl Model {
    fn new() -> Self {
        let mut world = World::of_serial_number();
        let reasons = world.unit.identity.reasons(PATH);
        world.unit.identity.on_revalidated(PATH, reasons);
        Self {
            world,
            is_known_there: true,
            reports: 0,
            sent: Vec::new(),
            waiting: 0,
            proving: Vec::new(),
            waiter: None,
            seen: Seen::default(),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Read => self.waiting += 1,
            Event::Execute => self.execute(),
            Event::Deliver(which, has_status) => self.deliver(which, has_status),
            Event::Exchange => {
                self.is_known_there = !self.is_known_there;
                self.reports += 1;
            }
            Event::Visit(commands) => {
                self.take(Event::Exchange);
                (0..commands).for_each(|_| self.take(Event::Execute));
                self.take(Event::Exchange);
            }
            Event::Touch => self.reports += 1,
            Event::Seconds(seconds) => self.world.now += Duration::from_secs(seconds.into()),
        }
        self.poll_all();
    }

    fn send(&mut self, kind: Kind) {
        let begun = self.world.unit.begin_command(PATH);
        self.sent.push(Sent { begun, kind, outcome: None });
    }

    fn execute(&mut self) {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.outcome.is_none()) else { return };
        // INQUIRY is executed nevertheless, and leaves the report pending (SPC-4 §6.4.1).
        let is_inquiry = matches!(
            sent.kind,
            Kind::Question(Question { command: Command::Inquiry | Command::Page { .. }, .. })
        );
        sent.outcome = Some(if self.reports > 0 && !is_inquiry {
            self.reports -= 1;
            Outcome::Attention
        } else {
            Outcome::Good { is_known: self.is_known_there }
        });
    }

    fn deliver(&mut self, which: u8, has_status: bool) {
        let executed = self.sent.iter().enumerate().filter(|(_, sent)| sent.outcome.is_some());
        let executed: Vec<_> = executed.map(|(at, _)| at).collect();
        if executed.is_empty() {
            return;
        }
        let Sent { begun, kind, outcome } =
            self.sent.remove(executed[usize::from(which) % executed.len()]);
        let outcome = outcome.filter(|_| has_status);
        let attention = [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x3f, 0x0e, 0, 0, 0, 0];
        let end = match &outcome {
            Some(Outcome::Attention) => CommandEnd::Status(Status::CHECK_CONDITION, &attention),
            Some(Outcome::Good { .. }) => CommandEnd::Status(Status::GOOD, &[]),
            None => CommandEnd::Error(&iscsi_session::TaskError::Aborted),
        };
        let facts =
            CommandFacts { number: begun.number, synchronizes_cache: false, is_preempted: false };
        let _ = self.world.unit.end_command(PATH, facts, end);
        match (kind, outcome) {
            (Kind::Read, Some(Outcome::Good { is_known })) => {
                let proof = Proof::by_all(PATIENCE);
                self.proving.push(Proving { begun, is_known, proof, waiter: None });
            }
            (Kind::Read, Some(Outcome::Attention)) => self.waiting += 1,
            (Kind::Read, None) => {}
            // The command is sent again.
            (Kind::Question(question), Some(Outcome::Attention)) => {
                self.send(Kind::Question(question));
            }
            (Kind::Question(question), Some(Outcome::Good { is_known })) => {
                let mut target = Target::new();
                target.serial = Answer::Good(serial(if is_known { "7" } else { "8" }));
                self.world.end(question, &target.answer(question.command));
            }
            (Kind::Question(question), None) => self.world.end(question, &Answer::Silence),
        }
    }

    fn poll_all(&mut self) {
        loop {
            let needs = self.world.unit.identity.needs_revalidation(PATH);
            if needs && self.waiting > 0 && self.waiter.is_none() {
                self.waiter = Some(self.world.wait());
            }
            let step = self.world.poll();
            match step {
                Step::Ask(question) => self.send(Kind::Question(question)),
                Step::Answer(waiter, result) => self.answered(waiter, result.is_ok()),
                Step::Resized(_) => panic!("both units have one size"),
                Step::Wait | Step::Idle => {
                    let reads = if needs { 0 } else { std::mem::take(&mut self.waiting) };
                    (0..reads).for_each(|_| self.send(Kind::Read));
                    let has_sent = reads > 0;
                    if !self.prove() && !has_sent {
                        return;
                    }
                }
            }
        }
    }

    fn answered(&mut self, waiter: WaiterId, is_known: bool) {
        self.seen.revalidated += usize::from(is_known);
        self.seen.refused += usize::from(!is_known);
        if self.waiter == Some(waiter) {
            self.waiter = None;
            if !is_known {
                self.waiting = 0;
            }
        }
        if !is_known {
            self.proving.retain(|it| it.waiter != Some(waiter));
        }
        let of_waiter = self.proving.iter_mut().filter(|it| it.waiter == Some(waiter));
        of_waiter.for_each(|it| it.waiter = None);
    }

    /// Continues the confirmations of reads that have ended with GOOD. Returns whether anything has changed.
    fn prove(&mut self) -> bool {
        let mut has_changed = false;
        for mut it in std::mem::take(&mut self.proving) {
            if it.waiter.is_some() {
                self.proving.push(it);
                continue;
            }
            match it.proof.poll(PATH, &self.world.unit, self.world.now) {
                ProofStep::Revalidate => {
                    it.waiter = Some(self.world.wait());
                    has_changed = true;
                    self.proving.push(it);
                }
                ProofStep::AwaitCommands(_) => self.proving.push(it),
                ProofStep::Unproven => {}
                ProofStep::Proven if self.world.unit.is_of_known_unit(PATH, &it.begun) => {
                    assert!(it.is_known, "the answer of another unit counts");
                    self.seen.counted += 1;
                }
                ProofStep::Proven => {
                    self.seen.sent_again += 1;
                    self.waiting += 1;
                    has_changed = true;
                }
            }
        }
        has_changed
    }
}

fn events(exchanges: bool) -> impl Strategy<Value = Vec<Event>> {
    let exchange = if exchanges { Event::Exchange } else { Event::Touch };
    let visits = if exchanges { 1..4_u8 } else { 0..1 };
    let deliver = (0..4_u8, prop::bool::weighted(0.95));
    prop::collection::vec(
        prop_oneof![
            12 => Just(Event::Read),
            10 => Just(Event::Execute),
            10 => deliver.prop_map(|(which, it)| Event::Deliver(which, it)),
            1 => Just(exchange),
            2 => visits.prop_map(Event::Visit),
            1 => Just(Event::Touch),
            1 => (1..40_u8).prop_map(Event::Seconds),
        ],
        0..150,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_answer_of_another_unit_counts(events in events(true)) {
        let mut model = Model::new();
        events.into_iter().for_each(|event| model.take(event));
    }

    #[test]
    fn a_unit_that_only_reports_is_never_taken_for_another_one(events in events(false)) {
        let mut model = Model::new();
        events.into_iter().for_each(|event| model.take(event));
        prop_assert_eq!(model.world.unit.identity.verdict(PATH), Ok(()));
    }
}

#[test]
fn an_answer_of_a_unit_that_has_come_and_gone_is_asked_for_again() {
    let mut model = Model::new();
    (0..3).for_each(|_| model.take(Event::Read));
    model.take(Event::Visit(2));
    for _ in 0..12 {
        model.take(Event::Execute);
    }
    // These arrive: the first report, the result from the other unit, and the second report.
    (0..3).for_each(|_| model.take(Event::Deliver(0, true)));
    for _ in 0..40 {
        model.take(Event::Execute);
        model.take(Event::Deliver(0, true));
    }
    let Seen { counted, sent_again, refused, .. } = model.seen;
    assert_eq!((counted, sent_again, refused), (3, 1, 0));
}

/// Each kind of event occurs in the model; otherwise the test would not cover it.
#[test]
fn answers_count_and_are_refused_and_commands_are_sent_again() {
    let mut seen = Seen::default();
    let mut noise = 1_u32;
    for turn in 0..300 {
        let mut model = Model::new();
        for _ in 0..200 {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            model.take(match noise >> 28 {
                0..4 => Event::Read,
                4..9 => Event::Execute,
                9..14 => Event::Deliver(noise.to_le_bytes()[2], true),
                14 => Event::Touch,
                _ if turn % 3 == 0 => Event::Exchange,
                _ => Event::Seconds(1),
            });
        }
        let Seen { counted, sent_again, revalidated, refused } = model.seen;
        seen.counted += counted;
        seen.sent_again += sent_again;
        seen.revalidated += revalidated;
        seen.refused += refused;
    }
    let Seen { counted, sent_again, revalidated, refused } = seen;
    assert!(counted > 100 && sent_again > 0, "{seen:?}");
    assert!(revalidated > 50 && refused > 20, "{seen:?}");
}
