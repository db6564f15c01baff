//! Runs the commands that list what is written to a source in use.

use std::borrow::Cow;
use std::io;

use iscsi_copy::{Changes, IoFuture, RangeSet};

use crate::args::{Args, PassArgs, VerifyMode};
use crate::ends::Ends;
use crate::error::Error;
use crate::job::ranges;
use crate::shell::Shell;
use crate::stop::Stop;
use iscsi_examples_common::program::ProgramError;

/// Checks, before anything is opened, that the options are possible for a source in use.
pub(super) fn check(args: &Args) -> Result<(), Error> {
    let PassArgs { ranges_from, before_last_pass, .. } = &args.passes;
    let is_written_to = ranges_from.is_some() && before_last_pass.is_none();
    if is_written_to && args.content.verify == VerifyMode::Read {
        return Err(ProgramError::usage(
            "--verify compares with a source that no program writes to any more; add --before-last-pass, or compare with \
             what was written by --verify=digests",
        ).into());
    }
    Ok(())
}

/// Checks that neither source nor destination is a stream, which has no offsets.
pub(super) fn check_ends(args: &PassArgs, ends: &Ends) -> Result<(), Error> {
    let is_stream = ends.source.is_stream() || ends.destination.is_stream();
    if args.ranges_from.is_some() && is_stream { Err(STREAM) } else { Ok(()) }
}

pub(super) const STREAM: Error = Error::Program(ProgramError::Usage(Cow::Borrowed(
    "a stream is copied once, and in order; leave --ranges-from out, or copy between files and units",
)));

/// The commands that list what is written to the source.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) ranges_from: Shell,
    pub(super) before_last_pass: Option<Shell>,
    /// Length of the source in bytes.
    pub(super) has: u64,
    pub(super) stop: Stop,
}

impl Changes for Commands {
    fn changed(&mut self) -> IoFuture<'_, RangeSet> {
        Box::pin(async move {
            let text = self.ranges_from.output().await.map_err(io::Error::other)?;
            let ranges = self.stop.unless(ranges::read(text, self.has)).await;
            let failed = |cause| io::Error::other(self.ranges_from.failed(cause));
            let interrupted = || io::Error::other(ProgramError::Interrupted);
            ranges.ok_or_else(interrupted)?.map_err(failed)
        })
    }

    fn freeze(&mut self) -> Option<IoFuture<'_, ()>> {
        let command = self.before_last_pass.as_ref()?;
        Some(Box::pin(async move { command.run_through().await.map_err(io::Error::other) }))
    }
}
