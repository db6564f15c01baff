//! Lists the loads of the comparison. Each load is one row of the result table, and runs on every program.

use iscsi_lab::size::Size;

use crate::args::{CompareArgs, Digests, Direction};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A load: the requests, and the programs that execute them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) direction: Direction,
    /// Bytes of one request.
    pub(crate) io: Size,
    /// Requests in flight per disk.
    pub(crate) depth: u32,
    /// Bytes of all disks together.
    pub(crate) bytes: Size,
    pub(crate) digests: Digests,
    pub(crate) kind: Kind,
}

/// The programs that run a load, and the number of disks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The initiator and libiscsi, each with one disk.
    Both,
    /// The initiator, libiscsi, and a TCP stream without iSCSI.
    AndBare,
    /// The initiator and libiscsi with this number of disks, and the session's state machine alone.
    Disks(u32),
    /// The initiator with this number of disks over one session, each a different unit.
    OverOneSession(u32),
    /// The initiator with `disks` idle disks, for `seconds`.
    Idle { disks: u32, seconds: u64 },
}

impl Row {
    /// Returns the name of the load as readable text. `--only` searches in it.
    pub(crate) fn name(&self) -> String {
        let Self { direction, io, depth, .. } = self;
        let digests = match self.digests {
            Digests::None => "",
            Digests::Header => " header",
            Digests::Both => " both",
        };
        let kind = match self.kind {
            Kind::Both | Kind::AndBare => String::new(),
            Kind::Disks(disks) => format!(" disks {disks}"),
            Kind::OverOneSession(disks) => format!(" disks {disks} over one session"),
            Kind::Idle { disks, .. } => format!(" idle {disks}"),
        };
        format!("{direction} {io} x {depth}{digests}{kind}")
    }

    /// Returns whether the load also runs against the testkit's target. That is so for loads of a single disk
    /// without digests.
    pub(crate) fn is_for_testkit(&self) -> bool {
        self.digests == Digests::None && matches!(self.kind, Kind::Both | Kind::AndBare)
    }

    pub(crate) fn disks(&self) -> u32 {
        match self.kind {
            Kind::Both | Kind::AndBare => 1,
            Kind::Disks(disks) | Kind::OverOneSession(disks) | Kind::Idle { disks, .. } => disks,
        }
    }

    /// Returns the number of units that the target needs.
    pub(crate) fn units(&self) -> u32 {
        match self.kind {
            Kind::OverOneSession(disks) => disks,
            Kind::Both | Kind::AndBare | Kind::Disks(_) | Kind::Idle { .. } => 1,
        }
    }

    fn new(direction: Direction, io: u64, depth: u32, bytes: u64) -> Self {
        let (io, bytes) = (Size(io), Size(bytes));
        Self { direction, io, depth, bytes, digests: Digests::None, kind: Kind::Both }
    }

    /// Reduces the load to a few requests, which take almost no time.
    fn short(mut self) -> Self {
        self.kind = match self.kind {
            Kind::Both | Kind::AndBare => self.kind,
            Kind::Disks(disks) => Kind::Disks(disks.min(8)),
            Kind::OverOneSession(disks) => Kind::OverOneSession(disks.min(8)),
            Kind::Idle { disks, .. } => Kind::Idle { disks: disks.min(8), seconds: 1 },
        };
        self.bytes = Size(self.io.0 * u64::from(self.depth * self.disks()) * 4);
        self
    }
}

/// Returns the loads that the arguments select.
pub(crate) fn rows(args: &CompareArgs) -> Vec<Row> {
    let mut rows = loads();
    rows.extend([1, 200, 1000].map(Kind::Disks).map(disks));
    rows.extend([200, 1000].map(Kind::OverOneSession).map(disks));
    rows.extend([1, 200, 1000].map(idle));
    rows.retain(|row| args.only.as_ref().is_none_or(|only| row.name().contains(only)));
    if args.test { rows.into_iter().map(Row::short).collect() } else { rows }
}

fn loads() -> Vec<Row> {
    let mut rows = Vec::new();
    for direction in [Direction::Write, Direction::Read] {
        let large = match direction {
            Direction::Write => 2048 * MIB,
            Direction::Read => 4096 * MIB,
        };
        let middle = Row::new(direction, 64 * KIB, 32, 2048 * MIB);
        rows.extend([
            Row { kind: Kind::AndBare, ..Row::new(direction, MIB, 8, large) },
            Row { kind: Kind::AndBare, ..middle },
            Row::new(direction, 4 * KIB, 32, 256 * MIB),
            Row::new(direction, 4 * KIB, 1, 32 * MIB),
            Row { digests: Digests::Header, ..middle },
            Row { digests: Digests::Both, ..middle },
        ]);
    }
    rows
}

/// Number of reads over all disks together. Each number of disks divides it.
const READS: u64 = 65_000;

fn disks(kind: Kind) -> Row {
    Row { kind, ..Row::new(Direction::Read, 4 * KIB, 4, READS * 4 * KIB) }
}

fn idle(disks: u32) -> Row {
    self::disks(Kind::Idle { disks, seconds: 10 })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn rows_are_chosen_by_a_part_of_their_name() {
        let named = |words: &[&str]| {
            let words = ["short_link"].iter().chain(words);
            let rows = rows(&Cli::parse_from(words).compare);
            rows.iter().map(Row::name).collect::<Vec<_>>()
        };
        assert_eq!(named(&["--only", "read 4K x 1"]), ["read 4K x 1"]);
        assert_eq!(named(&["--only", "header"]), ["write 64K x 32 header", "read 64K x 32 header"]);
        assert_eq!(named(&["--only", "idle 1"]), ["read 4K x 4 idle 1", "read 4K x 4 idle 1000"]);
        assert_eq!(named(&["--only", "idle 1", "--test"]).last().unwrap(), "read 4K x 4 idle 8");
        assert_eq!(named(&["--only", "200 over"]), ["read 4K x 4 disks 200 over one session"]);
        assert_eq!(named(&[]).len(), 20);
    }
}
