//! Tests of a volume over devices in memory: where its bytes lie, which buffers it shares instead of copying,
//! and its results if members fail, are late, or lose writes.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::support::{Memory, pattern};
use bytes::{Bytes, BytesMut};
use iscsi_volume::device::{
    BufferPool, Device as _, DeviceError, DeviceErrorKind, DeviceFuture, DeviceResult,
};
use iscsi_volume::{Chunk, Error, Member, Volume};

const CHUNK: usize = 64 << 10;

fn chunk() -> Chunk {
    Chunk::new(CHUNK as u64).unwrap()
}

fn volume(members: &[Memory]) -> Volume<Memory> {
    Volume::new(chunk(), named(members)).unwrap()
}

fn named(members: &[Memory]) -> Vec<Member<Memory>> {
    let named = |(number, device): (usize, &Memory)| {
        Member::new(format!("member {number}"), device.clone())
    };
    members.iter().enumerate().map(named).collect()
}

fn two() -> [Memory; 2] {
    [Memory::new(CHUNK * 8), Memory::new(CHUNK * 8)]
}

/// Polls a future once, and returns the result.
fn poll<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_write_is_one_request_of_shared_pages_for_each_member() {
    let members = two();
    let volume = volume(&members);
    let data = Bytes::from(pattern(CHUNK * 5, 1));
    let pages: Vec<_> = [0, 7, CHUNK, CHUNK * 3 + 11, CHUNK * 5]
        .windows(2)
        .map(|ends| data.slice(ends[0]..ends[1]))
        .collect();
    volume.write_at(100, pages).await.unwrap();
    let inside = data.as_ptr_range();
    for (member, start) in members.iter().zip([100, 0]) {
        let state = member.lock();
        assert_eq!(state.log.len(), 1, "{:?}", state.log);
        assert_eq!(state.log[0].1.start, start);
        for place in &state.places {
            assert!(inside.start.addr() <= place.start && place.end <= inside.end.addr());
        }
    }
    let total: u64 =
        members.iter().map(|member| member.lock().log[0].1.clone()).map(|r| r.end - r.start).sum();
    assert_eq!(total, CHUNK as u64 * 5);
    assert_eq!(volume.read_at(100, CHUNK * 5).await.unwrap(), data);
}

#[tokio::test]
async fn bytes_lie_in_chunks_in_turn() {
    let members = [Memory::new(CHUNK * 3), Memory::new(CHUNK * 3 + 77), Memory::new(CHUNK * 4)];
    let data = CHUNK as u64 / 2..CHUNK as u64 * 5 / 2;
    let volume = Volume::with_data(chunk(), data, named(&members)).unwrap();
    assert_eq!(volume.capacity(), CHUNK as u64 * 6);
    let bytes = pattern(CHUNK * 6, 2);
    volume.write_at(0, vec![bytes.clone().into()]).await.unwrap();
    for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
        let at = CHUNK / 2 + number / 3 * CHUNK;
        assert!(members[number % 3].lock().bytes[at..at + CHUNK] == *chunk, "chunk {number}");
    }
    for member in &members {
        let state = member.lock();
        let end = CHUNK / 2 + CHUNK * 2;
        let outside = state.bytes[..CHUNK / 2].iter().chain(&state.bytes[end..]);
        assert!(outside.into_iter().all(|byte| *byte == 0), "nothing lies beside the data");
    }
}

#[tokio::test]
async fn reads_land_in_the_buffer_of_the_caller() {
    let members = two();
    let volume = volume(&members);
    let data = pattern(CHUNK * 16, 3);
    volume.write_at(0, vec![data.clone().into()]).await.unwrap();
    for (at, len) in [(10, 100), (CHUNK, CHUNK), (CHUNK - 1, 2), (5, CHUNK * 7 + 3)] {
        members.iter().for_each(|member| member.lock().places.clear());
        let buffer = BytesMut::zeroed(len);
        let place = buffer.as_ptr().addr();
        let read = volume.read_into(at as u64, buffer).await.unwrap();
        assert_eq!((read.as_ptr().addr(), read.len()), (place, len));
        assert!(read == data[at..at + len]);
        for member in &members {
            for buffer in &member.lock().places {
                assert!(place <= buffer.start && buffer.end <= place + len, "its own part");
            }
        }
    }
    assert_eq!(volume.read_at(volume.capacity(), 0).await.unwrap().len(), 0);
}

