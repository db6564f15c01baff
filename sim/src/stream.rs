//! A worker that uses a disk as a stream.

use std::io::{self, SeekFrom};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_initiator::{Disk, DiskStream, Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::oracle::{GRAIN, Moment, Write};
use crate::workload::Worker;

/// The highest handle of a disk that a stream may use. The oracle knows 64 handles.
const MAX_HANDLE: u32 = 60;

/// A stream in use.
struct Streaming {
    stream: DiskStream,
    handle: u32,
    /// Writes whose completion the worker has not waited for.
    pending: Vec<Write>,
    /// When the first of the `pending` writes began.
    begun: Moment,
    /// When the stream last dropped its read-ahead.
    cleared: Moment,
}

impl Worker {
    /// Opens a stream, uses it for a while, and shuts it down or drops it.
    pub(crate) async fn stream(&mut self, disk: Disk) -> Option<Result<(), Error>> {
        let handle = self.work.handles.fetch_add(1, Ordering::Relaxed);
        if handle >= MAX_HANDLE {
            return None;
        }
        let start = self.work.part.start;
        let cleared = {
            let mut world = self.work.shared.lock();
            world.trace.record("stream", &[u64::from(self.handle), u64::from(handle)]);
            world.oracle.made_handle(self.work.opened, handle);
            world.oracle.now()
        };
        let stream = disk.stream((start * GRAIN) as u64);
        let mut streaming =
            Streaming { stream, handle, pending: Vec::new(), begun: cleared, cleared };
        let patience = self.work.drops && self.rng.percent(20);
        let patience = if patience { self.rng.any_scale(20_000) } else { Duration::MAX };
        let result = timeout(patience, Box::pin(self.use_stream(&mut streaming))).await;
        // Data that was not sent is dropped with the stream. Data that was sent may still be executed.
        drop(streaming.stream);
        let mut world = self.work.shared.lock();
        for write in streaming.pending {
            world.oracle.end_write(write, false);
        }
        drop(world);
        match result {
            Ok(Ok(())) => Some(Ok(())),
            Err(_) => None,
            Ok(Err(error)) => match cause_of(&error) {
                Some(cause) if cause.kind() == ErrorKind::UnflushedWritesLost => None,
                Some(cause) => Some(Err(cause.clone())),
                None => {
                    self.work.shared.lock().accuse(format!("a stream fails by itself: {error}"));
                    None
                }
            },
        }
    }

    async fn use_stream(&mut self, streaming: &mut Streaming) -> io::Result<()> {
        for _ in 0..self.rng.index(1..16) {
            if !self.takes_one() {
                break;
            }
            if self.rng.percent(30) {
                sleep(self.rng.any_scale(self.work.max_pause)).await;
            }
            match self.rng.within(0..10) {
                0..3 => self.stream_seeks(streaming).await?,
                3..6 => self.stream_reads(streaming).await?,
                6..9 => self.stream_writes(streaming).await?,
                _ => self.stream_flushes(streaming, false).await?,
            }
        }
        if self.rng.percent(50) {
            self.stream_flushes(streaming, true).await?;
        }
        Ok(())
    }

    /// Seeks to another offset, or by zero bytes. Unless the offset is invalid, this waits for the writes.
    async fn stream_seeks(&mut self, streaming: &mut Streaming) -> io::Result<()> {
        let part = self.work.part.clone();
        let place = (self.grains(&part).start * GRAIN) as u64;
        let stream = &mut streaming.stream;
        let seek = match self.rng.within(0..4) {
            0 => SeekFrom::Current(0),
            1 => SeekFrom::End(place.cast_signed() - stream.disk().capacity().cast_signed()),
            2 => SeekFrom::Current(place.cast_signed() - stream.position().cast_signed()),
            _ => SeekFrom::Start(place),
        };
        let result = stream.seek(seek).await;
        // The unit has shrunk since the distance to its end was calculated.
        if result.as_ref().is_err_and(is_no_place) {
            return Ok(());
        }
        self.has_written(streaming, result.is_ok()).await;
        streaming.cleared = self.work.shared.lock().oracle.now();
        result.map(drop)
    }

    async fn stream_reads(&mut self, streaming: &mut Streaming) -> io::Result<()> {
        let stream = &mut streaming.stream;
        let (first, end) = (grain(stream.position()), grain(stream.disk().capacity()));
        if first >= end {
            return Ok(());
        }
        let mut data = vec![0; self.rng.index(1..64).min(end - first) * GRAIN];
        let result = stream.read_exact(&mut data).await;
        let is_cut = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        let has_shrunk = grain(stream.disk().capacity()) < first + data.len() / GRAIN;
        if has_shrunk && result.as_ref().is_err_and(is_cut) {
            return Ok(());
        }
        result?;
        self.has_written(streaming, true).await;
        let mut world = self.work.shared.lock();
        self.trace_grains(
            &mut world.trace,
            "has read a stream",
            &(first..first + data.len() / GRAIN),
        );
        if let Err(why) = self.check(&mut world, streaming.cleared, first, &data) {
            world.accuse(format!("a stream of handle {} has read: {why}", self.handle));
        }
        Ok(())
    }

    async fn stream_writes(&mut self, streaming: &mut Streaming) -> io::Result<()> {
        let (first, end) = (grain(streaming.stream.position()), self.work.part.end);
        let is_inside = self.work.part.contains(&first);
        if !is_inside {
            return self.stream_writes_at_capacity(streaming, first).await;
        }
        let grains = first..first + self.rng.index(1..64).min(end - first);
        let data = {
            let mut world = self.work.shared.lock();
            self.trace_grains(&mut world.trace, "write a stream", &grains);
            if streaming.pending.is_empty() {
                streaming.begun = world.oracle.now();
            }
            let write = world.oracle.begin_write(self.work.opened, grains, false);
            let data = write.data();
            streaming.pending.push(write);
            streaming.cleared = world.oracle.now();
            data
        };
        let result = streaming.stream.write_all(&data).await;
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            // The unit has shrunk. The part before its end is written, and the stream goes on.
            if let Some(write) = streaming.pending.pop() {
                self.work.shared.lock().oracle.end_write(write, false);
            }
            return Ok(());
        }
        if result.is_err() {
            self.has_written(streaming, false).await;
        }
        result
    }

    /// Checks that a write at the capacity fails with `StorageFull`, after which the stream goes on.
    async fn stream_writes_at_capacity(
        &mut self,
        streaming: &mut Streaming,
        first: usize,
    ) -> io::Result<()> {
        if first < grain(streaming.stream.disk().capacity()) {
            return Ok(());
        }
        streaming.cleared = self.work.shared.lock().oracle.now();
        match streaming.stream.write(&[0]).await {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            Ok(_) => {
                self.work.shared.lock().accuse("a stream writes behind the end".to_owned());
                Ok(())
            }
            Err(error) => {
                self.has_written(streaming, false).await;
                Err(error)
            }
        }
    }

    async fn stream_flushes(&mut self, streaming: &mut Streaming, is_last: bool) -> io::Result<()> {
        let begun = self.work.shared.lock().oracle.now();
        let stream = &mut streaming.stream;
        let result = if is_last { stream.shutdown().await } else { stream.flush().await };
        let mut world = self.work.shared.lock();
        let (opened, handle) = (self.work.opened, streaming.handle);
        match &result {
            Ok(()) => {
                world.trace.record("stream flushed", &[u64::from(self.handle)]);
                world.oracle.flushed(opened, handle, begun);
                let counts = !self.may_be_of_another(&world, streaming.begun);
                for write in streaming.pending.drain(..) {
                    if counts {
                        world.oracle.end_flushed_write(write, handle);
                    } else {
                        world.oracle.end_write(write, false);
                    }
                }
            }
            Err(error) if is_loss(error) => {
                world.trace.record("stream told of lost writes", &[u64::from(self.handle)]);
                let counts = !self.may_be_of_another(&world, streaming.begun);
                for write in streaming.pending.drain(..) {
                    world.oracle.end_write(write, counts);
                }
                self.on_reported_loss(&mut world, handle);
            }
            Err(_) => {}
        }
        result
    }

    /// Notes that all writes of the stream have ended. If one has failed, a flush must fail too.
    async fn has_written(&mut self, streaming: &mut Streaming, is_well: bool) {
        if streaming.pending.is_empty() {
            return;
        }
        if !is_well && streaming.stream.flush().await.is_ok() {
            let why = "a stream flushes, although a write of it has failed";
            self.work.shared.lock().accuse(why.to_owned());
        }
        let mut world = self.work.shared.lock();
        let grains = |streaming: &Streaming| -> Range<usize> { 0..streaming.pending.len() };
        self.trace_grains(&mut world.trace, "stream has written", &grains(streaming));
        let counts = is_well && !self.may_be_of_another(&world, streaming.begun);
        for write in streaming.pending.drain(..) {
            world.oracle.end_write(write, counts);
        }
    }
}

fn grain(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(0) / GRAIN
}

fn is_loss(error: &io::Error) -> bool {
    cause_of(error).is_some_and(|cause| cause.kind() == ErrorKind::UnflushedWritesLost)
}

/// Returns whether the seek led to an offset before byte 0. A write that the unit has refused may have the
/// same error kind, so the cause is checked too: the stream's own error has none.
fn is_no_place(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput && cause_of(error).is_none()
}

fn cause_of(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}
