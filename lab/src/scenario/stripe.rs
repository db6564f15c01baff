//! Stripes: units behind links of their own that are joined to one device.

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::size::Size;

/// Units that are joined to one device in chunks (RAID-0).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// The program that joins the units.
    pub who: Joiner,
    /// Directions to measure, one after the other.
    #[serde(default = "both_ways")]
    pub directions: Vec<Direction>,
    /// Numbers of links. Each link has a unit of its own, from LUN 0 on.
    pub links: Vec<u8>,
    /// Bytes of each unit.
    pub bytes: Size,
    /// Chunk size, a power of two.
    #[serde(default = "default_chunk")]
    pub chunk: Size,
    /// Words added to the command line of the program that moves the bytes.
    #[serde(default)]
    pub args: Vec<String>,
    /// Number of repetitions.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Time limit of a run, seconds.
    pub limit: Option<u64>,
}

/// The program that joins units.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joiner {
    /// block-copy, with a volume of this project.
    Volume,
    /// The kernel's initiator and md, level 0. fio moves the bytes, bypassing the page cache.
    MdRaid0,
    /// No program: one block-copy per unit, concurrently. This shows what the links and the machine can carry.
    Apart,
}

/// A stripe to measure.
#[derive(Clone, Debug)]
pub struct Striped {
    /// The program that joins the units.
    pub who: Joiner,
    /// Number of links.
    pub links: u8,
    /// Chunk size, bytes.
    pub chunk: u64,
}

fn both_ways() -> Vec<Direction> {
    vec![Direction::Write, Direction::Read]
}

fn default_chunk() -> Size {
    Size(512 << 10)
}

fn once() -> u32 {
    1
}

/// Number of links that `lab/link` can make.
const MOST_LINKS: u8 = 10;

impl Joiner {
    /// Returns the name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "block-copy",
            Self::MdRaid0 => "md-raid0",
            Self::Apart => "apart",
        }
    }
}

impl Stripe {
    /// Checks the stripe. The error names the first inconsistency.
    pub(super) fn check(&self) -> Result<(), String> {
        let chunk = self.chunk.0;
        let wrong = [
            (self.directions.is_empty(), "`directions` is empty"),
            (
                self.links.is_empty() || !self.links.iter().all(|n| (1..=MOST_LINKS).contains(n)),
                "`links` wants numbers from 1 to 10",
            ),
            (
                !chunk.is_power_of_two() || chunk < 64 << 10,
                "`chunk` is a power of two, 64K or more",
            ),
            (
                self.bytes.0 == 0 || !self.bytes.0.is_multiple_of(chunk),
                "`bytes` is a multiple of `chunk`",
            ),
            (self.repeat == 0, "`repeat` must be at least 1"),
            (self.limit == Some(0), "`limit` must be at least 1"),
            (
                !self.args.is_empty() && self.who == Joiner::MdRaid0,
                "`args` are words for block-copy",
            ),
        ];
        wrong.iter().find(|(is, _)| *is).map_or(Ok(()), |(_, reason)| Err((*reason).to_owned()))
    }

    /// Returns the largest number of links that the stripe needs.
    pub fn most_links(&self) -> u8 {
        self.links.iter().copied().max().unwrap_or(1)
    }
}