/// A pool that counts its buffers, and keeps the address of the last one.
#[derive(Debug, Default)]
struct Pool(Mutex<(usize, usize)>);

impl BufferPool for Pool {
    fn take(&self, len: usize) -> BytesMut {
        let buffer = BytesMut::zeroed(len);
        let mut given = self.0.lock().unwrap();
        *given = (given.0 + 1, buffer.as_ptr().addr());
        buffer
    }
}

#[tokio::test]
async fn a_read_takes_one_buffer_of_the_pool() {
    let volume = volume(&two());
    let data = pattern(CHUNK * 16, 3);
    volume.write_at(0, vec![data.clone().into()]).await.unwrap();
    for (at, len) in [(10, 100), (CHUNK, CHUNK), (CHUNK - 1, 2), (5, CHUNK * 7 + 3)] {
        let pool = Arc::new(Pool::default());
        let read = volume.read_with(at as u64, len, pool.clone()).await.unwrap();
        assert_eq!(*pool.0.lock().unwrap(), (1, read.as_ptr().addr()));
        assert!(read == data[at..at + len]);
    }
}

#[tokio::test]
async fn a_read_that_comes_back_shorter_moves_nothing() {
    let members = two();
    members[0].lock().shortens = 1;
    for len in [10, CHUNK * 3] {
        for error in [
            volume(&members).read_into(0, BytesMut::zeroed(len)).await.unwrap_err(),
            volume(&members).read_at(0, len).await.unwrap_err(),
            volume(&members).read_with(0, len, Arc::new(Pool::default())).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), DeviceErrorKind::UnexpectedEnd);
            assert!(error.to_string().starts_with("member 0: "), "{error}");
        }
    }
}

#[tokio::test]
async fn parts_run_to_their_ends_before_an_error_is_told() {
    let members = two();
    members[0].lock().failing = Some(("write", || DeviceErrorKind::Fenced.into()));
    members[1].open(false);
    let volume = volume(&members);
    let data = Bytes::from(pattern(CHUNK * 4, 4));
    let mut write = pin!(volume.write_at(0, vec![data.clone()]));
    assert!(poll(write.as_mut()).is_pending());
    assert_eq!([members[0].lock().under_way, members[1].lock().under_way], [0, 1]);
    members[1].open(true);
    let error = write.await.unwrap_err();
    assert_eq!(members[1].lock().under_way, 0);
    assert!(members[1].lock().bytes[..CHUNK] == data[CHUNK..CHUNK * 2], "it was carried out");
    assert_eq!((error.member(), error.kind()), (Some("member 0"), DeviceErrorKind::Fenced));
    assert_eq!(error.to_string(), format!("member 0: {}", DeviceErrorKind::Fenced));
}

#[tokio::test]
async fn the_error_of_any_request_names_the_member_that_failed() {
    let failed = || DeviceError::new(DeviceErrorKind::TimedOut, "it is gone");
    for kind in ["read", "write", "flush", "confirm", "discard", "zero", "allocate", "extents"] {
        let members = two();
        for member in &members {
            member.lock().limits.discard_granularity = Some(4096);
        }
        members[1].lock().failing = Some((kind, failed));
        let volume = volume(&members);
        let len = CHUNK as u64 * 2;
        let error = match kind {
            "read" => volume.read_at(0, len as usize).await.map(drop),
            "write" => volume.write_at(0, vec![Bytes::from(vec![1; len as usize])]).await,
            "flush" => volume.flush().await,
            "confirm" => volume.confirm().await,
            "discard" => volume.discard(0, len).await,
            "zero" => volume.write_zeroes(0, len).await,
            "allocate" => volume.write_allocated_zeroes(0, len).await,
            _ => volume.extents(0, len).await.map(drop),
        };
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (DeviceErrorKind::TimedOut, "member 1: it is gone")
        );
        assert_eq!(members[0].lock().log.len(), 1, "the other one was asked as well: {kind}");
        // A read or a write within one chunk reaches one member only. Its error names the member as well.
        if kind == "read" || kind == "write" {
            let at = CHUNK as u64 + 1;
            let error = match kind {
                "read" => volume.read_at(at, 5).await.map(drop).unwrap_err(),
                _ => volume.write_at(at, vec![Bytes::from_static(b"bytes")]).await.unwrap_err(),
            };
            assert_eq!(error.to_string(), "member 1: it is gone");
        }
    }
}

