//! Copies a source in use, in passes.

use std::io;

use iscsi_copy::{Forecast, Passes, PassesError, Progress, RangeSet};
use iscsi_examples_common::program::ProgramError;
use serde_json::json;
use tokio::time::Instant;

use super::Job;
use super::commands::{Commands, STREAM};
use super::transferred::{Transferred, Unverified};
use crate::args::{PassArgs, WhenNotConverging};
use crate::claims;
use crate::error::Error;
use crate::progress::eprint_lines;
use crate::report::passes::PassesReport;
use crate::shell::Shell;
use crate::stop::Stop;

impl Job<'_> {
    /// Copies in passes. The command `ranges_from` lists the ranges of each pass after the first one.
    pub(super) async fn copy_in_passes(
        &self,
        ranges_from: &str,
        stop: &Stop,
    ) -> (Transferred, Result<Unverified, Error>) {
        let mut transferred = Transferred::default();
        let start = Instant::now();
        let result = match self.passes(ranges_from, stop) {
            Ok(passes) => self.make_passes(passes, start, &mut transferred, stop).await,
            Err(error) => Err(error),
        };
        (transferred, result)
    }

    fn passes(&self, ranges_from: &str, stop: &Stop) -> Result<Passes, Error> {
        let PassArgs { downtime, max_passes, before_last_pass, when_not_converging, .. } =
            &self.args.passes;
        let (source, destination) = (self.ends.to_source(), self.ends.to_destination());
        let before_last_pass = before_last_pass.as_deref();
        let commands = Commands {
            ranges_from: Shell::new("--ranges-from", ranges_from, stop)
                .working_for(claims::keys(&self.ends)),
            before_last_pass: before_last_pass
                .map(|line| Shell::new("--before-last-pass", line, stop)),
            has: source.length().unwrap_or_default(),
            stop: stop.clone(),
        };
        let forecast = Forecast::new(*downtime, *max_passes);
        let passes = Passes::new(source, destination, self.options(), commands, forecast);
        let stops = *when_not_converging == WhenNotConverging::Stop;
        passes.map(|passes| passes.with_stop_at_divergence(stops)).map_err(|_| STREAM)
    }

    async fn make_passes(
        &self,
        mut passes: Passes,
        start: Instant,
        transferred: &mut Transferred,
        stop: &Stop,
    ) -> Result<Unverified, Error> {
        let (mut told, mut covered) = (0, RangeSet::new());
        let is_complete = loop {
            let next = Box::pin(passes.next()).await;
            let is_complete = matches!(next, Ok(None));
            transferred.take(&passes, &Progress::default(), start);
            let report = self.report(&passes, is_complete);
            if told < passes.ended().len() {
                self.report_pass(&report, told);
                told += 1;
            }
            transferred.passes = Some(report);
            let next = next.map_err(|error| self.stopped(error, &transferred.progress));
            let Some(copy) = next? else { break is_complete };
            covered.extend(passes.left().iter());
            transferred.before = self.ends.source.file_identity().filter(|_| passes.is_last());
            let total = Some(passes.left().bytes());
            let (copied, samples) = self.transfer(copy, total, stop).await;
            transferred.samples.extend(samples);
            match copied {
                Ok(copied) => passes.add_copied(copied),
                Err(failure) => {
                    transferred.take(&passes, &failure.progress, start);
                    transferred.unreadable.extend(failure.unreadable.iter());
                    let is_written = failure.is_written && passes.is_last();
                    let error = self.ends.explained(self.failed(failure.error), stop).await;
                    let has_full_length = failure.has_full_length;
                    return Err(self.ended(
                        error,
                        &transferred.progress,
                        is_written,
                        has_full_length,
                    ));
                }
            }
        };
        self.check_convergence(&self.report(&passes, is_complete))?;
        let earlier = passes.without_checksum();
        passes.unreadable().iter().for_each(|range| covered.remove(&range));
        Ok(Unverified { covered, checksums: passes.into_copied().checksums, earlier })
    }

    /// Returns the report of the passes so far.
    fn report(&self, passes: &Passes, is_complete: bool) -> PassesReport {
        let PassArgs { downtime, before_last_pass, .. } = &self.args.passes;
        PassesReport {
            ended: passes.ended().to_vec(),
            goal: *downtime,
            is_complete,
            is_frozen: before_last_pass.is_some(),
        }
    }

    /// Reports the ended pass with the index `at`.
    fn report_pass(&self, report: &PassesReport, at: usize) {
        if !self.args.output.is_silent() {
            eprint_lines(&format!("{}\n", report.line(at)));
        }
        if let Some(lines) = &self.lines {
            lines.put(&json!({ "pass_ended": report.pass_to_json(at) }));
        }
    }

    /// Returns the error for passes that ended early.
    fn stopped(&self, error: PassesError, progress: &Progress) -> Error {
        let of_command = |cause: io::Error| {
            cause.downcast::<Error>().unwrap_or_else(|cause| ProgramError::Runtime(cause).into())
        };
        // At least one pass has ended, so a destination file has its final length.
        let has_full_length = self.ends.destination.is_regular_file();
        match (error, &self.resumption) {
            (PassesError::Changes(cause), Some(_)) => {
                let error = of_command(cause).after(progress, false, has_full_length);
                Error::Unasked(Box::new(error))
            }
            (PassesError::Changes(cause) | PassesError::Freeze(cause), _) => {
                self.ended(of_command(cause), progress, false, has_full_length)
            }
            (PassesError::Checkpoint(cause), Some(resumption)) => {
                self.ended(resumption.failed(cause), progress, false, has_full_length)
            }
            (PassesError::Stream, _) => STREAM,
            (other, _) => ProgramError::Runtime(io::Error::other(other)).into(),
        }
    }

    fn check_convergence(&self, report: &PassesReport) -> Result<(), Error> {
        let stops = self.args.passes.when_not_converging == WhenNotConverging::Stop;
        match report.not_converging().filter(|_| stops) {
            Some(why) => Err(Error::NotConverging(why)),
            None => Ok(()),
        }
    }
}
