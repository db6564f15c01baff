//! Runs one procedure: its commands to the unit, one after the other, and the consequences of each result.

use std::time::{Duration, Instant};

use iscsi_pdu::scsi::reservation::{FullStatus, RegisteredKeys};

use super::exchange::{ErrorKind, Exchange, ExchangeError, Reply};
use super::question::{End, Question, ReserveCommand};
use super::registrations::{Evidence, Form, PathNexus, Registrations};
use super::step::{Failure, Goal, Step};
use crate::PathId;

/// Maximum number of times that the registration of a further nexus is tried while other hosts change
/// registrations at the same time.
const MAX_TRIES: u32 = 8;
/// Time limit of each part of the end of a registration, so that a logout does not wait longer for a silent
/// target.
const END_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Procedure {
    goal: Goal,
    path: PathId,
    nexus: PathNexus,
    stage: Stage,
    exchange: Option<Exchange>,
    /// Whether the current command was returned by `poll` and has not ended.
    is_asked: bool,
    /// Number of commands that have ended.
    questions: u32,
    /// Time limit of the current exchange, from its first command on; `deadline` is when it is over.
    limit: Option<Duration>,
    deadline: Option<Instant>,
    /// Number of registrations that were undone because registrations changed at the same time.
    tries: u32,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The procedure waits for its turn.
    Waiting,
    /// REGISTER with the key that the nexus has, to check that it is still registered.
    Proving,
    /// READ KEYS before the registration of a further nexus.
    ReadingKeysBefore,
    /// READ FULL STATUS, if all keys that READ KEYS shows may come from registrations without a status.
    ReadingFullStatus,
    Registering(Registering),
    /// READ KEYS after the registration of a further nexus.
    ReadingKeysAfter {
        before: u32,
    },
    /// Ending a registration that was not confirmed.
    Undoing,
    /// READ RESERVATION before the end of a registration.
    ReadingReservation,
    Ending,
    Done(Result<(), Failure>),
}

#[derive(Clone, Copy, Debug)]
struct Registering {
    form: Form,
    purpose: Purpose,
    /// Whether the unit may have registered the nexus by a form of REGISTER that was tried before.
    may_be_made: bool,
}

/// Purpose of a registration.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The first path, whose registration needs no check.
    First,
    /// A further path, with the PRGENERATION before its registration.
    Further { before: u32 },
}

impl Procedure {
    pub(super) const fn new(goal: Goal, path: PathId, nexus: PathNexus) -> Self {
        Self {
            goal,
            path,
            nexus,
            stage: Stage::Waiting,
            exchange: None,
            is_asked: false,
            questions: 0,
            limit: None,
            deadline: None,
            tries: 0,
        }
    }

    pub(super) const fn path(&self) -> PathId {
        self.path
    }

    /// Returns the next step. Called only in the turn of the procedure.
    pub(super) fn poll(&mut self, known: &mut Registrations, now: Instant) -> Step {
        if matches!(self.stage, Stage::Waiting) {
            self.begin(known);
        }
        if let Stage::Done(result) = &self.stage {
            return Step::Done(result.clone());
        }
        let Some(exchange) = self.exchange.as_ref().filter(|_| !self.is_asked) else {
            return Step::Wait;
        };
        let command = exchange.command();
        if let Stage::Registering(registering) = self.stage
            && matches!(command, ReserveCommand::Out(_))
            && known.is_preempted()
        {
            // A unit attention over another path has reported a preemption since READ KEYS, so the path must
            // not register.
            self.fails_to_register(registering.may_be_made, Failure::Preempted, known);
            return Step::Done(Err(Failure::Preempted));
        }
        if let Some(limit) = self.limit {
            self.deadline.get_or_insert(now + limit);
        }
        self.is_asked = true;
        Step::Ask(Question {
            number: self.questions,
            path: self.path,
            command,
            deadline: self.deadline,
        })
    }

    /// Records the end of the current question.
    pub(super) fn on_end(&mut self, end: End<'_>, known: &mut Registrations) {
        if !std::mem::take(&mut self.is_asked) {
            return;
        }
        let number = self.questions;
        self.questions = number.saturating_add(1);
        let Some(exchange) = &mut self.exchange else { return };
        if let Some(reply) = exchange.on_end(number, end, known) {
            self.exchange = None;
            self.on_reply(reply, known);
        }
    }

    /// Gives the procedure up. The unit may still execute a command that was sent, so this stays recorded.
    pub(super) fn give_up(&mut self, known: &mut Registrations) {
        if matches!(self.stage, Stage::Ending) {
            self.stays_registered(true, known);
        }
        self.finish(Err(Failure::GivenUp));
    }

