//! Runs the copy, shows its progress and controls it.

use std::pin::pin;
use std::time::Duration;

use iscsi_copy::{Copied, CopyJob, Event, Events, Failure, Progress as CopyProgress};
use iscsi_tuner::Size;
use tokio::time::Instant;

use super::Job;
use super::resumption::Resumption;
use super::transferred::{Transferred, Unverified};
use crate::args::{ContentArgs, OnReadError, QueueDepth, VerifyMode};
use crate::control::handle::{Handle, Phase};
use crate::error::Error;
use crate::progress::meter::Meter;
use crate::progress::{Pass, Progress};
use crate::side::Side;
use crate::stop::Stop;

/// Least memory for the reads in flight, in bytes. There is as much for the writes: `options` doubles the
/// number.
const MIN_QUEUE: u64 = 64 << 20;

impl Job<'_> {
    /// Copies and flushes.
    pub(super) async fn copy(&self, stop: &Stop) -> (Transferred, Result<Unverified, Error>) {
        let (source, destination) = (self.ends.to_source(), self.ends.to_destination());
        let earlier = self.resumption.as_ref().map(|earlier| earlier.done.clone());
        let total = source.length();
        let copy = CopyJob::new(source, destination).with_options(self.options());
        let start = Instant::now();
        let (copied, samples) = self.transfer(copy, total, stop).await;
        let (time, before) = (start.elapsed(), self.before.clone());
        let passes = None;
        match copied {
            Ok(Copied { progress, unreadable, checksums, .. }) => {
                let earlier = earlier.unwrap_or_default();
                // The length of a stream is known only at its end.
                let len = total.filter(|_| !self.ends.source.is_stream());
                let all = (0..len.unwrap_or(progress.done)).into();
                let mut covered = self.ranges.clone().unwrap_or(all);
                unreadable.iter().for_each(|range| covered.remove(&range));
                let unverified = Unverified { covered, checksums, earlier };
                (
                    Transferred { progress, unreadable, time, samples, passes, before },
                    Ok(unverified),
                )
            }
            Err(Failure { error, progress, unreadable, is_written, has_full_length }) => {
                let error = self.ends.explained(self.failed(error), stop).await;
                let error = self.ended(error, &progress, is_written, has_full_length);
                let progress = *progress;
                (Transferred { progress, unreadable, time, samples, passes, before }, Err(error))
            }
        }
    }

    /// Runs a copy of `total` bytes, if their number is known. Returns its result, and the rate of each second
    /// in Mbit/s.
    pub(super) async fn transfer(
        &self,
        copy: CopyJob,
        total: Option<u64>,
        stop: &Stop,
    ) -> (Result<Copied, Failure>, Vec<f64>) {
        let output = &self.args.output;
        let progress = Progress::new(output.mode(), output.stats, Pass::Copy, total);
        self.handle.follow(Phase::Copying, copy.control());
        let meter = Meter::new(copy.control(), &self.ends, self.lines.clone());
        let remarks = remark(copy.events(), &progress);
        let grace = self.args.controller.grace;
        let work = async { tokio::join!(obey(copy, self.handle, grace, stop), remarks).0 };
        meter.follow(&progress, Box::pin(work)).await
    }

    /// Adds the progress of a copy to its error, and how to resume the copy.
    pub(super) fn ended(
        &self,
        error: Error,
        progress: &CopyProgress,
        is_written: bool,
        has_full_length: bool,
    ) -> Error {
        let error = error.after(progress, is_written, has_full_length);
        if self.resumption.is_some() { error.resumable() } else { error }
    }

    pub(super) fn options(&self) -> iscsi_copy::CopyOptions {
        let ContentArgs { verify, zero_granularity, read_holes, destination_is_zero, .. } =
            self.args.content;
        // `--destination-is-zero` does not hold for a destination to which an earlier run has written: the
        // source may have had other data then, and the checkpoint may have been cleared because the destination
        // was found to differ.
        let is_stale = self.resumption.as_ref().is_some_and(Resumption::is_continued);
        let memory = self.args.link.queue_bytes().max(MIN_QUEUE).saturating_mul(2);
        let options = iscsi_copy::CopyOptions::default()
            .with_io_size(self.plan.io_size.value)
            .with_max_memory(usize::try_from(memory).unwrap_or(usize::MAX))
            .with_zero_granularity(zero_granularity.bytes())
            .with_holes_read(read_holes)
            .with_destination_is_zero(destination_is_zero && !is_stale)
            .with_skipped_unreadable(self.args.resumption.on_read_error == OnReadError::Skip)
            .with_flush_bytes(self.args.resumption.flush_bytes.0.0)
            .with_checksums(verify == VerifyMode::Read);
        let options = match &self.resumption {
            Some(Resumption { file, done, .. }) => {
                options.with_checkpoint(file.clone()).with_done(done.clone())
            }
            None => options,
        };
        let options = match &self.ranges {
            Some(ranges) => options.with_ranges(ranges.clone()),
            None => options,
        };
        let options = match &self.digests {
            Some(file) => options.with_digests(file.clone()),
            None => options,
        };
        match self.args.link.queue_depth {
            QueueDepth::Fixed(depth) => options.with_queue_depth(depth.get()),
            QueueDepth::Auto => options,
        }
    }
}

/// Runs a copy. After a request to stop, requests that wait for their rate are refused, and those in flight are
/// completed and flushed, as long as [`Stop::finish`] allows. Requests are not aborted: the flush would have to
/// count an aborted write as lost.
async fn obey(
    copy: CopyJob,
    handle: &Handle,
    grace: Duration,
    stop: &Stop,
) -> Result<Copied, Failure> {
    let control = copy.control();
    let mut running = pin!(copy.run());
    if let Some(ended) = stop.unless(&mut running).await {
        return ended;
    }
    control.cancel();
    handle.close();
    if let Some(ended) = stop.finish(grace, &mut running).await {
        return ended;
    }
    control.abandon();
    running.await
}

/// Reports lost writes that are sent again, and unreadable parts that are omitted.
async fn remark(mut events: Events, progress: &Progress) {
    while let Some(event) = events.next().await {
        if let Event::Lost { bytes } = event {
            let (side, bytes) = (Side::Destination, Size(bytes));
            progress.remark(&format!(
                "{side}: writes that were not flushed may be lost, for it was reset, could not keep them, or was away; {bytes} are written again"
            ));
        } else if let Event::Unreadable { offset, len } = event {
            let side = Side::Source;
            progress.remark(&format!("{side}: {len} bytes at byte {offset} cannot be read"));
        } else if let Event::NotEnded(why) = event {
            progress.remark(&format!(
                "what an earlier run was writing when it was killed may still arrive: {why}; copy once more when the target \
                 has ended its sessions"
            ));
        } else if let Event::NotSaved(why) = event {
            progress.remark(&format!(
                "what is flushed cannot be kept: {why}; unless the next flush keeps it, another run does it again"
            ));
        }
    }
}
