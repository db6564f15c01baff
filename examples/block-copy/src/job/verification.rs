//! Whether the destination holds what was read.

use std::io;

use iscsi_copy::{Checksums, Verify, VerifyError};

use super::Job;
use crate::args::QueueDepth;
use crate::ends::NO_WAY_BACK;
use crate::error::Error;
use crate::hand::Phase;
use crate::meter::Meter;
use crate::progress::Progress;
use crate::side::Side;
use crate::stop::Stop;

impl Job<'_> {
    /// Reads the destination back and compares.
    pub(super) async fn verify(&self, sums: Checksums, stop: &Stop) -> Result<(), Error> {
        let done = self.resumption.as_ref().map(|earlier| earlier.done.clone()).unwrap_or_default();
        let total = sums.bytes() + done.bytes();
        let progress = Progress::new(self.args.output.progress, "verified", Some(total), 0);
        let (source, destination) = (self.ends.to_source(), self.ends.to_destination());
        let verify = Verify::new(source, &destination, sums).map_err(|_| NO_WAY_BACK)?;
        let verify = verify.with_earlier(done);
        let verify = match self.args.link.queue_depth {
            QueueDepth::Fixed(depth) => verify.with_queue_depth(depth.get()),
            QueueDepth::Auto => verify,
        };
        self.hand.follow(Phase::Verifying, verify.control());
        let meter = Meter::new(verify.control(), &self.ends, self.lines.clone());
        let work = Box::pin(stop.unless(verify.run()));
        let unverified = |error| Err(Error::Unverified(Box::new(error)));
        match meter.follow(&progress, 0, work).await.0 {
            Some(Ok(_)) => Ok(()),
            Some(Err(VerifyError::Mismatch(difference))) => {
                if let Some(resumption) = &self.resumption {
                    resumption.forget().await;
                }
                let difference = difference.moved(self.ends.place());
                Err(Error::Mismatch { difference })
            }
            Some(Err(VerifyError::Source(cause))) => {
                let error = self.ends.source.failed(Side::Source, cause);
                unverified(self.ends.explained(error, stop).await)
            }
            Some(Err(VerifyError::Destination(cause))) => {
                let error = self.ends.destination.failed(Side::Destination, cause);
                unverified(self.ends.explained(error, stop).await)
            }
            // What was under way was read back only.
            Some(Err(VerifyError::Cancelled)) | None => unverified(Error::Interrupted),
            Some(Err(VerifyError::Stream)) => Err(NO_WAY_BACK),
            Some(Err(other)) => {
                unverified(self.ends.destination.failed(Side::Destination, io::Error::other(other)))
            }
        }
    }
}
