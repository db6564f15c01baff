//! Confirms a GOOD that arrived while the unit may have been another one.

use std::time::{Duration, Instant};

use crate::unit::Unit;
use crate::{CommandNumber, PathId};

/// Confirms that the known unit has executed a command, after the command has ended with GOOD.
///
/// Nothing orders the connections of a session: the response of another unit may arrive over one connection
/// before the unit attention over another. So data that will be written back, and results that show whether
/// earlier writes are lost, are trusted only when all commands have ended that the session had sent by then.
///
/// The code that owns all commands of a unit uses it like this:
///
/// - A command may be sent over a path unless
///   [`Identity::needs_revalidation`](crate::Identity::needs_revalidation). Otherwise it waits for
///   [`Revalidations`](super::Revalidations), whose own commands are sent nevertheless, and so are INQUIRY,
///   REPORT LUNS and REQUEST SENSE, which receive no unit attention.
/// - The caller of a command that has ended with GOOD gets its result after [`ProofStep::Proven`], and only
///   if [`Unit::is_of_known_unit`](crate::Unit::is_of_known_unit); otherwise the command is sent again.
/// - An end other than GOOD needs no confirmation: it is handled and retried as usual.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    /// Time limit of the wait for commands that were sent before; `None` if no command is waited for.
    limit: Option<Duration>,
    wait: Option<CommandWait>,
}

#[derive(Clone, Copy, Debug)]
struct CommandWait {
    number: CommandNumber,
    until: Option<Instant>,
}

/// Next step of a confirmation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProofStep {
    /// Wait for a revalidation of the path ([`Revalidations::wait`](super::Revalidations::wait)), then poll
    /// again. If the revalidation fails, the command fails as well.
    Revalidate,
    /// Poll again when the commands have ended that the path sent before this one, or at
    /// [`poll_timeout`](Proof::poll_timeout).
    AwaitCommands(CommandNumber),
    /// The confirmation is complete: the path needs no revalidation, and the commands to wait for have ended.
    Proven,
    /// Commands have not ended within the time limit, and one of them may have hidden the report of another
    /// unit.
    Unproven,
}

impl Proof {
    /// Creates the confirmation of a command on whose result no other command depends. It waits for no other
    /// commands.
    pub const fn of_the_answer() -> Self {
        Self { limit: None, wait: None }
    }

    /// Creates a confirmation that waits for all commands that the session has sent so far. `limit` is the
    /// time limit of this wait.
    pub const fn by_all(limit: Duration) -> Self {
        Self { limit: Some(limit), wait: None }
    }

    /// Returns the next step.
    pub fn poll(&mut self, path: PathId, unit: &Unit, now: Instant) -> ProofStep {
        if unit.identity.needs_revalidation(path) {
            self.wait = None;
            return ProofStep::Revalidate;
        }
        let Some(limit) = self.limit else { return ProofStep::Proven };
        let first =
            || CommandWait { number: unit.next_command(path), until: now.checked_add(limit) };
        let CommandWait { number, until } = *self.wait.get_or_insert_with(first);
        if unit.have_ended_before(path, number) {
            ProofStep::Proven
        } else if until.is_some_and(|until| now >= until) {
            ProofStep::Unproven
        } else {
            ProofStep::AwaitCommands(number)
        }
    }

    /// Returns when to poll at the latest, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wait.and_then(|wait| wait.until)
    }
}

#[cfg(test)]
mod tests {
    use iscsi_session::TaskError;

    use super::*;
    use crate::identity::KnownUnit;
    use crate::unit::{Begun, CommandEnd, CommandFacts};

    const PATH: PathId = Unit::FIRST_PATH;
    const PATIENCE: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "some time to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn unit() -> Unit {
        let mut unit = Unit::new();
        unit.identity.on_known(KnownUnit { is_removable: false, capacity: 4096 });
        unit
    }

    fn end_lost(unit: &mut Unit, begun: &Begun) {
        let facts =
            CommandFacts { number: begun.number, synchronizes_cache: false, is_preempted: false };
        let _ = unit.end_command(PATH, facts, CommandEnd::Error(&TaskError::Aborted));
    }

    #[test]
    fn a_command_that_ended_well_while_the_unit_was_in_doubt_waits_for_the_revalidation() {
        let (mut unit, now) = (unit(), start());
        let begun = unit.begin_command(PATH);
        let mut proof = Proof::of_the_answer();
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::Proven);
        unit.identity.add_reason(PATH);
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::Revalidate);
        unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::Proven);
        assert!(unit.is_of_known_unit(PATH, &begun), "it came back before it was asked");
        unit.identity.add_reason(PATH);
        unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::Proven);
        assert!(!unit.is_of_known_unit(PATH, &begun), "another one may have come and gone");
    }

    #[test]
    fn what_the_session_had_sent_by_then_is_heard() {
        let (mut unit, now) = (unit(), start());
        let [before, begun] = [(); 2].map(|()| unit.begin_command(PATH));
        unit.forget(PATH, begun.number);
        let after = unit.begin_command(PATH);
        let mut proof = Proof::by_all(PATIENCE);
        let number = unit.next_command(PATH);
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::AwaitCommands(number));
        let _later = unit.begin_command(PATH);
        unit.forget(PATH, before.number);
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::AwaitCommands(number));
        end_lost(&mut unit, &after);
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::Revalidate);
        unit.identity.on_revalidated(PATH, unit.identity.reasons(PATH));
        // A command that was sent meanwhile may receive a further report, so the confirmation also waits for
        // that command.
        let number = unit.next_command(PATH);
        assert_eq!(proof.poll(PATH, &unit, now), ProofStep::AwaitCommands(number));
        assert_eq!(proof.poll_timeout(), Some(now + PATIENCE));
        let late = now + PATIENCE;
        assert_eq!(proof.poll(PATH, &unit, late), ProofStep::Unproven);
    }
}
