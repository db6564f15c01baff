//! Tests of the work that callers do themselves, and of the work that they leave to the event loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};

use super::*;
use crate::driver::answers::ASK_AGAIN;
use crate::error::{Error, ErrorKind};

const LEN: usize = 4096;
const BLOCKS: u64 = (LEN / 512) as u64;

async fn disk() -> (Simulated, Disk) {
    let mut properties = Properties::default();
    properties.latency = ROUND_TRIP / 2;
    disk_over(properties).await
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the addresses of the READs among PDUs without data, in the order in which they were sent.
fn addresses(sent: &[u8]) -> Vec<u64> {
    const HEADER: usize = 48;
    const SCSI_COMMAND: u8 = 0x01;
    const READ_16: u8 = 0x88;
    let reads =
        sent.chunks(HEADER).filter(|pdu| pdu[0] & 0x3f == SCSI_COMMAND && pdu[32] == READ_16);
    reads.map(|pdu| u64::from_be_bytes(pdu[34..42].try_into().unwrap())).collect()
}

/// A caller sends its request when it is first polled: the event loop has no turn between that poll and the
/// check of the number of writes, so it cannot have sent the request.
#[tokio::test(start_paused = true)]
async fn a_lone_request_is_sent_by_its_caller_and_a_further_one_by_the_event_loop() {
    let (network, disk) = disk().await;
    let writes = || see(&network, |wire| wire.writes);
    // From here on no other caller is expected to submit again.
    tokio::time::sleep(2 * ASK_AGAIN).await;
    let (before, begun) = (writes(), Instant::now());
    let (mut first, mut second) = (pin!(disk.read_at(0, LEN)), pin!(disk.read_at(0, LEN)));
    assert!(poll_once(first.as_mut()).is_pending());
    assert_eq!(writes(), before + 1);
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(writes(), before + 1, "others may follow that go with it");
    first.await.unwrap();
    assert_eq!(writes(), before + 2);
    second.await.unwrap();
    assert_eq!(begun.elapsed(), ROUND_TRIP);
}

/// The caller of a long request does not send it: the event loop does, which may run on another thread.
#[tokio::test(start_paused = true)]
async fn a_long_request_is_sent_by_the_event_loop() {
    let (network, disk) = disk().await;
    let writes = || see(&network, |wire| wire.writes);
    let before = writes();
    let mut write = pin!(disk.write_at(0, Bytes::from(vec![1; 128 << 10])));
    assert!(poll_once(write.as_mut()).is_pending());
    assert_eq!(writes(), before);
    write.await.unwrap();
}

/// READs in the queue are sent before a READ that is handed over directly, even if the queue holds more messages
/// than one turn takes. The addresses identify the READs.
#[tokio::test(start_paused = true)]
async fn what_was_left_in_the_queue_goes_before_what_is_handed_over() {
    const COUNT: usize = 100;
    let (network, disk) = disk().await;
    let unit = disk.unit();
    let driver = unit.session().driver();
    see(&network, |wire| wire.sent.clear());
    let reads = (1..=COUNT).map(|at| Box::pin(disk.read_at((at * LEN) as u64, LEN)));
    let (mut reads, mut last) = (reads.collect::<Vec<_>>(), pin!(disk.read_at(0, LEN)));
    driver.while_taken(|| {
        assert!(reads.iter_mut().all(|read| poll_once(read.as_mut()).is_pending()));
    });
    assert!(see(&network, |wire| wire.sent.is_empty()));
    assert!(poll_once(last.as_mut()).is_pending());
    for read in reads {
        read.await.unwrap();
    }
    last.await.unwrap();
    let expected: Vec<_> = (1..=COUNT as u64).chain([0]).map(|at| at * BLOCKS).collect();
    assert_eq!(see(&network, |wire| addresses(&wire.sent)), expected);
}

/// A request is submitted and given up while another task holds the driver. Both messages are in the queue, and
/// the driver sends nothing for them.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_given_up_in_the_queue_is_not_sent() {
    let (network, disk) = disk().await;
    let unit = disk.unit();
    let driver = unit.session().driver();
    see(&network, |wire| wire.sent.clear());
    driver.while_taken(|| {
        let mut first = pin!(disk.read_at(LEN as u64, LEN));
        assert!(poll_once(first.as_mut()).is_pending());
    });
    disk.read_at(0, LEN).await.unwrap();
    assert_eq!(see(&network, |wire| addresses(&wire.sent)), [0]);
}

/// If responses arrive one by one, no other response is there when the next request is sent. So most of the
/// reads before requests are skipped.
#[tokio::test(start_paused = true)]
async fn answers_are_not_looked_for_again_and_again_where_none_are() {
    let (network, disk) = disk().await;
    let readers = (0..4).map(|reader| {
        let disk = disk.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ROUND_TRIP / 4 * reader).await;
            for _ in 0..25 {
                disk.read_at(0, LEN).await.unwrap();
            }
        })
    });
    let before = see(&network, |wire| wire.vain_reads);
    for reader in readers.collect::<Vec<_>>() {
        reader.await.unwrap();
    }
    let vain = see(&network, |wire| wire.vain_reads) - before;
    assert!((4..8).contains(&vain), "{vain} of 100");
}

