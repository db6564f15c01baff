//! Revalidates a path: checks whether it still leads to the same unit.

mod interview;
mod procedure;
mod proof;
mod step;
#[cfg(test)]
mod tests;

use std::time::Instant;

use crate::PathId;
use crate::unit::Unit;
use procedure::Procedure;
pub use proof::{Proof, ProofStep};
pub use step::{Command, End, Failure, Question, Step, Terms, WaiterId};

/// The revalidations of a unit, one for each path over which the unit must be identified again
/// ([`Identity`](crate::Identity)). All callers that wait for a path share the result.
///
/// Up to four commands are sent concurrently:
///
/// | command | the unit is the known one if |
/// |---|---|
/// | INQUIRY | a disk is there; if the unit reports no name, its model is the same |
/// | VPD page 83, then VPD page 80 if page 83 decides nothing | the best names that both sides have are equal ([`UnitName`](crate::UnitName)) |
/// | READ CAPACITY (16) and (10) | the blocks have the same size. The unit may have grown or shrunk |
/// | MODE SENSE | always. The unit counts as one with a volatile cache unless it reports that it has none: it may have reported only a reset, instead of everything before it (SAM-5 §5.14), also instead of MODE PARAMETERS CHANGED |
///
/// The result resolves the reasons that existed when the commands were sent; if there are further reasons by
/// then, the unit is queried again. Another name or another block size is a final verdict. If a response does
/// not show which unit it is, the commands are repeated after a pause, until the retry timeout of all waiting
/// callers is over. A failure that waiting does not cure on this path is returned immediately, and the next
/// caller starts a new try: the session is over, the LUN has no disk, or the port does not serve the unit.
///
/// ```
/// # use std::time::{Duration, Instant};
/// # use iscsi_multipath::reconnect::BackOff;
/// # use iscsi_multipath::{Unit, UnitName, short_capacity};
/// # use iscsi_pdu::scsi::ReadCapacity10;
/// use iscsi_multipath::revalidating::{Command, End, Failure, Revalidations, Step, Terms};
///
/// # let (mut unit, now) = (Unit::new(), Instant::now());
/// # let answer = ReadCapacity10::decode(&[0, 0, 0, 7, 0, 0, 2, 0]).unwrap();
/// # let capacity = short_capacity(answer).unwrap();
/// let path = Unit::FIRST_PATH;
/// let terms = Terms {
///     name: UnitName::SerialNumber("7".to_owned()),
///     capacity,
///     retry_timeout: Duration::from_secs(300),
///     pauses: BackOff::new(Duration::from_millis(10), Duration::from_secs(1)),
/// };
/// let mut revalidations = Revalidations::default();
/// unit.identity.add_reason(path);
/// let (waiter, is_first) = revalidations.wait(path, &terms, now);
/// assert!(is_first, "this caller polls the path");
/// let result = loop {
///     match revalidations.poll(path, &mut unit, now) {
///         // The target has removed the unit.
///         Step::Ask(question) => revalidations.on_end(path, question.number, End::NoUnit),
///         Step::Answer(_, result) => break result,
///         step => unreachable!("{step:?}"),
///     }
/// };
/// assert_eq!(result, Err(Failure::Question(0)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Revalidations {
    paths: Vec<(PathId, Procedure)>,
    next_waiter: u64,
    /// No number is used twice, so that a late end is not taken for the end of another command.
    next_question: u32,
}

impl Revalidations {
    /// Adds a caller that waits until it is certain that the path leads to the known unit. Returns whether it
    /// is the only waiting caller: then [`poll`](Self::poll) the path until [`Step::Idle`].
    pub fn wait(&mut self, path: PathId, terms: &Terms, now: Instant) -> (WaiterId, bool) {
        let waiter = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        if let Some(procedure) = self.get_mut(path) {
            procedure.join(waiter, now);
            return (waiter, false);
        }
        let mut procedure = Procedure::new(path, terms.clone());
        procedure.join(waiter, now);
        self.paths.push((path, procedure));
        (waiter, true)
    }

    /// Returns the next step of a path. Each command is returned once. Poll again after
    /// [`on_end`](Self::on_end), after [`cancel`](Self::cancel), and at [`poll_timeout`](Self::poll_timeout).
    pub fn poll(&mut self, path: PathId, unit: &mut Unit, now: Instant) -> Step {
        let Self { paths, next_question, .. } = self;
        let procedure = paths.iter_mut().find(|(other, _)| *other == path);
        let step = procedure.map_or(Step::Idle, |(_, it)| it.poll(next_question, unit, now));
        if matches!(step, Step::Idle) {
            self.paths.retain(|(other, _)| *other != path);
        }
        step
    }

    /// Records the end of a command. A second end of the same command, or an end that is not needed any more,
    /// changes nothing.
    pub fn on_end(&mut self, path: PathId, question: u32, end: End<'_>) {
        if let Some(procedure) = self.get_mut(path) {
            procedure.on_end(question, end);
        }
    }

    /// Returns when to [`poll`](Self::poll) the path at the latest, if nothing happens before.
    pub fn poll_timeout(&self, path: PathId) -> Option<Instant> {
        let procedure = self.paths.iter().find(|(other, _)| *other == path);
        procedure.and_then(|(_, it)| it.poll_timeout())
    }

    /// Removes a waiting caller.
    pub fn cancel(&mut self, waiter: WaiterId) {
        self.paths.iter_mut().for_each(|(_, it)| it.leave(waiter));
    }

    /// Ends the revalidation of a path that is not used any more, and returns the callers that wait.
    pub fn remove(&mut self, path: PathId) -> Vec<WaiterId> {
        let waiting = self.get_mut(path).map_or_else(Vec::new, |it| it.waiting().collect());
        self.paths.retain(|(other, _)| *other != path);
        waiting
    }

    fn get_mut(&mut self, path: PathId) -> Option<&mut Procedure> {
        self.paths.iter_mut().find(|(other, _)| *other == path).map(|(_, it)| it)
    }
}
