//! Verifies that the destination holds what was read.

use iscsi_copy::Verify;
use iscsi_tuner::Size;

use super::comparison::compare;
use super::transferred::Unverified;
use super::{Job, delta};
use crate::args::VerifyMode;
use crate::control::handle::Phase;
use crate::ends::NO_WAY_BACK;
use crate::error::Error;
use crate::stop::Stop;

impl Unverified {
    /// Verifies the copied ranges, `bytes` in total, if an option asks for that. Returns whether it did.
    pub(super) async fn verify(
        self,
        job: &Job<'_>,
        bytes: u64,
        stop: &Stop,
    ) -> Result<bool, Error> {
        let destination = job.ends.to_destination();
        let Self { covered, checksums, earlier } = self;
        let (verify, is_enough) = match (job.args.content.verify, checksums, &job.digests) {
            (VerifyMode::Digests, _, Some(file)) => {
                // Later runs rely on the digests in the file, so these are read and checked.
                let known = delta::load(file.path(), &job.ends).await?;
                let ranges = known.ranges();
                let is_enough = covered.iter().all(|range| ranges.contains(&range));
                (Verify::by_digests(&destination, known), is_enough)
            }
            (VerifyMode::Read, Some(sums), _) => {
                let verify = Verify::new(job.ends.to_source(), &destination, sums);
                (verify.map(|verify| verify.with_earlier(earlier)), true)
            }
            (VerifyMode::None | VerifyMode::Read | VerifyMode::Digests, _, _) => return Ok(false),
        };
        let verify = verify.map_err(|_| NO_WAY_BACK)?;
        job.handle.follow(Phase::Verifying, verify.control());
        let verified = compare(verify, job.args, &job.ends, job.lines.clone(), stop).await;
        if let Err(Error::Mismatch { .. }) = verified {
            if let Some(resumption) = &job.resumption {
                resumption.forget().await;
            }
            if let Some(digests) = &job.digests {
                delta::forget(digests).await?;
            }
        }
        verified?;
        if is_enough { Ok(true) } else { Err(Error::PartlyKnown(Size(bytes))) }
    }
}
