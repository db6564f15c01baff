//! One run of a copy of a source in use, in passes.

use std::future::pending;

use std::sync::Arc;

use iscsi_copy::{
    Copied, CopyOptions, Destination, Failure, Forecast, Passes, PassesError, RangeSet, Source,
};
use tokio::time::sleep;

use super::Copies;
use super::in_use::{ChangeReporter, InUse};
use super::user::{Stop, lay};
use super::watch::Watch;

/// Longest time limit of the last pass, milliseconds.
const MAX_GOAL: u64 = 60_000;
/// Latest time at which a run is killed, milliseconds after its beginning.
const MAX_LIFE: u64 = 120_000;

/// The parts of a run that the passes need.
pub(super) struct Ends<'a> {
    pub(super) watch: &'a Arc<Watch>,
    pub(super) source: &'a Source,
    pub(super) destination: &'a Destination,
    pub(super) stop: Option<Stop>,
}

impl Copies<'_> {
    /// Runs all passes, unless they are stopped. Returns the result of the copy, and the copied ranges that
    /// have no checksum.
    pub(super) async fn run_passes(
        &mut self,
        ends: Ends<'_>,
        options: CopyOptions,
        in_use: &InUse,
        is_last: bool,
    ) -> Result<(Option<Result<Copied, Failure>>, RangeSet), String> {
        in_use.resume();
        let reporter = ChangeReporter::drawn(in_use, is_last, self.rng.fork());
        let max_passes = self.rng.pick(&[1, 2, 3, 4, 6]).copied().unwrap_or(1);
        let forecast = Forecast::new(self.rng.any_scale(MAX_GOAL), max_passes);
        let (source, destination) = (ends.source.clone(), ends.destination.clone());
        let passes = Passes::new(source, destination, options, reporter, forecast);
        let passes = passes.map_err(|error| error.to_string())?;
        let mut passes = passes.with_stop_at_divergence(self.rng.percent(20));
        let (mut rng, life) = (self.rng.fork(), self.rng.any_scale(MAX_LIFE));
        let watch = Arc::clone(ends.watch);
        // Dropping or killing a run needs no running copy: it may happen between two passes.
        let (stop, dies) = match ends.stop {
            Some(Stop::Drop | Stop::Kill) => (None, true),
            stop => (stop, false),
        };
        let passing = async {
            loop {
                let copy = match passes.next().await {
                    Ok(Some(copy)) => copy,
                    Ok(None) => return Ok(Ok(())),
                    Err(error) => return Err(error),
                };
                watch.shared.lock().trace.record("a pass", &[passes.left().bytes()]);
                let user = lay(copy.control(), &watch, rng.fork(), stop);
                let ended = tokio::select! {
                    biased;
                    ended = copy.run() => ended,
                    () = user => pending().await,
                };
                match ended {
                    Ok(copied) => passes.add_copied(copied),
                    Err(failure) => return Ok(Err(failure)),
                }
            }
        };
        let passing = async {
            tokio::select! {
                biased;
                ended = passing => Some(ended),
                () = sleep(life), if dies => None,
            }
        };
        let ended: Option<Result<Result<(), Failure>, PassesError>> =
            self.in_time("passes", passing).await?;
        Ok(match ended {
            Some(Ok(Ok(()))) => {
                let rest = passes.without_checksum();
                (Some(Ok(passes.into_copied())), rest)
            }
            Some(Ok(Err(failure))) => (Some(Err(failure)), RangeSet::new()),
            Some(Err(error)) => {
                ends.watch.shared.lock().trace.record(&format!("no further pass: {error}"), &[]);
                (None, RangeSet::new())
            }
            None => (None, RangeSet::new()),
        })
    }
}
