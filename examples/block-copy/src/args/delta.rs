//! What the destination has already, by what an earlier copy has kept.

use std::path::PathBuf;

use clap::Args;

/// What need not be sent again.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What the destination has already")]
pub struct DeltaArgs {
    /// Keeps in FILE the BLAKE3 of each MiB that is at the destination and flushed; the next copy with the
    /// same FILE reads the source, and sends only what differs. FILE knows nothing of what others write
    /// to the destination.
    #[arg(long, value_name = "FILE")]
    pub digests: Option<PathBuf>,
    /// Copies only the ranges that FILE tells, as tools for snapshots write them: lines of START LENGTH in
    /// bytes, decimal or with 0x, where # begins a comment; or a JSON array of objects with "start", or
    /// "offset", and "length", each of which counts.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["offset", "length"])]
    pub ranges: Option<PathBuf>,
}
