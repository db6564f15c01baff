//! Tests of refusals and failures of a server, checked as the bytes that clients receive.

use std::time::Duration;

use crate::support::{CLIENTS, FUA, HELD, LEN, MEMORY, Raw, Rig, WINDOW, bytes, errno, kind, soon};
use iscsi_copy::NbdDevice;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Access, Sense};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{pause, resume, sleep, timeout};

/// SPACE ALLOCATION FAILED WRITE PROTECT (SBC-3 §4.7.3.6): a thin unit has no room for the written data.
const FULL: Sense = Sense::new(7, 0x27, 7);

async fn raw(rig: &Rig) -> Raw {
    soon(Raw::shake_hands(rig.raw().await)).await
}

fn fail_writes(rig: &Rig, sense: Sense) {
    let fault = Fault::sense(.., sense).on_access(Access::Write).times(1);
    rig.target.with(|target| target.config_mut().faults.push(fault));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_beyond_the_end_is_refused_and_the_connection_goes_on() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let mut client = raw(&rig).await;
    let end = LEN as u64;
    for (offset, length) in [(end - 512, 1024), (end, 512), (end * 9, 512), (u64::MAX - 511, 512)] {
        assert_eq!(client.read(offset, length).await, Err(errno::INVAL), "{offset}");
        assert_eq!(client.ask(0, kind::TRIM, offset, length).await, errno::INVAL, "{offset}");
        assert_eq!(client.ask(0, kind::WRITE_ZEROES, offset, length).await, errno::NOSPC);
        assert_eq!(client.write(0, offset, &bytes(1, length as usize)).await, errno::NOSPC);
    }
    assert_eq!(client.read(0, 0).await, Err(errno::INVAL));
    assert_eq!(client.ask(0, 99, 0, 512).await, errno::INVAL, "an unknown request");
    assert_eq!(client.read(end - 512, 512).await, Ok(vec![0; 512]));
    assert_eq!(client.flush().await, 0);
    assert_eq!(rig.disk.mapped_blocks(), 0, "nothing was written");
}

/// A request with data of more than 32 MiB is refused. A request without data may be longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_longer_than_announced_is_refused() {
    let rig = Rig::with_unit(1 << 30, WINDOW, MEMORY, false).await;
    let mut client = raw(&rig).await;
    let long = (32 << 20) + 512;
    assert_eq!(client.read(0, long).await, Err(errno::INVAL));
    assert_eq!(client.read(0, u32::MAX).await, Err(errno::INVAL));
    assert_eq!(client.write(0, 0, &vec![1; long as usize]).await, errno::INVAL);
    assert_eq!(client.ask(0, kind::WRITE_ZEROES, 0, 512 << 20).await, 0);
    assert_eq!(client.read(0, 512).await, Ok(vec![0; 512]), "the connection goes on");
    // The server does not skip 200 MiB of data, which would take too long, but closes the connection.
    client.send(0, kind::WRITE, 0, 200 << 20).await;
    let mut rest = Vec::new();
    drop(soon(client.stream.read_to_end(&mut rest)).await);
    assert!(rest.is_empty());
    assert_eq!(raw(&rig).await.read(0, 512).await, Ok(vec![0; 512]), "others are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_only_is_not_permitted_to_be_written() {
    let rig = Rig::start(WINDOW, MEMORY, true).await;
    let mut client = raw(&rig).await;
    assert_eq!(client.write(0, 0, &bytes(1, 512)).await, errno::PERM);
    assert_eq!(client.ask(0, kind::WRITE_ZEROES, 0, 512).await, errno::PERM);
    assert_eq!(client.ask(0, kind::TRIM, 0, 512).await, errno::PERM);
    assert_eq!(client.read(0, 512).await, Ok(vec![0; 512]));
    assert_eq!(client.flush().await, 0);

    // The unit becomes write-protected while it is served.
    for window in [0, WINDOW] {
        let rig = Rig::start(window, MEMORY, false).await;
        let mut client = raw(&rig).await;
        rig.disk.set_read_only(true);
        assert_eq!(client.write(FUA, 0, &bytes(1, 512)).await, errno::PERM, "{window}");
        rig.disk.set_read_only(false);
        assert_eq!(client.write(FUA, 0, &bytes(1, 512)).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_full_is_told_as_such() {
    let rig = Rig::start(0, MEMORY, false).await;
    let mut client = raw(&rig).await;
    for flags in [0, FUA] {
        fail_writes(&rig, FULL);
        assert_eq!(client.write(flags, 0, &bytes(1, 512)).await, errno::NOSPC);
        assert_eq!(client.write(flags, 0, &bytes(2, 512)).await, 0);
    }
    assert_eq!(client.flush().await, 0);
    assert_eq!(client.read(0, 512).await, Ok(bytes(2, 512).to_vec()));
}

/// A write that fails after it was answered fails the next flush of each connection, once, with an I/O error.
/// The error must not be NOSPC: QEMU would wait for space and flush again, and that flush would succeed.
#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_full_fails_a_flush_of_what_was_answered() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let (mut client, mut other) = (raw(&rig).await, raw(&rig).await);
    fail_writes(&rig, FULL);
    assert_eq!(client.write(0, 0, &bytes(1, 512)).await, 0);
    assert_eq!(client.flush().await, errno::IO);
    assert_eq!(client.flush().await, 0, "it was told");
    assert_eq!(other.write(FUA, 4096, &bytes(2, 512)).await, errno::IO, "this one was not");
    assert_eq!(other.write(FUA, 4096, &bytes(3, 512)).await, 0);
    assert_eq!(other.flush().await, errno::IO, "a write says nothing of others");
    assert_eq!(other.flush().await, 0);
    assert_eq!(client.write(FUA, 0, &bytes(4, 512)).await, 0);
    assert!(rig.disk.holds(0, &bytes(4, 512)) && rig.disk.holds(4096, &bytes(3, 512)));
}

/// The reply to a flush may be lost with its connection. The client reconnects and sends the flush again, so
/// one more flush must report the loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_is_told_of_a_loss_once_more_unless_it_had_said_goodbye() {
    let rig = Rig::start(WINDOW, 0, false).await;
    let mut lost = raw(&rig).await;
    fail_writes(&rig, FULL);
    assert_eq!(lost.write(0, 0, &bytes(1, 512)).await, 0);
    assert_eq!(lost.flush().await, errno::IO);
    drop(lost);
    let mut again = raw(&rig).await;
    assert_eq!(again.flush().await, errno::IO);
    assert_eq!(again.flush().await, 0);
    soon(async {
        loop {
            again.send(0, kind::DISCONNECT, 0, 0).await;
            // The server may not have received the disconnect request yet, so connect again.
            again = raw(&rig).await;
            if again.flush().await == 0 {
                return;
            }
        }
    })
    .await;
    rig.server.flush().await.unwrap();
}

/// Replies that clients do not read wait in limited memory. When it is full, the server reads no more data of
/// the unit for these clients.
#[tokio::test]
async fn clients_that_take_no_replies_hold_no_more_than_they_may() {
    const GREEDY: usize = 8;
    const REQUEST: u32 = 4 << 20;
    /// Bytes of memory that all clients share. The rest is 32 MiB for one long request at a time, and a quarter
    /// of the memory for short requests.
    const SHARED: u64 = HELD as u64 / 2;
    /// Bytes of replies that may be in the buffers of a connection and its socket.
    const SENT: u64 = 1 << 20;
    let rig = Rig::start(0, 0, false).await;
    let mut greedy = Vec::new();
    for _ in 0..GREEDY {
        let mut client = raw(&rig).await;
        // Requests 128 MiB per client, 1 GiB in total. The socket has room for the requests, whether or not the
        // server reads them.
        for _ in 0..32 {
            client.send(0, kind::READ, 0, REQUEST).await;
        }
        greedy.push(client);
    }
    let read = || rig.server.stats().bytes_read;
    soon(async {
        while read() < SHARED {
            yield_now().await;
        }
    })
    .await;
    // A paused clock advances only when no task can run. So after the sleep, the server has read all that it
    // will read.
    pause();
    sleep(Duration::from_millis(500)).await;
    resume();
    assert!(read() <= u64::from(HELD) + GREEDY as u64 * SENT, "{} bytes", read());
    drop(greedy);
    assert_eq!(raw(&rig).await.read(0, 512).await, Ok(vec![0; 512]), "it was given back");
}

/// Memory for announced data that do not arrive is taken only from the share of their client. When the client
/// disconnects, the memory is released.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_go_in_the_middle_of_a_write_leave_the_memory_to_others() {
    let rig = Rig::start(WINDOW, 0, false).await;
    for _ in 0..16 {
        let mut client = raw(&rig).await;
        client.send(0, kind::WRITE, 0, LEN as u32).await;
        soon(client.stream.write_all(&[1; 4096])).await.unwrap();
    }
    let mut client = raw(&rig).await;
    assert_eq!(client.write(FUA, 0, &bytes(2, LEN)).await, 0);
    assert!(rig.disk.holds(0, &bytes(2, LEN)), "nothing of a write that did not come");
}