/// Returns how often the driver and the disk's supervisor read `TCP_INFO` in five seconds, while reads of `len`
/// bytes follow each other at this interval.
async fn polls(round_trip: Duration, interval: Duration, len: usize) -> u32 {
    let (network, disk) = disk_over(Properties::default()).await;
    see(&network, |wire| wire.round_trip = round_trip);
    let read = async |seconds| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) {
            disk.read_at(0, len).await.unwrap();
            tokio::time::sleep(interval).await;
        }
    };
    // The tuner uses one reading per second, so it knows the link after these three seconds.
    read(3).await;
    let before = see(&network, |wire| wire.polls);
    read(5).await;
    see(&network, |wire| wire.polls) - before
}

/// The driver and the supervisor each read `TCP_INFO` once a second while little data moves over a short link,
/// and much more often otherwise.
#[tokio::test(start_paused = true)]
async fn the_kernel_is_asked_rarely_where_little_is_moved_over_a_short_link() {
    let (short, seldom, often) =
        (Duration::from_micros(100), Duration::from_millis(40), Duration::from_millis(2));
    let rare = polls(short, seldom, LEN).await;
    assert!((8..=14).contains(&rare), "{rare}: once a second each");
    assert!(polls(short, often, 16 * LEN).await > 110, "much is moved");
    assert!(polls(ROUND_TRIP, seldom, LEN).await > 110, "the link is long");
}

/// A target that sends a data segment slowly does not count as silent, even while the kernel is polled rarely.
#[tokio::test(start_paused = true)]
async fn what_a_socket_keeps_is_read_soon_where_the_kernel_is_asked_rarely() {
    let mut properties = Properties::default();
    (properties.rate, properties.segment) = (Some(100_000), Some(1448));
    let (network, disk) = disk_over(properties).await;
    see(&network, |wire| wire.round_trip = Duration::from_micros(100));
    for _ in 0..30 {
        disk.read_at(0, 512).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = see(&network, |wire| wire.reads);
    disk.read_at(0, 64 << 10).await.unwrap();
    let reads = see(&network, |wire| wire.reads) - before;
    assert!(reads >= 10, "{reads} in 650 ms");
}

/// A panic in a caller's code while the caller holds the driver ends the session; the event loop finds that out
/// at the next request. A write in flight may still be executed, so its range stays locked until the session is
/// reconnected.
#[tokio::test(start_paused = true)]
async fn a_driver_that_a_panic_has_left_behind_ends_in_order() {
    let (_network, disk) = disk().await;
    let session = disk.unit().session().clone();
    let mut write = Box::pin(disk.write_at(0, vec![1; LEN]));
    let mut ping = pin!(session.ping());
    assert!(poll_once(write.as_mut()).is_pending() && poll_once(ping.as_mut()).is_pending());
    // The event loop is asleep by then.
    tokio::time::sleep(ROUND_TRIP / 4).await;
    let panics = || session.driver().while_taken(|| panic!("the code of a user"));
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    let begun = Instant::now();
    assert_eq!(session.ping().await.as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert_eq!(session.closed().await.as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let error = ping.await.unwrap_err();
    assert!(error.is_of_session() && !error.may_have_executed(), "{error}");
    drop(write);
    let mut later = pin!(disk.write_at(0, vec![2; LEN]));
    assert!(poll_once(later.as_mut()).is_pending());
    assert!(session.is_waited_for() && !disk.is_settled());
    assert_eq!(session.time2wait(), Duration::from_secs(2));
    later.await.unwrap();
    assert_eq!(disk.status().reconnects, 1);
    disk.logout().await.unwrap();
}

/// The driver of a path is gone, but the path is not removed yet: a request that was to use this path is sent
/// over the next session.
#[tokio::test(start_paused = true)]
async fn a_request_to_a_driver_that_is_gone_goes_over_the_next_session() {
    let (_network, disk) = disk().await;
    disk.unit().session().driver().close();
    let mut read = pin!(disk.read_at(0, LEN));
    assert!(poll_once(read.as_mut()).is_pending());
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    assert_eq!(read.map(|read| read.unwrap().len()), Ok(LEN));
    assert_eq!(disk.status().reconnects, 1);
}

/// The future of a request is stored in the task of its caller, and is in no processor cache when the task is
/// polled. So the command is stored once, in a box, and not in the future of each function that was called.
#[tokio::test(start_paused = true)]
async fn the_future_of_a_request_is_small() {
    let (_network, disk) = disk().await;
    let read = size_of_val(&disk.read_into(0, BytesMut::new()));
    let write = size_of_val(&disk.write_at(0, Bytes::new()));
    assert!(read <= 352 && write <= 512, "{read} and {write} bytes");
}
