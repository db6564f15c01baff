//! Mirrors: the disk of a running machine that QEMU moves to a unit while somebody writes on it.

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// A disk in use that is mirrored to a unit.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// How QEMU reaches the unit.
    pub through: Through,
    /// Words added to block-serve's command line.
    #[serde(default)]
    pub args: Vec<String>,
    /// The unit; it must keep its bytes in a file.
    #[serde(default)]
    pub lun: u16,
    /// What is written to the disk all the time; nothing if not given.
    pub load: Option<Load>,
    /// The least that is copied again after a write, a power of two from 512 bytes to 64 MiB; QEMU's own
    /// choice, 64 KiB, if not given.
    pub granularity: Option<Size>,
    /// Seconds until both must have been equal for once.
    pub limit: Option<u64>,
}

/// How QEMU reaches a unit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// By NBD to this project's server, over a Unix socket.
    BlockServe,
    /// By its own iSCSI driver, which is libiscsi.
    QemuIscsi,
}

impl Through {
    /// Its name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockServe => "block-serve",
            Self::QemuIscsi => "qemu-iscsi",
        }
    }
}

/// Random writes to a disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Bytes a second, at most.
    pub rate: Size,
    /// The shortest and the longest write, bytes; lengths between them are as frequent.
    pub sizes: [Size; 2],
    /// The number of writes in flight.
    pub depth: u32,
}

impl Load {
    /// What a result says of it: `5M/s, 4K to 64K, 4 in flight`.
    pub fn words(&self) -> String {
        let [shortest, longest] = self.sizes;
        format!("{}/s, {shortest} to {longest}, {} in flight", self.rate, self.depth)
    }
}

/// What QEMU takes for a granularity, bytes.
const GRANULARITIES: std::ops::RangeInclusive<u64> = 512..=64 << 20;
/// What writes are multiples of, bytes.
const BLOCK: u64 = 512;

impl Mirror {
    /// Says what makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_odd = |size: &Size| !size.0.is_power_of_two() || !GRANULARITIES.contains(&size.0);
        let load_is_odd = |load: &Load| {
            let [shortest, longest] = load.sizes.map(|size| size.0);
            let is_block = |size: u64| size > 0 && size.is_multiple_of(BLOCK);
            !is_block(shortest) || !is_block(longest) || shortest > longest
        };
        let load_is_none = |load: &Load| load.rate.0 == 0 || load.depth == 0;
        let wrong = [
            (
                !self.args.is_empty() && self.through != Through::BlockServe,
                "`args` are words for block-serve",
            ),
            (
                self.granularity.as_ref().is_some_and(is_odd),
                "`granularity` is a power of two from 512 to 64M",
            ),
            (
                self.load.as_ref().is_some_and(load_is_odd),
                "`sizes` of `load` are two multiples of 512, the smaller one first",
            ),
            (
                self.load.as_ref().is_some_and(load_is_none),
                "`rate` and `depth` of `load` are not 0",
            ),
            (self.limit == Some(0), "`limit` must be at least 1"),
        ];
        wrong.iter().find(|(is, _)| *is).map_or(Ok(()), |(_, reason)| Err((*reason).to_owned()))
    }
}
