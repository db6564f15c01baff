//! What may be overwritten, and what is taken for a disk.

use clap::{Args, ValueEnum};

/// What may be overwritten, and what is taken for a disk.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What may be overwritten")]
pub struct GuardArgs {
    /// Refuses a destination that holds anything: a partition table, a file system, or other data in the places where
    /// these begin. What an earlier run of the same copy has left there, by --resume or --digests, is no reason.
    #[arg(long)]
    pub if_blank: bool,
    /// Writes also to a block device or a file that is in use: mounted, for swapping, a part of another device, shown by a
    /// loop device, or claimed by another program.
    #[arg(long)]
    pub force: bool,
    /// Reserves the units of the destination for this copy (persistent reservation, write exclusive), and fails if another host is
    /// registered with one. The reservation ends with the copy; that of a killed copy of the same initiator is taken over.
    #[arg(long)]
    pub exclusive: bool,
    /// What the source is: auto refuses images of other formats (qcow2, VMDK, VHD, VHDX, VDI, ...), what is compressed, and
    /// archives, where they are recognised; raw copies their bytes as they are.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = SourceFormat::Auto)]
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
    /// Those of a disk, unless they are recognised as others.
    Auto,
    /// What is to be copied, whatever they are.
    Raw,
}
