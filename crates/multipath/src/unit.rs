//! All that is known of one logical unit, over all paths to it.

mod end;
mod fingerprint;
mod sense;

pub use end::{CommandEnd, CommandFacts, Effects};
pub use sense::{is_write_failure, may_be_another_unit};

use crate::by_path::ByPath;
use crate::commands::{CommandNumber, Commands};
use crate::durability::{Durability, Epoch, LossCount};
use crate::identity::{Before, Identity, SharedReasons};
use crate::ids::PathId;

/// What is known of one logical unit, each part by its owner. What concerns several owners goes through it: a command that
/// begins, and one that ends.
#[derive(Clone, Debug)]
pub struct Unit {
    /// What is unflushed, and what is lost.
    pub durability: Durability,
    /// Which unit it is.
    pub identity: Identity,
    commands: ByPath<Commands>,
    next_path: u32,
}

/// No revision.
const NEVER: u64 = u64::MAX;

/// What was known when a command began.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its place among the commands of its path.
    pub number: CommandNumber,
    /// When it began.
    pub epoch: Epoch,
    /// The revision of the identity, or [`NEVER`] if something had to be asked then.
    calm_at: u64,
    before: Before,
}

/// What it means that the known unit has ended a command with GOOD.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GoodEnd {
    /// Nothing: the unit would have ended it so also with a reset to report, or what it means is known later.
    SaysNothing,
    /// The unit had no reset to report when it executed the command.
    NoReset,
    /// The same, and what the command has written is unflushed from now on.
    Wrote,
}

impl GoodEnd {
    /// Returns what the end means if the request of the command was cancelled, or has ended by another copy: no flush has to bring
    /// onto the medium what this command has written.
    #[must_use]
    pub const fn if_not_awaited(self) -> Self {
        match self {
            Self::Wrote => Self::NoReset,
            Self::SaysNothing | Self::NoReset => self,
        }
    }
}

/// What a unit has reported to a session before it was known to be the unit of the others.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says of one owner whether it has news")]
pub struct Reported {
    has_reasons: bool,
    has_lost_writes: bool,
    may_be_another_medium: bool,
    has_attentions: bool,
}

impl Begun {
    /// Whether there was no reason to ask which unit it is when the command began, nor since; `revision` is
    /// [that of now](Identity::revision).
    pub fn is_calm(&self, revision: u64) -> bool {
        self.calm_at == revision
    }
}

impl Unit {
    /// The path that a unit begins with.
    pub const FIRST_PATH: PathId = PathId(0);

    /// A unit with its first path, of which nothing is known.
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

    /// Adds a path: a session has logged in that leads to the unit. It was asked for that when there had been these reasons.
    pub fn add_path(&mut self, asked_at: SharedReasons) -> PathId {
        let path = PathId(self.next_path);
        self.next_path += 1;
        self.durability.join(path);
        self.identity.join(path, asked_at);
        self.commands.insert(path, Commands::default());
        path
    }

    /// Forgets a path whose session is over.
    pub fn remove_path(&mut self, path: PathId) {
        self.durability.leave(path);
        self.identity.leave(path);
        self.commands.remove(path);
    }

    /// A command is about to be sent. Commands of a path must be sent in the order in which they begin.
    pub fn begin(&mut self, path: PathId) -> Begun {
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

    /// Whether the known unit has executed a command that has ended with GOOD. It has not if another one may have come and gone
    /// since.
    pub fn is_of_known_unit(&self, path: PathId, begun: &Begun) -> bool {
        !self.identity.is_known() || !self.identity.may_be_two_since(path, begun.before)
    }

    /// A command has ended with GOOD, and there is no reason to ask which unit has executed it. Returns whether the known unit
    /// has; otherwise another one may have come and gone since the command began, and its end means nothing.
    pub fn end_with_good(&mut self, path: PathId, begun: &Begun, means: GoodEnd) -> bool {
        let is_of_known_unit = self.is_of_known_unit(path, begun);
        if is_of_known_unit {
            self.on_good(path, begun, means);
        }
        is_of_known_unit
    }

    /// The unit that is asked which one it is has ended a command with GOOD, or the known one has.
    pub fn on_good(&mut self, path: PathId, begun: &Begun, means: GoodEnd) {
        match means {
            GoodEnd::SaysNothing => {}
            GoodEnd::NoReset => self.durability.accept(path, begun.epoch),
            GoodEnd::Wrote => self.durability.on_write(path, begun.epoch),
        }
    }

    /// What the unit has reported over a path so far, for [`merge`](Self::merge).
    pub fn reported(&self, path: PathId) -> Reported {
        Reported {
            has_reasons: self.identity.has_reasons(path),
            has_lost_writes: self.durability.losses() > LossCount::default(),
            may_be_another_medium: self.identity.is_ready_change_reported(),
            has_attentions: self.identity.attentions() > 0,
        }
    }

    /// Takes over what the unit has reported while a session was asked which unit it leads to, before the session became this
    /// path: it does not repeat that.
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

    /// A command was never sent, or went with its session.
    pub fn forget(&mut self, path: PathId, number: CommandNumber) {
        if let Some(commands) = self.commands.get_mut(path) {
            commands.end(number);
        }
    }

    /// A command went with its session, which may have executed it, and may have reported something.
    pub fn end_with_session(&mut self, path: PathId, number: CommandNumber) {
        self.on_hidden_report(path);
        self.forget(path, number);
    }

    /// The number of the next command of a path: all that were sent so far come before it.
    pub fn next_command(&self, path: PathId) -> CommandNumber {
        self.commands.get(path).map_or_else(|| Commands::default().next(), Commands::next)
    }

    /// Whether every command of a path has ended.
    pub fn is_idle(&self, path: PathId) -> bool {
        self.commands.get(path).is_none_or(Commands::are_none)
    }

    /// Whether all commands of a path have ended that were sent before this one.
    pub fn have_ended_before(&self, path: PathId, number: CommandNumber) -> bool {
        self.commands.get(path).is_none_or(|commands| commands.have_ended_before(number))
    }

    /// No status is waited for any more of the commands that a path sent before this one. Each may have hidden the report of a
    /// reset.
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
