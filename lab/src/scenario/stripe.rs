//! Stripes: units behind links of their own, written and read as one.

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::size::Size;

/// Units as one device of bytes, side by side in chunks (RAID-0).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stripe {
    /// Who joins the units.
    pub who: Joiner,
    /// Which ways the bytes go, one after the other.
    #[serde(default = "both_ways")]
    pub directions: Vec<Direction>,
    /// Over how many links, each with a unit of its own, from LUN 0 on.
    pub links: Vec<u8>,
    /// Bytes on each unit.
    pub bytes: Size,
    /// The chunk, a power of two.
    #[serde(default = "default_chunk")]
    pub chunk: Size,
    /// Words added to the command line of the program that moves the bytes.
    #[serde(default)]
    pub args: Vec<String>,
    /// How often.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Seconds that a run may take.
    pub limit: Option<u64>,
}

/// Who joins the units.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joiner {
    /// block-copy, by a volume of this project.
    Volume,
    /// The kernel's initiator and its md, level 0; fio moves the bytes, past the page cache.
    MdRaid0,
    /// No program joins them: a block-copy for each unit, concurrently. What the links and the
    /// machine can carry.
    Apart,
}

/// One stripe to be measured.
#[derive(Clone, Debug)]
pub struct Striped {
    /// Who joins the units.
    pub who: Joiner,
    /// Over how many links.
    pub links: u8,
    /// Bytes of a chunk.
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

/// How many links `lab/link` can make.
const MOST_LINKS: u8 = 10;

impl Joiner {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Volume => "block-copy",
            Self::MdRaid0 => "md-raid0",
            Self::Apart => "apart",
        }
    }
}

impl Stripe {
    /// Says what makes no sense.
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

    /// The most links that it wants.
    pub fn most_links(&self) -> u8 {
        self.links.iter().copied().max().unwrap_or(1)
    }
}