    fn begin(&mut self, known: &mut Registrations) {
        match self.goal {
            Goal::End | Goal::EndUnlessReserved if !self.has_registration(known) => {
                self.finish(Ok(()));
            }
            Goal::Register | Goal::Join | Goal::Prove if known.is_preempted() => {
                self.finish(Err(Failure::Preempted));
            }
            Goal::Register if known.is_registered(self.path) => self.finish(Ok(())),
            Goal::Register => self.register(Purpose::First, known),
            Goal::Join if known.knows(self.nexus) => {
                // From here on, a unit attention may be about the registration of this nexus.
                known.set_registered(self.path, true);
                self.prove(known);
            }
            // The registration of this nexus may have been executed before the login, but after another host
            // had ended the registrations of the disk. Then READ KEYS shows the key only because of this
            // registration. So the registration is ended first.
            Goal::Join if known.is_uncertain(self.nexus) => self.undo(known),
            Goal::Join => self.read_keys_before(known),
            Goal::Prove => self.prove(known),
            Goal::End => self.end(known),
            Goal::EndUnlessReserved => {
                self.stage = Stage::ReadingReservation;
                self.ask(Exchange::Reservation, Some(END_LIMIT));
            }
        }
    }

    fn on_reply(&mut self, reply: Reply, known: &mut Registrations) {
        match (self.stage.clone(), reply) {
            (Stage::Proving, Reply::Changed) => {
                known.keep(self.nexus, false);
                self.finish_unless_preempted(known);
            }
            (Stage::Proving, Reply::Failed(error)) => self.not_proved(error, known),
            (Stage::ReadingKeysBefore, Reply::Keys(keys)) => self.on_keys_before(&keys, known),
            (Stage::ReadingFullStatus, Reply::FullStatus(status)) => {
                self.on_full_status(&status, known);
            }
            (Stage::Registering(registering), Reply::Changed) => {
                self.registered(registering, known);
            }
            (Stage::Registering(registering), Reply::Failed(error)) => {
                self.not_registered(registering, error, known);
            }
            (Stage::ReadingKeysAfter { before }, Reply::Keys(keys)) => {
                self.on_keys_after(before, &keys, known);
            }
            (Stage::Undoing, Reply::Changed) => self.undone(known),
            // Another host has ended the registration.
            (Stage::Undoing, Reply::Failed(error)) if error.kind == ErrorKind::Conflict => {
                self.undone(known);
            }
            (Stage::ReadingReservation, Reply::Reservation(held)) => {
                if held.is_none_or(|held| known.is_outlived_by(&held, self.nexus)) {
                    self.end(known);
                } else {
                    self.finish(Ok(()));
                }
            }
            // READ RESERVATION has failed. The path stays registered, because a reservation may end with the
            // registration.
            (Stage::ReadingReservation, Reply::Failed(_)) => self.finish(Ok(())),
            (Stage::Ending, Reply::Changed) => self.finish(Ok(())),
            // Another host has ended the registration.
            (Stage::Ending, Reply::Failed(error)) if error.kind == ErrorKind::Conflict => {
                self.finish(Ok(()));
            }
            (Stage::Ending, Reply::Failed(error)) => {
                self.stays_registered(error.may_be_made(), known);
                self.finish(Err(error.failure));
            }
            (
                Stage::ReadingKeysBefore
                | Stage::ReadingFullStatus
                | Stage::ReadingKeysAfter { .. }
                | Stage::Undoing,
                Reply::Failed(error),
            ) => self.finish(Err(error.failure)),
            // The commands of the remaining stages have none of these replies.
            (_, Reply::Keys(_) | Reply::Reservation(_) | Reply::FullStatus(_) | Reply::Changed)
            | (Stage::Waiting | Stage::Done(_), Reply::Failed(_)) => {}
        }
    }

    fn prove(&mut self, known: &Registrations) {
        self.stage = Stage::Proving;
        self.ask(Exchange::change(known.proof(), self.nexus), None);
    }

    fn not_proved(&mut self, error: ExchangeError, known: &mut Registrations) {
        if error.kind != ErrorKind::Conflict {
            return self.finish(Err(error.failure));
        }
        if self.goal == Goal::Prove {
            known.preempt();
            return self.finish(Err(Failure::Preempted));
        }
        // There are two possible causes of this conflict. Another host has ended the registration: then READ
        // KEYS does not show the key. Or the target treats each session as a new nexus, as tgt does.
        known.set_registered(self.path, false);
        known.forget(self.nexus);
        self.read_keys_before(known);
    }

    fn read_keys_before(&mut self, known: &mut Registrations) {
        if known.is_preempted() {
            return self.finish(Err(Failure::Preempted));
        }
        if self.tries == MAX_TRIES {
            return self.finish(Err(Failure::NoGeneration));
        }
        self.stage = Stage::ReadingKeysBefore;
        self.ask(Exchange::KEYS, None);
    }

    fn on_keys_before(&mut self, keys: &RegisteredKeys, known: &mut Registrations) {
        match keys.keys.iter().filter(|key| **key == known.key()).count() {
            0 => known.preempt(),
            count if count <= known.uncertain() && !known.is_preempted() => {
                self.stage = Stage::ReadingFullStatus;
                return self.ask(Exchange::FULL_STATUS, None);
            }
            _ => {}
        }
        self.register_after(keys.generation, known);
    }

