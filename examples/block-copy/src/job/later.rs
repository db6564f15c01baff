//! Verifies a destination without a copy: later, or from another host.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::Verify;
use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::TrafficClass;
use iscsi_initiator::shaping::RateLimit;
use iscsi_tuner::Size;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::comparison::compare;
use super::delta;
use crate::args::{Args, RateArgs, VerifyMode};
use crate::claims::Claims;
use crate::claims::named_files::{self, NamedFile};
use crate::classes::Classes;
use crate::classes::shared::{Connected, SharedClass};
use crate::end::End;
use crate::ends::{Ends, NO_WAY_BACK, TWO_USES, unless};
use crate::error::Error;
use crate::error::failure::Failure;
use crate::job::span::Span;
use crate::location::Location;
use crate::progress::json_lines::JsonLines;
use crate::progress::status::mbit_per_s;
use crate::side::Side;
use crate::stop::Stop;

/// The result of a verification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Verified {
    /// Number of equal bytes.
    pub bytes: u64,
    /// Time of the verification.
    pub time: Duration,
}

/// Compares the data at the only location of the arguments with the file of `--digests`. It does not write to
/// the location. If it finds a difference, it removes the digests, so that the next copy sends everything.
///
/// # Errors
/// The first error or difference.
pub fn verify<'a>(args: &'a Args, stop: &'a Stop) -> BoxFuture<'a, Result<Verified, Failure>> {
    boxed(async move {
        let (VerifyMode::Digests, Some(path)) = (args.content.verify, &args.delta.digests) else {
            return Err(ProgramError::usage(
            "the <DESTINATION> is missing; name it behind the <SOURCE> (one place alone is enough only for --verify=digests \
             with --digests FILE)",
        )
        .into());
        };
        if args.rate.control.is_some() {
            return Err(ProgramError::usage("--control is for copies; leave it out").into());
        }
        if args.controller.metrics.metrics.is_some() {
            return Err(ProgramError::usage("--metrics is for copies; leave it out").into());
        }
        let at = unless(stop, locate(args)).await?;
        // Claims the digest file: a copy that is still running would add digests to it, and would not notice
        // that they were removed.
        let claims = Claims::default();
        claims.claim_kept(&NamedFile::kept("--digests", path))?;
        let log = args.controller.termination_log.as_deref();
        let digests = NamedFile::kept("--digests", path);
        let read = at.file().map(|file| NamedFile::read("destination", file));
        let log = log.map(|log| NamedFile::written("--termination-log", log));
        named_files::check(&[Some(digests), read, log].into_iter().flatten().collect::<Vec<_>>())?;
        let (class, _connected) = class(&args.rate, stop).await?;
        let initiator = args.link.initiator(class)?;
        let end = unless(stop, End::read_back(&at, &initiator)).await?;
        if args.output.wants_json() && end.is_standard_output() {
            return Err(TWO_USES.into());
        }
        let ends = Ends::of_one(end, Span::new(&args.content)).with_ids(&args.resumption);
        let lines = args.output.json_lines.then(JsonLines::start).transpose();
        let lines = lines.map_err(ProgramError::Runtime)?;
        let verified = verify_known(args, path, &ends, lines.clone(), stop).await;
        if let Some(lines) = lines {
            JsonLines::finish(lines, stop).await;
        }
        // Nothing was written to the location, so an error of the logout is ignored.
        drop(ends.destination.close(stop).await);
        Ok(verified?)
    })
}

/// Returns the location of the destination. The file that describes a volume, and password files, are read.
async fn locate(args: &Args) -> Result<Location, Error> {
    let mut at = Location::parse(&args.source, Side::Destination).await?;
    args.passwords.apply(None, &mut at).await.map_err(ProgramError::from)?;
    Ok(at)
}

/// Returns the traffic class of the reads, if an option limits them.
async fn class(
    args: &RateArgs,
    stop: &Stop,
) -> Result<(Option<TrafficClass>, Option<Connected>), Error> {
    let RateArgs { rate_limit, share, class, .. } = args;
    if let Some(path) = share {
        let shared = unless(stop, SharedClass::join(path, class.as_deref())).await;
        return shared.map(|(shared, connected)| (Some(shared.paying()), Some(connected)));
    }
    let limited = |limit: &RateLimit| Classes::new(*limit)?.paying(None);
    Ok((rate_limit.as_ref().map(limited).transpose()?, None))
}

async fn verify_known(
    args: &Args,
    path: &Path,
    ends: &Ends,
    lines: Option<Arc<JsonLines>>,
    stop: &Stop,
) -> Result<Verified, Error> {
    let known = unless(stop, delta::load(path, ends)).await?;
    if known.is_empty() {
        // Either the digests were removed, or the copy ended before it stored any. The destination may be
        // wrong, so this is an error.
        return Err(Error::NothingKnown(path.to_string_lossy().into()));
    }
    let (bytes, start) = (known.bytes(), Instant::now());
    let verify = Verify::by_digests(&ends.to_destination(), known).map_err(|_| NO_WAY_BACK)?;
    let looked = compare(verify, args, ends, lines, stop).await;
    if let Err(Error::Mismatch { difference }) = looked {
        let file = delta::open(Some(path), ends).await?;
        if let Some(file) = file {
            delta::forget(&file).await?;
        }
        return Err(Error::Differs { difference });
    }
    match looked {
        // This run has copied nothing, so the message of `Error::Unverified` ("everything was written") would
        // be wrong.
        Err(Error::Unverified(cause)) => return Err(*cause),
        looked => looked?,
    }
    ends.confirm(stop).await?;
    Ok(Verified { bytes, time: start.elapsed() })
}

impl Verified {
    /// Returns the result as JSON, with the same names as in a [`Report`](crate::Report).
    pub fn to_json(&self) -> Value {
        json!({
            "bytes": 0,
            "bytes_verified": self.bytes,
            "seconds": self.time.as_secs_f64(),
            "verified": true,
            "error": null,
            "kind": null,
        })
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, seconds) = (Size(self.bytes), self.time.as_secs_f64());
        let rate = mbit_per_s(self.bytes, self.time);
        write!(f, "{bytes} read back equal in {seconds:.2} s, {rate:.1} Mbit/s")
    }
}