/// Asserts that a flush has failed with a loss of this member.
fn assert_lost(result: DeviceResult<()>, member: usize) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::LostWrites);
    assert!(error.to_string().starts_with(&format!("member {member}: ")), "{error}");
}

#[tokio::test]
async fn each_handle_is_told_once_of_the_loss_of_any_member() {
    let members = two();
    let one = volume(&members);
    let other = one.clone();
    members[1].lock().losses += 1;
    members[0].lock().failing = Some(("flush", || DeviceErrorKind::TimedOut.into()));
    // The loss is reported first, because the member does not report it again after the other error.
    assert_lost(one.flush().await, 1);
    let error = one.flush().await.unwrap_err();
    assert!(error.to_string().starts_with("member 0: "), "{error}");
    members[0].lock().failing = None;
    one.flush().await.unwrap();
    assert_lost(other.flush().await, 1);
    other.flush().await.unwrap();
    one.clone().flush().await.unwrap();
    assert_eq!(members[0].lock().log.len(), 6);
    assert_eq!(members[1].lock().log.len(), 6);
}

type Change = fn(&Volume<Memory>) -> DeviceFuture<'_, ()>;

/// A flush reports a loss while a change is in flight: the part of member 0 has ended and is lost, the part of
/// member 1 has not ended. The next flush after the end of the change must report a loss again.
#[tokio::test]
async fn a_loss_is_told_again_of_a_change_that_was_in_flight_when_it_was_told() {
    let kinds: [Change; 4] = [
        |volume| volume.write_at(0, vec![Bytes::from(pattern(CHUNK * 2, 3))]),
        |volume| volume.write_zeroes(0, CHUNK as u64 * 2),
        |volume| volume.write_allocated_zeroes(0, CHUNK as u64 * 2),
        |volume| volume.discard(0, CHUNK as u64 * 2),
    ];
    for change in kinds {
        let members = two();
        for member in &members {
            member.lock().limits.discard_granularity = Some(4096);
        }
        let volume = volume(&members);
        members[1].open(false);
        let mut change = change(&volume);
        assert!(poll(change.as_mut()).is_pending());
        members[1].open(true);
        members[0].lock().losses += 1;
        assert_lost(volume.flush().await, 0);
        change.await.unwrap();
        let again = volume.flush().await.unwrap_err();
        assert_eq!(again.kind(), DeviceErrorKind::LostWrites);
        volume.flush().await.unwrap();
    }
}

/// Begins a flush in which member 0 reports a loss, and drops it before the flush of member 1 has ended.
fn drop_flush(volume: &Volume<Memory>, members: &[Memory; 2]) {
    members[0].lock().losses += 1;
    members[1].open(false);
    assert!(poll(pin!(volume.flush())).is_pending());
    members[1].open(true);
}

#[tokio::test]
async fn a_loss_that_a_dropped_flush_was_told_of_is_told_by_the_next() {
    let members = two();
    let volume = volume(&members);
    drop_flush(&volume, &members);
    assert_lost(volume.flush().await, 0);
    volume.flush().await.unwrap();
    volume.clone().flush().await.unwrap();
}

