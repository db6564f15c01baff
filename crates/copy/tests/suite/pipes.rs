//! Tests of pipes, and of files that are read or written from their current position on.

use std::fs::{self, File, OpenOptions};
use std::future::poll_fn;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use crate::support::{Folder, Memory, pattern};
use iscsi_copy::{CopyError, CopyJob, CopyOptions, Destination, Device, FileDevice, Source};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

const LEN: usize = 1_234_567;

/// Returns data, then a long run of zeros, then data.
fn content() -> Vec<u8> {
    let mut bytes = pattern(LEN);
    bytes[300_000..900_000].fill(0);
    bytes
}

fn options() -> CopyOptions {
    CopyOptions::default().with_io_size(4096).with_zero_granularity(Some(512))
}

fn source(reader: PipeReader) -> Source {
    Source::pipe(File::from(OwnedFd::from(reader)))
}

fn destination(writer: PipeWriter) -> Destination {
    Destination::pipe(File::from(OwnedFd::from(writer)))
}

#[tokio::test]
async fn a_pipe_gives_all_bytes_in_order_and_gets_them() {
    let ((from, mut writer), (mut reader, to)) = (io::pipe().unwrap(), io::pipe().unwrap());
    let wanted = content();
    thread::spawn(move || writer.write_all(&wanted).unwrap());
    let found = thread::spawn(move || {
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        found
    });
    let (source, destination) = (source(from), destination(to));
    assert_eq!((source.length(), destination.capacity()), (None, None));
    // The option has no effect on a stream, whose old data is unknown.
    let zero = options().with_destination_is_zero(true);
    let copied = CopyJob::new(source, destination).with_options(zero).run().await.unwrap();
    let progress = copied.progress;
    assert_eq!((progress.done, progress.flushed), (LEN as u64, LEN as u64));
    assert_eq!(progress.written + progress.zeros_written, LEN as u64);
    assert!(found.join().unwrap() == content());
}

/// A reader that returns some bytes, waits, and ends.
struct Slow {
    bytes: &'static [u8],
    end: Pin<Box<Sleep>>,
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return self.end.as_mut().poll(cx).map(Ok);
        }
        let len = self.bytes.len().min(buf.remaining());
        buf.put_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        Poll::Ready(Ok(()))
    }
}

/// The copy must sleep: virtual time passes only while all tasks sleep, so a copy that polls would run
/// endlessly.
#[tokio::test(start_paused = true)]
async fn a_copy_to_a_stream_sleeps_while_the_source_has_nothing() {
    const WAIT: Duration = Duration::from_secs(10);
    static BYTES: [u8; LEN] = [1; LEN];
    let source = Slow { bytes: &BYTES, end: Box::pin(sleep(WAIT)) };
    let copy = CopyJob::new(Source::stream(source, None), Destination::stream(tokio::io::sink()));
    let (mut copy, mut polls) = (pin!(copy.run()), 0);
    let copied = poll_fn(|cx| {
        polls += 1;
        assert!(polls < 5_000, "it does not sleep");
        copy.as_mut().poll(cx)
    });
    assert_eq!(copied.await.unwrap().progress.flushed, LEN as u64);
}

#[tokio::test]
async fn a_pipe_that_is_lost_on_the_way_is_written_again_from_memory() {
    let (from, mut writer) = io::pipe().unwrap();
    let wanted = pattern(100_000);
    thread::spawn(move || writer.write_all(&wanted).unwrap());
    let to = Memory::blank(100_000);
    to.lock().losses = 2;
    let copy = CopyJob::new(source(from), Destination::device(to.clone())).with_options(options());
    let progress = copy.run().await.unwrap().progress;
    assert_eq!(to.lock().bytes, pattern(100_000));
    assert!(progress.lost > 0, "{progress:?}");
}

#[tokio::test]
async fn a_file_is_read_and_written_from_where_it_stands_on() {
    let folder = Folder::new();
    fs::write(folder.path("from"), content()).unwrap();
    fs::write(folder.path("to"), b"before").unwrap();
    let mut from = File::open(folder.path("from")).unwrap();
    from.seek(SeekFrom::Start(1000)).unwrap();
    let to = OpenOptions::new().append(true).open(folder.path("to")).unwrap();
    let (source, destination) = (Source::pipe(from), Destination::pipe(to));
    assert_eq!(source.length(), Some(LEN as u64 - 1000));
    let copied = CopyJob::new(source, destination).with_options(options()).run().await.unwrap();
    assert_eq!(copied.progress.total, Some(LEN as u64 - 1000));
    let found = fs::read(folder.path("to")).unwrap();
    assert!(found[..6] == *b"before" && found[6..] == content()[1000..]);
}

#[tokio::test]
async fn a_reader_that_goes_away_is_told() {
    let (reader, to) = io::pipe().unwrap();
    drop(reader);
    let from = Source::device(Memory::new(pattern(100_000)));
    let failure = CopyJob::new(from, destination(to)).run().await.unwrap_err();
    let CopyError::Destination(cause) = failure.error else { panic!("{failure:?}") };
    assert_eq!(cause.io_kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_file_that_may_only_be_written_is_written() {
    let folder = Folder::new();
    let old = [vec![9; LEN], b"longer".to_vec()].concat();
    fs::write(folder.path("to"), old).unwrap();
    let to = OpenOptions::new().write(true).open(folder.path("to")).unwrap();
    let to = FileDevice::from_file(to).unwrap();
    assert!(!to.limits().is_read_only && to.read_at(0, 1).await.is_err());
    let from = Source::device(Memory::new(content()));
    let copy = CopyJob::new(from, Destination::file(to)).with_options(options());
    copy.run().await.unwrap();
    assert!(fs::read(folder.path("to")).unwrap() == content());

    let file = FileDevice::from_file(File::open(folder.path("to")).unwrap()).unwrap();
    assert!(file.limits().is_read_only && file.read_at(0, 1).await.is_ok());
}
