//! State of one logical unit, over all paths to it.

mod end;
mod fingerprint;

pub use end::{CommandEnd, CommandFacts, Effects, is_write_failure, may_be_another_unit};

use crate::by_path::ByPath;
use crate::commands::{CommandNumber, Commands};
use crate::durability::{Durability, Epoch, LossCount};
use crate::identity::{Before, Identity, SharedReasons};
use crate::ids::PathId;

/// State of one logical unit. Events that concern several parts of the state, such as the start and the end
/// of a command, go through this type.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Unflushed and lost writes.
    pub durability: Durability,
    /// The identity of the unit.
    pub identity: Identity,
    commands: ByPath<Commands>,
    next_path: u32,
}

/// A value that no revision of the identity has.
const NEVER: u64 = u64::MAX;

/// The state of the unit when a command began.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Number of the command on its path.
    pub number: CommandNumber,
    /// Epoch at which the command began.
    pub epoch: Epoch,
    /// The revision of the identity, or [`NEVER`] if there was a reason to revalidate the path.
    calm_at: u64,
    before: Before,
}

/// Conclusion from a status GOOD of the known unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GoodEnd {
    /// Nothing: the command ends with GOOD even while the unit has a reset to report (such as INQUIRY), or the
    /// caller records the meaning of the status later (a flush).
    SaysNothing,
    /// The unit had no reset to report when it executed the command.
    NoReset,
    /// The unit had no reset to report, and the command has written data that are not flushed yet.
    Wrote,
}

impl GoodEnd {
    /// Returns what the status shows if the request was cancelled, or another copy of it has ended first. No
    /// flush has to bring the data of such a command onto the medium.
    #[must_use]
    pub const fn if_not_awaited(self) -> Self {
        match self {
            Self::Wrote => Self::NoReset,
            Self::SaysNothing | Self::NoReset => self,
        }
    }
}

/// Reports of a unit to a session, from before the session became a path of the unit.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says of one owner whether it has news")]
pub struct Reported {
    has_reasons: bool,
    has_lost_writes: bool,
    may_be_another_medium: bool,
    has_attentions: bool,
}

impl Begun {
    /// Returns whether there was no reason to revalidate the path when the command began, nor since.
    /// `revision` is the [present revision](Identity::revision).
    pub fn is_calm(&self, revision: u64) -> bool {
        self.calm_at == revision
    }
}

impl Unit {
    /// The path with which a unit begins.
    pub const FIRST_PATH: PathId = PathId(0);

    /// Creates an unknown unit with its first path.
    pub fn new() -> Self {
        let first = Self::FIRST_PATH;
        let mut commands = ByPath::default();
        commands.insert(first, Commands::default());
        Self {
            durability: Durability::new(first),
            identity: Identity::new(first),
            commands,
            next_path: first.0 + 1,
        }
    }

    /// Adds a path for a session that leads to the unit. `asked_at` is the result of
    /// [`Identity::shared_reasons`] when the unit was identified over the session.
    pub fn add_path(&mut self, asked_at: SharedReasons) -> PathId {
        let path = PathId(self.next_path);
        self.next_path += 1;
        self.durability.join(path);
        self.identity.join(path, asked_at);
        self.commands.insert(path, Commands::default());
        path
    }

    /// Removes a path whose session has ended.
    pub fn remove_path(&mut self, path: PathId) {
        self.durability.leave(path);
        self.identity.leave(path);
        self.commands.remove(path);
    }

    /// Notes that a command is about to be sent. Commands of a path must be sent in the order in which they
    /// begin.
    pub fn begin_command(&mut self, path: PathId) -> Begun {
        let epoch = self.durability.now();
        let is_calm = !self.identity.has_reasons(path);
        Begun {
            number: self
                .commands
                .get_mut(path)
                .map_or_else(|| Commands::default().next(), Commands::begin),
            epoch,
            calm_at: if is_calm { self.identity.revision() } else { NEVER },
            before: self.identity.before(path),
        }
    }

    /// Returns whether the known unit has executed a command that ended with GOOD. Returns `true` while no
    /// unit is known, and `false` if another unit may have been there for a time since the command began.
    pub fn is_of_known_unit(&self, path: PathId, begun: &Begun) -> bool {
        !self.identity.is_known() || !self.identity.may_be_two_since(path, begun.before)
    }

    /// Records a command that has ended with GOOD while there is no reason to revalidate the path. Returns
    /// whether the known unit has executed it. If not, another unit may have been there since the command
    /// began, and the status is ignored.
    pub fn end_with_good(&mut self, path: PathId, begun: &Begun, means: GoodEnd) -> bool {
        let is_of_known_unit = self.is_of_known_unit(path, begun);
        if is_of_known_unit {
            self.on_good(path, begun, means);
        }
        is_of_known_unit
    }

    /// Records a status GOOD of the known unit, or of the unit that is being identified.
    pub fn on_good(&mut self, path: PathId, begun: &Begun, means: GoodEnd) {
        match means {
            GoodEnd::SaysNothing => {}
            GoodEnd::NoReset => self.durability.accept(path, begun.epoch),
            GoodEnd::Wrote => self.durability.on_write(path, begun.epoch),
        }
    }

    /// Returns the reports of the unit over a path so far, for [`merge`](Self::merge).
    pub fn reported(&self, path: PathId) -> Reported {
        Reported {
            has_reasons: self.identity.has_reasons(path),
            has_lost_writes: self.durability.losses() > LossCount::default(),
            may_be_another_medium: self.identity.is_ready_change_reported(),
            has_attentions: self.identity.attentions() > 0,
        }
    }

    /// Merges the reports that a session received before it became this path. The unit does not repeat them.
    pub fn merge(&mut self, path: PathId, reported: Reported) {
        if reported.has_reasons {
            self.identity.add_reason(path);
        }
        if reported.has_lost_writes {
            self.durability.on_lost_writes();
        }
        if reported.may_be_another_medium {
            self.identity.on_ready_change();
        }
        if reported.has_attentions {
            self.identity.add_attention();
        }
    }

    /// Ends a command without a record of its result: it was never sent, or everything that it reports is
    /// recorded already.
    pub fn forget(&mut self, path: PathId, number: CommandNumber) {
        if let Some(commands) = self.commands.get_mut(path) {
            commands.end(number);
        }
    }

    /// Records the end of a command whose session has ended. The target may have executed the command, and
    /// its status may have been a report.
    pub fn end_with_session(&mut self, path: PathId, number: CommandNumber) {
        self.on_hidden_report(path);
        self.forget(path, number);
    }

    /// Returns the number of the next command of a path. All commands sent so far have lower numbers.
    pub fn next_command(&self, path: PathId) -> CommandNumber {
        self.commands.get(path).map_or_else(|| Commands::default().next(), Commands::next)
    }

    /// Returns whether every command of a path has ended.
    pub fn is_idle(&self, path: PathId) -> bool {
        self.commands.get(path).is_none_or(Commands::are_none)
    }

    /// Returns whether all commands that a path sent before this one have ended.
    pub fn have_ended_before(&self, path: PathId, number: CommandNumber) -> bool {
        self.commands.get(path).is_none_or(|commands| commands.have_ended_before(number))
    }

    /// Gives up all commands that a path sent before this one: they count as ended. Each may have hidden the
    /// report of a reset.
    pub fn give_up_before(&mut self, path: PathId, number: CommandNumber) {
        if let Some(commands) = self.commands.get_mut(path) {
            commands.give_up_before(number);
        }
        self.durability.on_uncertain_end(path);
    }
}

impl Default for Unit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
