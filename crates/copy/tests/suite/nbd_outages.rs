//! Tests of exports whose server is killed, comes back, or sends nothing. Time is virtual.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use iscsi_copy::device::{DeviceError, DeviceFuture, DeviceResult};
use iscsi_copy::{
    CopyJob, CopyOptions, Destination, Device, NbdAdvice, NbdDevice, NbdError, Source,
};
use iscsi_nbd::{Command, TransmissionFlags};
use tokio::time::{Instant, sleep, timeout};

use crate::support::nbd::NbdServer;
use crate::support::{Folder, Memory, pattern};

const LEN: usize = 64 << 10;
const SECOND: Duration = Duration::from_secs(1);
const READ: Command = Command::Read { dont_fragment: false };
const WRITE: Command = Command::Write { fua: false };

/// Starts a server in a folder of its own.
fn serve(takes_several: bool) -> (NbdServer, Folder) {
    let folder = Folder::new();
    (NbdServer::start(&folder.path("socket"), pattern(LEN), takes_several), folder)
}

async fn read(device: &NbdDevice) -> DeviceResult<BytesMut> {
    device.read_into(512, BytesMut::zeroed(512)).await
}

async fn write(device: &NbdDevice, at: u64, byte: u8) -> DeviceResult<()> {
    device.write_at(at, vec![Bytes::from(vec![byte; 512])]).await
}

