//! Whether the destination holds what was read.

use std::io;
use std::sync::Arc;

use iscsi_copy::{Checksums, Verify, VerifyError};
use iscsi_initiator::tuning::Size;

use super::{Job, delta};
use crate::args::{Args, QueueDepth, VerifyMode};
use crate::ends::{Ends, NO_WAY_BACK};
use crate::error::Error;
use crate::hand::Phase;
use crate::json_lines::JsonLines;
use crate::meter::Meter;
use crate::progress::Progress;
use crate::side::Side;
use crate::stop::Stop;

impl Job<'_> {
    /// Reads back what was copied, `bytes` in all, and compares it, if that is asked for; whether it was.
    pub(super) async fn verify(
        &self,
        sums: Option<Checksums>,
        bytes: u64,
        stop: &Stop,
    ) -> Result<bool, Error> {
        let destination = self.ends.to_destination();
        let (verify, is_enough) = match (self.args.content.verify, sums, &self.digests) {
            (VerifyMode::Digests, _, Some(file)) => {
                // What was kept is what shall hold, so it is read from there.
                let known = delta::load(file.path(), &self.ends).await?;
                let is_enough = known.bytes() >= bytes;
                (Verify::by_digests(&destination, known), is_enough)
            }
            (VerifyMode::Read, Some(sums), _) => {
                let done = self.resumption.as_ref().map(|earlier| earlier.done.clone());
                let verify = Verify::new(self.ends.to_source(), &destination, sums);
                (verify.map(|verify| verify.with_earlier(done.unwrap_or_default())), true)
            }
            (VerifyMode::None | VerifyMode::Read | VerifyMode::Digests, _, _) => return Ok(false),
        };
        let verify = verify.map_err(|_| NO_WAY_BACK)?;
        self.hand.follow(Phase::Verifying, verify.control());
        let verified = look(verify, self.args, &self.ends, self.lines.clone(), stop).await;
        if let Err(Error::Mismatch { .. }) = verified {
            if let Some(resumption) = &self.resumption {
                resumption.forget().await;
            }
            if let Some(digests) = &self.digests {
                delta::forget(digests).await?;
            }
        }
        verified?;
        if is_enough { Ok(true) } else { Err(Error::PartlyKnown(Size(bytes))) }
    }
}

/// Reads back and compares.
pub(super) async fn look(
    verify: Verify,
    args: &Args,
    ends: &Ends,
    lines: Option<Arc<JsonLines>>,
    stop: &Stop,
) -> Result<(), Error> {
    let progress = Progress::new(args.output.progress, "verified", Some(verify.bytes()), 0);
    let verify = match args.link.queue_depth {
        QueueDepth::Fixed(depth) => verify.with_queue_depth(depth.get()),
        QueueDepth::Auto => verify,
    };
    let meter = Meter::new(verify.control(), ends, lines);
    let work = Box::pin(stop.unless(verify.run()));
    let unverified = |error| Err(Error::Unverified(Box::new(error)));
    match meter.follow(&progress, 0, work).await.0 {
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
        // What was under way was read back only.
        Some(Err(VerifyError::Cancelled)) | None => unverified(Error::Interrupted),
        Some(Err(VerifyError::Stream)) => Err(NO_WAY_BACK),
        Some(Err(other)) => {
            unverified(ends.destination.failed(Side::Destination, io::Error::other(other)))
        }
    }
}