/// A slow client holds memory for 256 KiB, or for twice the data that it has sent. It holds no memory that is
/// reserved for other clients.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_trickle_their_data_hold_up_no_other() {
    const LONG: u32 = 32 << 20;
    let rig = Rig::with_unit(64 << 20, WINDOW, MEMORY, false).await;
    let mut slow = Vec::new();
    for at in 0..32 {
        let mut client = raw(&rig).await;
        client.send(0, kind::WRITE, 0, LONG).await;
        // The first clients send more data: one of them gets the memory for the longest request (the turn), and
        // the others hold parts of the shared memory.
        let sent = if at < 8 { 3 << 20 } else { 1 };
        let mut left = &vec![1; sent][..];
        // Bytes that the server has not read yet stay in the socket.
        while let Ok(Ok(taken)) =
            timeout(Duration::from_millis(100), client.stream.write(left)).await
            && !left.is_empty()
        {
            left = &left[taken..];
        }
        slow.push(client);
    }
    let mut client = raw(&rig).await;
    assert_eq!(client.read(0, 4096).await, Ok(vec![0; 4096]));
    assert_eq!(client.write(FUA, 0, &bytes(3, 4096)).await, 0);
    assert_eq!(client.read(0, 4096).await, Ok(bytes(3, 4096).to_vec()));
    // When the slow clients have disconnected, another request gets the memory for the longest request.
    drop(slow);
    assert_eq!(client.write(FUA, 0, &bytes(2, LONG as usize)).await, 0);
}

/// While all places are taken, the next client receives the reason. When a client disconnects, its place is
/// free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_house_refuses_and_takes_clients_again() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let mut there = Vec::new();
    // A connection takes a place as soon as it has sent its first byte.
    for _ in 0..CLIENTS {
        let mut stream = rig.raw().await;
        soon(stream.read_exact(&mut [0; 18])).await.unwrap();
        there.push(stream);
    }
    let uri = format!("nbd+unix:///disk?socket={}&patience=0", rig.socket.display());
    let uri = uri.parse().unwrap();
    let error = soon(NbdDevice::open(&uri)).await.unwrap_err();
    assert!(error.to_string().contains("--max-clients"), "{error}");
    there.pop();
    soon(async {
        while NbdDevice::open(&uri).await.is_err() {
            yield_now().await;
        }
    })
    .await;
}
