//! Reads a destination back and compares it.

use std::io;
use std::sync::Arc;

use iscsi_copy::{Verify, VerifyError};

use crate::args::{Args, QueueDepth};
use crate::ends::{Ends, NO_WAY_BACK};
use crate::error::Error;
use crate::progress::json_lines::JsonLines;
use crate::progress::meter::Meter;
use crate::progress::{Pass, Progress};
use crate::side::Side;
use crate::stop::Stop;
use iscsi_examples_common::program::ProgramError;

/// Reads the destination back, compares it, and shows the progress.
pub(super) async fn compare(
    verify: Verify,
    args: &Args,
    ends: &Ends,
    lines: Option<Arc<JsonLines>>,
    stop: &Stop,
) -> Result<(), Error> {
    let (mode, interval) = (args.output.mode(), args.output.stats);
    let progress = Progress::new(mode, interval, Pass::Verify, Some(verify.bytes()));
    let verify = verify.with_holes_read(args.content.read_holes);
    let verify = match args.link.queue_depth {
        QueueDepth::Fixed(depth) => verify.with_queue_depth(depth.get()),
        QueueDepth::Auto => verify,
    };
    let meter = Meter::new(verify.control(), ends, lines);
    let work = Box::pin(stop.unless(verify.run()));
    let unverified = |error| Err(Error::Unverified(Box::new(error)));
    match meter.follow(&progress, work).await.0 {
        Some(Ok(_)) => Ok(()),
        Some(Err(VerifyError::Mismatch(difference))) => {
            Err(Error::Mismatch { difference: difference.moved(ends.place()) })
        }
        Some(Err(VerifyError::Source(cause))) => {
            let error = ends.source.failed(Side::Source, cause);
            unverified(ends.explained(error, stop).await)
        }
        Some(Err(VerifyError::Destination(cause))) => {
            let error = ends.destination.failed(Side::Destination, cause);
            unverified(ends.explained(error, stop).await)
        }
        // A request to stop ends the comparison immediately, because only reads were in flight.
        Some(Err(VerifyError::Cancelled)) | None => unverified(ProgramError::Interrupted.into()),
        Some(Err(VerifyError::Stream)) => Err(NO_WAY_BACK),
        Some(Err(other)) => {
            unverified(ends.destination.failed(Side::Destination, io::Error::other(other)))
        }
    }
}
