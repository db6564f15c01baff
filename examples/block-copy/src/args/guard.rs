//! Options that guard the destination, and the format of the source.

use clap::{Args, ValueEnum};
use iscsi_examples_common::help::heading;

/// The guards of the destination, and the format of the source.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// Refuse a destination that holds data.
    ///
    /// Such as a partition table, a file system, or any byte that is not zero where these begin. What an earlier run of
    /// the copy has left there, by --resume or --digests, does not count.
    #[arg(long, help_heading = heading::ENDS)]
    pub if_blank: bool,
    /// Write to a block device or file even if it is in use.
    ///
    /// In use: mounted, a swap space, part of another device, shown by a loop device, or claimed by another program.
    #[arg(long, help_heading = heading::ENDS)]
    pub force: bool,
    /// Reserve the units of the destination for this copy.
    ///
    /// By a persistent reservation (write exclusive, registrants only). The copy fails if another host is registered
    /// with one of the units. The reservation ends with the copy; that of a killed copy of the same initiator is taken
    /// over. Without the option, registrations of other hosts are a warning.
    #[arg(long, help_heading = heading::ENDS)]
    pub exclusive: bool,
    /// Format of the source; raw skips the check.
    #[arg(long, value_name = "auto|raw", value_enum, default_value_t = SourceFormat::Auto, help_heading = heading::ENDS)]
    pub format: SourceFormat,
}

impl Default for GuardArgs {
    fn default() -> Self {
        Self { if_blank: false, force: false, exclusive: false, format: SourceFormat::Auto }
    }
}

/// How the bytes of the source are interpreted (`--format`).
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum SourceFormat {
    /// Refuses images of other formats (qcow2, VMDK, VHD, VHDX, VDI, ...), compressed data and archives.
    Auto,
    /// Copies the bytes as they are.
    Raw,
}
