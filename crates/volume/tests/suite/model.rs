//! Sends random requests to a volume, and compares the results with an array of bytes.

use std::ops::Range;

use crate::support::{GRAIN, Memory, pattern};
use bytes::Bytes;
use iscsi_volume::device::Device as _;
use iscsi_volume::{Chunk, Member, Volume};
use proptest::prelude::*;

const CHUNK: usize = 64 << 10;
const ROWS: usize = 4;

#[derive(Clone, Debug)]
enum Request {
    Write(Range<usize>, u64),
    Read(Range<usize>),
    Zero(Range<usize>, bool),
    Discard(Range<usize>),
    Extents(Range<usize>),
}

fn requests(capacity: usize) -> impl Strategy<Value = Vec<Request>> {
    let place = prop_oneof![0..=capacity, (0..=capacity / GRAIN).prop_map(|grain| grain * GRAIN)];
    let range = (place.clone(), place).prop_map(|(one, other)| one.min(other)..one.max(other));
    let request = prop_oneof![
        (range.clone(), any::<u64>()).prop_map(|(range, seed)| Request::Write(range, seed)),
        range.clone().prop_map(Request::Read),
        (range.clone(), any::<bool>()).prop_map(|(range, keeps)| Request::Zero(range, keeps)),
        range.clone().prop_map(Request::Discard),
        range.prop_map(Request::Extents),
    ];
    prop::collection::vec(request, 1..12)
}

/// Cuts data into pages of one length, which `seed` determines, so that pages and chunks end at different bytes.
fn pages(data: &[u8], seed: u64) -> Vec<Bytes> {
    let step = (seed as usize % (CHUNK * 2)).max(777);
    data.chunks(step).map(Bytes::copy_from_slice).collect()
}

async fn check(members: usize, data_offset: usize, requests: Vec<Request>) {
    let devices: Vec<_> = (0..members).map(|_| Memory::new(data_offset + CHUNK * ROWS)).collect();
    for device in &devices {
        device.lock().limits.discard_granularity = Some(GRAIN as u64);
    }
    let named = devices.iter().enumerate();
    let named = named.map(|(number, device)| Member::new(number.to_string(), device.clone()));
    let data = data_offset as u64..(data_offset + CHUNK * ROWS) as u64;
    let volume =
        Volume::with_data(Chunk::new(CHUNK as u64).unwrap(), data, named.collect()).unwrap();
    let mut model = vec![0; CHUNK * ROWS * members];
    for request in requests {
        match request {
            Request::Write(range, seed) => {
                let data = pattern(range.len(), seed);
                volume.write_at(range.start as u64, pages(&data, seed)).await.unwrap();
                model[range].copy_from_slice(&data);
            }
            Request::Read(range) => {
                let read = volume.read_at(range.start as u64, range.len()).await.unwrap();
                assert!(read == model[range]);
            }
            Request::Zero(range, keeps) => {
                let (offset, len) = (range.start as u64, range.len() as u64);
                if keeps {
                    volume.write_allocated_zeroes(offset, len).await.unwrap();
                } else {
                    volume.write_zeroes(offset, len).await.unwrap();
                }
                model[range].fill(0);
            }
            Request::Discard(range) => {
                volume.discard(range.start as u64, range.len() as u64).await.unwrap();
                // Only whole granules are deallocated; this device reads them as zeros.
                let (start, end) = (range.start.next_multiple_of(GRAIN), range.end / GRAIN * GRAIN);
                if start < end {
                    model[start..end].fill(0);
                }
            }
            Request::Extents(range) => {
                let mut at = range.start as u64;
                while at < range.end as u64 {
                    for extent in volume.extents(at, range.end as u64 - at).await.unwrap() {
                        assert_eq!(extent.offset, at);
                        let bytes = &model[at as usize..extent.end() as usize];
                        let is_zero = bytes.iter().all(|byte| *byte == 0);
                        assert!(is_zero || !extent.state.reads_zeros(), "a hole of data");
                        at = extent.end();
                    }
                }
            }
        }
    }
    assert!(volume.read_at(0, model.len()).await.unwrap() == model);
    for (number, bytes) in model.chunks(CHUNK).enumerate() {
        let at = data_offset + number / members * CHUNK;
        assert!(devices[number % members].lock().bytes[at..at + CHUNK] == *bytes, "chunk {number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_volume_is_an_array_of_bytes(
        (members, requests) in (2usize..5).prop_flat_map(|members| (Just(members), requests(CHUNK * ROWS * members))),
        data_offset in prop_oneof![Just(0), Just(GRAIN), Just(1 << 20)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(members, data_offset, requests));
    }
}
