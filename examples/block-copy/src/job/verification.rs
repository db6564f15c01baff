//! Whether the destination holds what was read.

use iscsi_copy::Verify;
use iscsi_tuner::Size;

use super::comparison::compare;
use super::transferred::Unverified;
use super::{Job, delta};
use crate::args::VerifyMode;
use crate::ends::NO_WAY_BACK;
use crate::error::Error;
use crate::handle::Phase;
use crate::stop::Stop;

impl Job<'_> {
    /// Reads back what was copied, `bytes` in all, and compares it, if that is asked for; whether it was.
    pub(super) async fn verify(
        &self,
        unverified: Unverified,
        bytes: u64,
        stop: &Stop,
    ) -> Result<bool, Error> {
        let destination = self.ends.to_destination();
        let Unverified { covered, checksums, earlier } = unverified;
        let (verify, is_enough) = match (self.args.content.verify, checksums, &self.digests) {
            (VerifyMode::Digests, _, Some(file)) => {
                // What was kept is what shall hold, so it is read from there.
                let known = delta::load(file.path(), &self.ends).await?;
                let ranges = known.ranges();
                let is_enough = covered.iter().all(|range| ranges.contains(&range));
                (Verify::by_digests(&destination, known), is_enough)
            }
            (VerifyMode::Read, Some(sums), _) => {
                let verify = Verify::new(self.ends.to_source(), &destination, sums);
                (verify.map(|verify| verify.with_earlier(earlier)), true)
            }
            (VerifyMode::None | VerifyMode::Read | VerifyMode::Digests, _, _) => return Ok(false),
        };
        let verify = verify.map_err(|_| NO_WAY_BACK)?;
        self.handle.follow(Phase::Verifying, verify.control());
        let verified = compare(verify, self.args, &self.ends, self.lines.clone(), stop).await;
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