#[tokio::test]
async fn a_loss_that_a_dropped_handle_was_told_of_is_told_to_those_that_come_later() {
    let members = two();
    let volume = volume(&members);
    let other = volume.clone();
    drop_flush(&volume.clone(), &members);
    let later = [volume.clone(), volume.clone()];
    for handle in &later {
        assert_lost(handle.flush().await, 0);
        handle.flush().await.unwrap();
    }
    other.clone().flush().await.expect("somebody was told");
    assert_lost(other.flush().await, 0);
}

#[tokio::test]
async fn a_request_that_is_dropped_gives_up_all_parts() {
    let members = two();
    members.iter().for_each(|member| member.open(false));
    let volume = volume(&members);
    {
        let data = Bytes::from(vec![1; CHUNK * 4]);
        let mut write = pin!(volume.write_at(0, vec![data]));
        let mut read = pin!(volume.read_at(0, CHUNK * 4));
        let mut flush = pin!(volume.flush());
        assert!(poll(write.as_mut()).is_pending());
        assert!(poll(read.as_mut()).is_pending());
        assert!(poll(flush.as_mut()).is_pending());
        assert_eq!(members.each_ref().map(|member| member.lock().under_way), [4, 4]);
    }
    assert_eq!(members.each_ref().map(|member| member.lock().under_way), [0, 0]);
    members.iter().for_each(|member| member.open(true));
    assert!(members.iter().all(|member| member.lock().log.is_empty()));
}

#[tokio::test]
async fn writes_of_the_same_bytes_reach_every_member_in_the_order_of_their_first_polls() {
    let members: Vec<_> = (0..64).map(|_| Memory::new(CHUNK)).collect();
    members.iter().for_each(|member| member.open(false));
    let volume = volume(&members);
    let len = volume.capacity() as usize;
    let mut one = pin!(volume.write_at(0, vec![Bytes::from(vec![1; len])]));
    let mut other = pin!(volume.write_at(0, vec![Bytes::from(vec![2; len])]));
    assert!(poll(one.as_mut()).is_pending());
    assert!(members.iter().all(|member| member.lock().under_way == 1), "all began at once");
    assert!(poll(other.as_mut()).is_pending());
    assert!(members.iter().all(|member| member.lock().under_way == 2));
}

#[tokio::test]
async fn limits_are_those_that_hold_for_all_members() {
    let members = two();
    for (member, block_size, preferred, granule) in
        [(&members[0], 512, 100_000, 4096), (&members[1], 4096, 1 << 20, 32768)]
    {
        let mut state = member.lock();
        state.limits.block_size = block_size;
        state.limits.preferred_transfer = preferred;
        state.limits.max_transfer = 1 << 20;
        state.limits.discard_granularity = Some(granule);
        state.attentions = u64::from(block_size);
    }
    members[1].lock().limits.has_volatile_cache = true;
    members[1].lock().limits.has_fast_zeroes = true;
    let limits = volume(&members).limits();
    assert_eq!((limits.block_size, limits.preferred_alignment), (4096, CHUNK as u64));
    // The smallest preferred transfer of a member, 100,000 bytes, has one whole chunk. So the preferred transfer
    // of the volume is one chunk of each of the two members.
    assert_eq!((limits.preferred_transfer, limits.max_transfer), (CHUNK * 2, 2 << 20));
    assert_eq!(limits.discard_granularity, Some(32768));
    assert!(limits.has_volatile_cache && !limits.has_fast_zeroes && !limits.is_read_only);
    assert_eq!(volume(&members).attentions(), 4096 + 512);
    members[0].lock().limits.has_fast_zeroes = true;
    assert!(volume(&members).limits().has_fast_zeroes);
    for granule in [None, Some(CHUNK as u64 * 2), Some(12288)] {
        members[0].lock().limits.discard_granularity = granule;
        let volume = volume(&members);
        assert_eq!(volume.limits().discard_granularity, None, "{granule:?}");
        let error = volume.discard(0, 10).await.unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::Unsupported);
    }
    members[0].lock().limits.discard_granularity = Some(4096);
    let at = |start: u64| {
        let data = start..start + CHUNK as u64;
        Volume::with_data(chunk(), data, named(&members)).unwrap().limits().discard_granularity
    };
    assert_eq!((at(32768), at(4096)), (Some(32768), None));
}

