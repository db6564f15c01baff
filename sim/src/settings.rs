//! Settings of episodes: which faults they may have, and how many requests.

use std::fmt;
use std::str::FromStr;

/// The classes of faults.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// Futures are dropped before they are ready.
    Dropped,
    /// Connections are lost.
    Cut,
    /// Data that a lost or reset connection had in flight arrives long after its end.
    Late,
    /// Links carry nothing for a while.
    Stall,
    /// Portals refuse connections, or do not respond.
    Refuse,
    /// Commands end with BUSY or TASK SET FULL.
    Busy,
    /// Data-Ins are lost in the target.
    Hole,
    /// Responses arrive late.
    Slow,
    /// Writes are executed late, even after their connection is lost.
    Zombie,
    /// The target restarts, or loses power. Writes that were not flushed are lost.
    Crash,
    /// Another initiator resets the unit or clears its task set: commands end with TASK ABORTED, or without a status.
    Reset,
    /// A write that was acknowledged is lost on its way to the medium. A deferred error reports it.
    Deferred,
    /// The write cache is switched on and off.
    WriteCache,
    /// The unit grows and shrinks.
    Capacity,
    /// For a while, the unit has another block size and other data.
    BlockSize,
    /// Another unit replaces this one for a while.
    Exchange,
    /// Commands are executed in another order than they arrive.
    Reorder,
    /// Reads, writes and flushes fail on the medium.
    Medium,
    /// Ports stop serving the unit, and serve it again.
    Standby,
    /// Processes die, and leave their requests in flight: hosts (`host.rs`, `episode.rs`), copies (`copy/run.rs`,
    /// `copy/repeated/run.rs`) and servers (`serve.rs`).
    Death,
    /// Each handle of a disk, and not only the first one, has to report lost writes.
    EachHandle,
    /// Nothing may change on the unit after a disk was logged out successfully.
    AfterClose,
    /// A restarted target listens before its access list and units are back.
    Startup,
    /// A target does not respond for a while, although its host acknowledges all data.
    BusyTarget,
    /// A flush takes time for each unflushed block, and its connection is not read meanwhile.
    SlowStore,
    /// A portal is unreachable for a while, in one direction or both.
    Partition,
    /// All processes stop for a while, and the rest of the world runs on.
    Stop,
    /// Drives write parts of their caches back in any order, so a loss of power loses a part of a cache. A
    /// command that is ended before its status has written some of its blocks.
    Torn,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 28] = [
        Self::Dropped,
        Self::Cut,
        Self::Late,
        Self::Stall,
        Self::Refuse,
        Self::Busy,
        Self::Hole,
        Self::Slow,
        Self::Zombie,
        Self::Crash,
        Self::Reset,
        Self::Deferred,
        Self::WriteCache,
        Self::Capacity,
        Self::BlockSize,
        Self::Exchange,
        Self::Reorder,
        Self::Medium,
        Self::Standby,
        Self::Death,
        Self::EachHandle,
        Self::AfterClose,
        Self::Startup,
        Self::BusyTarget,
        Self::SlowStore,
        Self::Partition,
        Self::Stop,
        Self::Torn,
    ];

    /// Returns whether this class is an event that happens now and then, and not a property of the whole
    /// episode.
    pub(crate) const fn is_event(self) -> bool {
        !self.is_trouble()
            && !matches!(
                self,
                Self::Death
                    | Self::Dropped
                    | Self::Late
                    | Self::EachHandle
                    | Self::AfterClose
                    | Self::Torn
            )
    }

    /// Returns whether this class is a trouble: a fault with a beginning and an end, and with its own random draws.
    pub(crate) const fn is_trouble(self) -> bool {
        matches!(
            self,
            Self::Startup | Self::BusyTarget | Self::SlowStore | Self::Partition | Self::Stop
        )
    }

    /// Returns whether episodes in which only links fail may have this class. They may have `Zombie`: a write
    /// that was sent before its link failed may be executed late.
    pub(crate) const fn is_about_links(self) -> bool {
        !self.is_event() || matches!(self, Self::Cut | Self::Stall | Self::Refuse | Self::Zombie)
    }

    /// Returns the name of the class on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Cut => "cut",
            Self::Late => "late",
            Self::Stall => "stall",
            Self::Refuse => "refuse",
            Self::Busy => "busy",
            Self::Hole => "hole",
            Self::Slow => "slow",
            Self::Zombie => "zombie",
            Self::Crash => "crash",
            Self::Reset => "reset",
            Self::Deferred => "deferred",
            Self::WriteCache => "write-cache",
            Self::Capacity => "capacity",
            Self::BlockSize => "block-size",
            Self::Exchange => "exchange",
            Self::Reorder => "reorder",
            Self::Medium => "medium",
            Self::Standby => "standby",
            Self::Death => "death",
            Self::EachHandle => "each-handle",
            Self::AfterClose => "after-close",
            Self::Startup => "startup",
            Self::BusyTarget => "busy-target",
            Self::SlowStore => "slow-store",
            Self::Partition => "partition",
            Self::Stop => "stop",
            Self::Torn => "torn",
        }
    }
}

impl Class {
    /// Returns the percentage of episodes that have this class. Faults that end most disks are rare.
    pub(crate) const fn chance(self) -> u64 {
        if matches!(self, Self::BlockSize | Self::Exchange) {
            8
        } else if matches!(self, Self::Capacity) {
            20
        } else {
            60
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|class| class.name() == name);
        known.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Settings that all episodes share.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Classes of faults that episodes may have.
    pub classes: Vec<Class>,
    /// Number of requests of an episode.
    pub operations: usize,
    /// Whether to keep the lines of the trace, and not only its hash.
    pub is_traced: bool,
}

impl Default for Settings {
    /// 200 requests, and all classes of faults.
    fn default() -> Self {
        Self { classes: Class::ALL.to_vec(), operations: 200, is_traced: false }
    }
}

impl Class {
    /// Faults after which the unit is another one, or seems to be another one.
    pub(crate) const CHANGES_OF_UNIT: [Self; 3] = [Self::Capacity, Self::BlockSize, Self::Exchange];
}

impl Settings {
    /// Returns the settings without the faults that change or exchange the unit.
    pub(crate) fn with_one_unit(&self) -> Self {
        let mut settings = self.clone();
        settings.classes.retain(|class| !Class::CHANGES_OF_UNIT.contains(class));
        settings
    }

    /// Returns the settings without any faults.
    #[must_use]
    pub fn without_faults(mut self) -> Self {
        self.classes.clear();
        self
    }

    pub(crate) fn has(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }
}
