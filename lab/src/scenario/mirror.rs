//! Scenarios of mirrors: QEMU copies the disk of a running virtual machine to a unit while the disk is written.

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
    /// LUN of the unit, which must have a file.
    #[serde(default)]
    pub lun: u16,
    /// Writes to the disk during the mirror; by default none.
    pub load: Option<Load>,
    /// The granularity in which written data is copied again: a power of two from 512 bytes to 64 MiB; by
    /// default QEMU's, 64 KiB.
    pub granularity: Option<Size>,
    /// Time limit until disk and unit were equal for the first time, seconds.
    pub limit: Option<u64>,
}

/// How QEMU reaches a unit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// By NBD to this project's server, over a Unix socket.
    BlockServe,
    /// By QEMU's own iSCSI driver, which is libiscsi.
    QemuIscsi,
}

impl Through {
    /// Returns the name in scenarios and results.
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
    /// Largest rate, bytes per second.
    pub rate: Size,
    /// The shortest and the longest write, bytes. All lengths between them are equally frequent.
    pub sizes: [Size; 2],
    /// Number of writes in flight.
    pub depth: u32,
}

impl Load {
    /// Returns the description in results: `5M/s, 4K to 64K, 4 in flight`.
    pub fn words(&self) -> String {
        let [shortest, longest] = self.sizes;
        format!("{}/s, {shortest} to {longest}, {} in flight", self.rate, self.depth)
    }
}

/// Granularities that QEMU accepts, bytes.
const GRANULARITIES: std::ops::RangeInclusive<u64> = 512..=64 << 20;
/// The length of each write is a multiple of this, bytes.
const BLOCK: u64 = 512;

impl Mirror {
    /// Checks the mirror. The error names the first inconsistency.
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