#[tokio::test]
async fn as_many_requests_as_keep_the_slowest_member_busy() {
    let members: Vec<_> = (0..4).map(|_| Memory::new(CHUNK)).collect();
    for member in &members {
        member.lock().depth = |io_size| (1 << 20) / io_size.max(1);
    }
    let volume = volume(&members);
    // A request of four chunks reaches all members, one of two chunks two members, and a shorter one one
    // member.
    assert_eq!(volume.queue_depth(CHUNK * 4), 16);
    assert_eq!(volume.queue_depth(CHUNK * 2), 32);
    assert_eq!(volume.queue_depth(CHUNK), 64);
    assert_eq!(volume.queue_depth(CHUNK / 2), 128);
    members[3].lock().depth = |_| 100;
    assert_eq!(volume.queue_depth(CHUNK * 4), 100);
    // The members report a separate depth for reads.
    members.iter().for_each(|member| member.lock().read_depth = Some(5));
    assert_eq!((volume.read_depth(CHUNK * 4), volume.read_depth(CHUNK)), (5, 20));
}

#[tokio::test]
async fn nothing_is_written_where_a_member_refuses_writes() {
    let members = two();
    members[1].lock().limits.is_read_only = true;
    let volume = volume(&members);
    assert!(volume.limits().is_read_only);
    let len = CHUNK as u64 * 2;
    for refused in [
        volume.write_at(0, vec![Bytes::from(vec![1; CHUNK * 2])]).await,
        volume.write_zeroes(0, len).await,
        volume.write_allocated_zeroes(0, len).await,
        volume.discard(0, len).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), DeviceErrorKind::ReadOnly);
        assert!(error.to_string().starts_with("member 1: "), "{error}");
    }
    assert!(members.iter().all(|member| member.lock().log.is_empty()));
    volume.read_at(0, CHUNK * 2).await.unwrap();
}

#[tokio::test]
async fn what_does_not_lie_on_the_volume_is_refused() {
    let members = two();
    let volume = volume(&members);
    let end = volume.capacity();
    for (offset, len) in [(0, end + 1), (end, 1), (end + 1, 0), (u64::MAX, 2)] {
        let count = usize::try_from(len).unwrap();
        for refused in [
            volume.read_at(offset, count).await.map(drop),
            volume.read_into(offset, BytesMut::zeroed(count)).await.map(drop),
            volume.write_at(offset, vec![Bytes::from(vec![0; count])]).await,
            volume.write_zeroes(offset, len).await,
            volume.discard(offset, len).await,
            volume.extents(offset, len).await.map(drop),
        ] {
            assert_eq!(
                refused.unwrap_err().kind(),
                DeviceErrorKind::InvalidInput,
                "{offset} {len}"
            );
        }
    }
    assert!(members.iter().all(|member| member.lock().log.is_empty()));
}

#[test]
fn members_that_do_not_go_together_are_refused() {
    let refused = |members: &[Memory], data: std::ops::Range<u64>| {
        Volume::with_data(chunk(), data, named(members)).unwrap_err()
    };
    let chunk = CHUNK as u64;
    let members = two();
    assert!(matches!(refused(&members[..1], 0..chunk), Error::MemberCount(1)));
    assert!(matches!(refused(&members, 0..chunk - 1), Error::NoRoom { .. }));
    assert!(matches!(refused(&members, 0..chunk * 9), Error::TooSmall { .. }));
    members[1].lock().limits.block_size = 4096;
    let error = refused(&members, 512..chunk + 512);
    assert!(matches!(error, Error::DataOffset { .. }), "{error}");
    assert!(error.to_string().starts_with("member 1 has blocks of 4096 bytes"), "{error}");
    members[1].lock().limits.block_size = 520;
    assert!(matches!(refused(&members, 0..chunk), Error::BlockSize { .. }));
    let error = Volume::new(Chunk::default(), named(&[])).unwrap_err();
    assert!(matches!(error, Error::MemberCount(0)), "{error}");
}