    fn on_full_status(&mut self, status: &FullStatus, known: &mut Registrations) {
        match known.evidence(status) {
            Evidence::Registered => {}
            Evidence::Preempted => known.preempt(),
            Evidence::None => return self.finish(Err(Failure::Unproven)),
        }
        self.register_after(status.generation, known);
    }

    /// Registers a further nexus. The disk was registered when PRGENERATION had the value `generation`.
    fn register_after(&mut self, generation: u32, known: &mut Registrations) {
        if known.is_preempted() {
            return self.finish(Err(Failure::Preempted));
        }
        self.register(Purpose::Further { before: generation }, known);
    }

    fn register(&mut self, purpose: Purpose, known: &mut Registrations) {
        known.sent(self.nexus);
        let registering = Registering { form: known.form(), purpose, may_be_made: false };
        self.register_by(registering, known);
    }

    fn register_by(&mut self, registering: Registering, known: &Registrations) {
        self.stage = Stage::Registering(registering);
        self.ask(Exchange::change(known.register(registering.form), self.nexus), None);
    }

    fn registered(&mut self, registering: Registering, known: &mut Registrations) {
        known.set_form(registering.form);
        match registering.purpose {
            Purpose::First => self.counts(known),
            Purpose::Further { before } => {
                self.stage = Stage::ReadingKeysAfter { before };
                self.ask(Exchange::KEYS, None);
            }
        }
    }

    fn not_registered(
        &mut self,
        registering: Registering,
        error: ExchangeError,
        known: &mut Registrations,
    ) {
        let may_be_made = registering.may_be_made || error.may_be_made();
        let form = match (registering.form, error.kind) {
            // The unit may have refused the command because it does not support APTPL, whatever it reports.
            // APTPL is not requested again.
            (
                Form::Persistent,
                ErrorKind::IllegalRequest | ErrorKind::Check | ErrorKind::Doubtful,
            ) => {
                known.set_form(Form::Volatile);
                Some(Form::Volatile)
            }
            (Form::Volatile, ErrorKind::IllegalRequest) => Some(Form::Spc2),
            (Form::Persistent | Form::Volatile | Form::Spc2, _) => None,
        };
        if let Some(form) = form {
            return self.register_by(Registering { form, may_be_made, ..registering }, known);
        }
        let is_first = matches!(registering.purpose, Purpose::First);
        let failure = if is_first && error.kind == ErrorKind::IllegalRequest {
            Failure::NoReservations
        } else {
            error.failure
        };
        self.fails_to_register(may_be_made, failure, known);
    }

    fn fails_to_register(
        &mut self,
        may_be_made: bool,
        failure: Failure,
        known: &mut Registrations,
    ) {
        if !may_be_made {
            known.answered(self.nexus, false);
        }
        self.finish(Err(failure));
    }

    fn on_keys_after(&mut self, before: u32, keys: &RegisteredKeys, known: &mut Registrations) {
        // PRGENERATION counts each change. If it has grown by more than this registration, the other change may
        // have ended all registrations of the disk, by a host that fences it off.
        if keys.generation == before.wrapping_add(1) && !known.is_preempted() {
            return self.counts(known);
        }
        self.undo(known);
    }

    fn undo(&mut self, known: &Registrations) {
        self.stage = Stage::Undoing;
        self.ask(Exchange::change_beside_other(known.unregister(), self.nexus), None);
    }

    fn undone(&mut self, known: &mut Registrations) {
        known.ended(self.nexus);
        self.tries += 1;
        self.read_keys_before(known);
    }

    /// Confirms the registration: the nexus is registered, and the disk was registered all the time.
    fn counts(&mut self, known: &mut Registrations) {
        known.answered(self.nexus, true);
        known.set_registered(self.path, true);
        self.finish_unless_preempted(known);
    }

    fn end(&mut self, known: &mut Registrations) {
        known.set_registered(self.path, false);
        known.forget(self.nexus);
        self.stage = Stage::Ending;
        self.ask(Exchange::change(known.unregister(), self.nexus), Some(END_LIMIT));
    }

    /// Returns whether there is a registration to end. After a preemption there is none.
    fn has_registration(&self, known: &Registrations) -> bool {
        known.is_registered(self.path) && !known.is_preempted()
    }

    fn stays_registered(&self, may_have_ended: bool, known: &mut Registrations) {
        known.keep(self.nexus, may_have_ended);
        known.set_registered(self.path, true);
    }

    fn ask(&mut self, exchange: Exchange, limit: Option<Duration>) {
        self.exchange = Some(exchange);
        (self.limit, self.deadline) = (limit, None);
    }

    fn finish_unless_preempted(&mut self, known: &Registrations) {
        self.finish(if known.is_preempted() { Err(Failure::Preempted) } else { Ok(()) });
    }

    fn finish(&mut self, result: Result<(), Failure>) {
        self.exchange = None;
        self.stage = Stage::Done(result);
    }
}