fn nbd_error(error: &DeviceError) -> &NbdError {
    error.source_as().unwrap_or_else(|| panic!("{error}"))
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
    panic!("what was waited for does not come about");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_server_that_is_killed_and_comes_back() {
    let (mut server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("")).await.unwrap();
    server.kill();
    let requests = tokio::spawn({
        let device = device.clone();
        async move {
            let found = read(&device).await.unwrap();
            write(&device, 1024, 7).await.unwrap();
            (found, device.extents(0, LEN as u64).await.unwrap().len())
        }
    });
    sleep(200 * SECOND).await;
    assert!(!requests.is_finished() && device.is_away());
    server.listen();
    let (found, extents) = requests.await.unwrap();
    assert_eq!((&found[..], extents), (&pattern(LEN)[512..1024], 1));
    assert_eq!(server.lock().bytes[1024..1536], [7; 512]);
    device.flush().await.unwrap();
    assert!(!device.is_away());
}

/// The copy begins before its server listens, and waits for it.
#[tokio::test(start_paused = true)]
async fn a_server_that_listens_later_is_waited_for() {
    let (mut server, _folder) = serve(false);
    server.kill();
    let uri = server.uri("&open_patience=100");
    let open = |uri| tokio::spawn(async move { NbdDevice::open(&uri).await });
    let error = NbdDevice::open(&server.uri("")).await.unwrap_err();
    assert!(matches!(error, NbdError::Connect { .. }), "{error}");
    let begun = Instant::now();
    let error = open(uri.clone()).await.unwrap().unwrap_err();
    assert!(matches!(error, NbdError::Connect { .. }), "{error}");
    assert_eq!(begun.elapsed(), 100 * SECOND, "the last try is made when the patience is over");
    let opening = open(uri);
    sleep(90 * SECOND).await;
    assert!(!opening.is_finished());
    server.listen();
    read(&opening.await.unwrap().unwrap()).await.unwrap();
}

/// qemu-nbd accepts further clients, but replies to them only after another client leaves. Opening must not
/// wait for that.
#[tokio::test(start_paused = true)]
async fn a_server_that_has_room_for_few_clients_is_not_waited_for() {
    for room in [1, 2, 3, 4, 8] {
        let (server, _folder) = serve(true);
        server.lock().room = room;
        let begun = Instant::now();
        let device = NbdDevice::open(&server.uri("")).await.unwrap();
        assert!(begun.elapsed() <= SECOND, "{room}: {:?}", begun.elapsed());
        let served = room.min(4);
        assert_eq!(device.queue_depth(16 << 20), 4 * served, "4 for each connection");
        read(&device).await.unwrap();
        device.flush().await.unwrap();
    }
}

/// Requests in flight when the server was killed are sent again, whether they were executed or not.
#[tokio::test(start_paused = true)]
async fn what_was_not_answered_is_asked_for_again() {
    for lives in [0, 1] {
        let (server, _folder) = serve(false);
        let device = NbdDevice::open(&server.uri("")).await.unwrap();
        server.lock().lives = Some(lives);
        assert_eq!(read(&device).await.unwrap(), pattern(LEN)[512..1024]);
        server.lock().lives = Some(lives);
        write(&device, 0, 9).await.unwrap();
        assert_eq!((server.count(READ), server.count(WRITE)), (2, 2));
        server.lock().lives = Some(lives);
        // The write was lost with the server, so the next flush must report the loss.
        let error = device.flush().await.unwrap_err();
        assert!(matches!(nbd_error(&error), NbdError::UnflushedWritesLost), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_tells_of_what_may_be_lost_once_for_each_handle() {
    let (mut server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("")).await.unwrap();
    let other = device.clone();
    write(&device, 0, 1).await.unwrap();
    device.flush().await.unwrap();
    // Flushed data is not lost.
    server.kill();
    server.listen();
    read(&device).await.unwrap();
    device.flush().await.unwrap();
    write(&device, 512, 2).await.unwrap();
    server.kill();
    server.listen();
    // A later write to another range does not replace the lost one, so the flush still reports it.
    write(&device, 1024, 3).await.unwrap();
    for handle in [&device, &other] {
        let error = handle.flush().await.unwrap_err();
        assert!(matches!(nbd_error(&error), NbdError::UnflushedWritesLost), "{error}");
        handle.flush().await.unwrap();
    }
    device.clone().flush().await.unwrap();
    let state = server.lock();
    assert_eq!((state.medium[0], state.medium[1024]), (1, 3));
    assert_eq!(state.medium[512..1024], pattern(LEN)[512..1024], "this one was lost indeed");
}

/// The server is killed after it has executed a change and replied. The caller receives the reply only after
/// a flush has reported the loss. The next flush must report the loss again, because it may include that
/// change.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_again_of_a_change_that_was_in_flight_when_it_was_told() {
    let kinds: [fn(&NbdDevice) -> DeviceFuture<'_, ()>; 3] = [
        |device| device.write_at(0, vec![Bytes::from(vec![0; 512])]),
        |device| device.write_zeroes(0, 512),
        |device| device.write_allocated_zeroes(0, 512),
    ];
    for change in kinds {
        let (mut server, _folder) = serve(false);
        let device = NbdDevice::open(&server.uri("")).await.unwrap();
        let mut change = change(&device);
        _ = timeout(Duration::ZERO, &mut change).await.unwrap_err();
        until(|| server.lock().bytes[..512] == [0; 512]).await;
        for _ in 0..100 {
            sleep(Duration::from_millis(1)).await;
        }
        server.kill();
        server.listen();
        let told = async || {
            let error = device.flush().await.unwrap_err();
            assert!(matches!(nbd_error(&error), NbdError::UnflushedWritesLost), "{error}");
        };
        told().await;
        change.await.unwrap();
        told().await;
        device.flush().await.unwrap();
    }
}

/// Each connection is flushed, because only over the connection with the reply to a write is it certain that
/// the same server flushes it. A server may also report a failure once per connection.
#[tokio::test(start_paused = true)]
async fn each_connection_is_flushed() {
    let (server, _folder) = serve(true);
    let device = NbdDevice::open(&server.uri("")).await.unwrap();
    assert_eq!(server.lock().clients, 4);
    write(&device, 0, 7).await.unwrap();
    device.flush().await.unwrap();
    let mut over: Vec<_> = {
        let state = server.lock();
        let flushes =
            state.requests.iter().filter(|(_, request)| request.command == Command::Flush);
        flushes.map(|(client, _)| *client).collect()
    };
    over.sort_unstable();
    assert_eq!(over, [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn of_several_connections_each_comes_back() {
    let (server, _folder) = serve(true);
    let device = NbdDevice::open(&server.uri("")).await.unwrap();
    write(&device, 0, 7).await.unwrap();
    // All four connections are lost with the server, which accepts connections again immediately.
    server.lock().lives = Some(0);
    assert_eq!(read(&device).await.unwrap(), pattern(LEN)[512..1024]);
    until(|| server.lock().clients >= 5).await;
    sleep(60 * SECOND).await;
    assert_eq!(server.lock().clients, 8);
    let error = device.flush().await.unwrap_err();
    assert!(matches!(nbd_error(&error), NbdError::UnflushedWritesLost), "{error}");
    device.flush().await.unwrap();
}

/// A server that hangs keeps its connections and sends no replies. The device must connect again.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_is_connected_to_again() {
    for (query, limit) in [("", 60), ("&command_timeout=5", 5)] {
        let (server, _folder) = serve(false);
        let device = NbdDevice::open(&server.uri(query)).await.unwrap();
        // The time limit for replies does not run while no request is in flight.
        sleep(3600 * SECOND).await;
        assert_eq!(server.lock().clients, 1);
        server.lock().is_silent = true;
        let begun = Instant::now();
        let reading = tokio::spawn({
            let device = device.clone();
            async move { read(&device).await }
        });
        sleep((limit - 1) * SECOND).await;
        assert_eq!(server.lock().clients, 1, "{limit}");
        server.lock().is_silent = false;
        assert_eq!(reading.await.unwrap().unwrap(), pattern(LEN)[512..1024]);
        assert_eq!((server.lock().clients, begun.elapsed().as_secs()), (2, limit.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_time_limit_a_silent_server_is_waited_for() {
    let (server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("&command_timeout=0")).await.unwrap();
    server.lock().is_silent = true;
    let read = timeout(100_000 * SECOND, read(&device)).await;
    assert!(read.is_err());
    assert_eq!(server.lock().clients, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_come_back_is_waited_for_as_long_as_was_asked() {
    for (query, patience) in [("", 300), ("&patience=20", 20)] {
        let (mut server, _folder) = serve(false);
        let device = NbdDevice::open(&server.uri(query)).await.unwrap();
        server.kill();
        let begun = Instant::now();
        let error = read(&device).await.unwrap_err();
        let waited = begun.elapsed();
        assert!(waited >= patience * SECOND && waited < (patience + 5) * SECOND, "{waited:?}");
        assert!(matches!(nbd_error(&error), NbdError::Away { .. }), "{error}");
        for word in ["within", "there is no such socket"] {
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(nbd_error(&error).advice(), Some(NbdAdvice::LongerRetryTimeout));
        // The device stays unusable even if the server comes back later, and requests do not wait.
        server.listen();
        let begun = Instant::now();
        read(&device).await.unwrap_err();
        write(&device, 0, 1).await.unwrap_err();
        device.flush().await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn without_patience_nothing_is_asked_for_again() {
    let (server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("&patience=0")).await.unwrap();
    server.lock().lives = Some(0);
    let error = read(&device).await.unwrap_err();
    assert!(matches!(nbd_error(&error), NbdError::Lost), "{error}");
    assert_eq!((server.count(READ), server.lock().clients), (1, 1));
}

/// A server that accepts all connections and sends no replies counts as unreachable.
#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_each_connection_is_not_waited_for_for_ever() {
    let (server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("&patience=30")).await.unwrap();
    server.lock().is_broken = true;
    let error = read(&device).await.unwrap_err();
    assert!(matches!(nbd_error(&error), NbdError::Away { .. }), "{error}");
    assert!(server.lock().clients < 100, "{}", server.lock().clients);
}

/// After a server announces its shutdown, requests wait for the next server instead of failing.
#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_is_waited_for() {
    let (mut server, _folder) = serve(false);
    let device = NbdDevice::open(&server.uri("")).await.unwrap();
    server.lock().is_shutting_down = true;
    let reading = tokio::spawn(async move { read(&device).await });
    sleep(SECOND).await;
    server.kill();
    sleep(20 * SECOND).await;
    server.lock().is_shutting_down = false;
    server.listen();
    assert_eq!(reading.await.unwrap().unwrap(), pattern(LEN)[512..1024]);
}

#[tokio::test(start_paused = true)]
async fn another_export_is_refused() {
    for (several, change) in [
        (false, "1024 bytes, and had 65536"),
        (true, "1024 bytes, and had 65536"),
        (false, "read-only"),
    ] {
        let (mut server, _folder) = serve(several);
        let device = NbdDevice::open(&server.uri("")).await.unwrap();
        write(&device, 0, 7).await.unwrap();
        server.kill();
        if change == "read-only" {
            server.lock().export.flags |= TransmissionFlags::READ_ONLY;
        } else {
            server.lock().export.size = 1024;
        }
        server.listen();
        let error = read(&device).await.unwrap_err();
        assert!(matches!(nbd_error(&error), NbdError::Changed(_)), "{error}");
        assert!(error.to_string().contains(change), "{error}");
        device.flush().await.unwrap_err();
        write(&device, 0, 7).await.unwrap_err();
        assert_eq!(server.count(WRITE), 1, "nothing is written to another export");
    }
}

#[tokio::test(start_paused = true)]
async fn an_export_that_is_too_long_to_be_one_is_refused() {
    for (size, is_refused) in [(1 << 63, true), (u64::MAX, true), (i64::MAX as u64, false)] {
        let (server, _folder) = serve(false);
        server.lock().export.size = size;
        let opened = NbdDevice::open(&server.uri("")).await;
        let refused =
            matches!(&opened, Err(NbdError::TooLarge { size: told, .. }) if *told == size);
        assert_eq!(refused, is_refused, "{opened:?}");
    }
}

/// A copy succeeds although its server is killed at any time, and loses unflushed writes.
#[tokio::test(start_paused = true)]
async fn a_copy_to_a_server_that_is_killed_writes_what_was_lost_again() {
    let mut losses = 0;
    for (lives, several) in (0..150).flat_map(|lives| [(lives, false), (lives, true)]) {
        let (server, _folder) = serve(several);
        let wanted: Vec<u8> = pattern(LEN).iter().rev().copied().collect();
        let uri = server.uri("");
        let destination = Destination::device(NbdDevice::open(&uri).await.unwrap());
        server.lock().lives = Some(lives);
        let options = CopyOptions::default().with_io_size(4096).with_flush_bytes(16 << 10);
        let copy = CopyJob::new(Source::device(Memory::new(wanted.clone())), destination);
        let copied = copy.with_options(options).run().await.unwrap();
        assert_eq!(copied.progress.flushed, LEN as u64);
        assert!(server.lock().medium == wanted, "{lives} {several}");
        losses += u32::from(copied.progress.lost > 0);
    }
    assert!(losses > 20, "{losses}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_from_a_server_that_is_killed_reads_on() {
    for (lives, several) in (0..40).flat_map(|lives| [(lives, false), (lives, true)]) {
        let (mut server, _folder) = serve(several);
        let source = Source::device(NbdDevice::open(&server.uri("")).await.unwrap());
        server.lock().lives = Some(lives);
        let to = Memory::blank(LEN);
        let options = CopyOptions::default().with_io_size(4096);
        let copy = CopyJob::new(source, Destination::device(to.clone())).with_options(options);
        let copying = tokio::spawn(copy.run());
        until(|| server.lock().lives.is_none() || copying.is_finished()).await;
        if !copying.is_finished() {
            server.kill();
            sleep(100 * SECOND).await;
            server.listen();
        }
        copying.await.unwrap().unwrap();
        assert!(to.durable() == pattern(LEN), "{lives} {several}");
    }
}
