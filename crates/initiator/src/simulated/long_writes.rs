//! Tests of how much of a long write one system call sends.

use super::*;

const PAGE: usize = 4096;

/// Returns how many bytes the longest system call of a write of 1 MiB sends, if the write has slices of `slice`
/// bytes and the tuner knows the round-trip time.
async fn longest_write(round_trip: Duration, slice: usize) -> usize {
    let mut config = TargetConfig::new(TARGET, RamDisk::new(512, 8192));
    config.keys.max_recv_data_segment_length = Some(1 << 20);
    let (network, disk) = disk_of(config, Properties::default()).await;
    measure_round_trip(&network, &disk, round_trip).await;
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let slices: Vec<_> = data.chunks(slice).map(Bytes::copy_from_slice).collect();
    disk.write_at(0, slices).await.unwrap();
    assert!(disk.read_at(0, data.len()).await.unwrap() == data);
    see(&network, |wire| wire.longest_write)
}

/// Over a short link, a long slice is sent by several system calls, because during a call the kernel does not
/// process the acknowledgements of the peer.
#[tokio::test(start_paused = true)]
async fn a_long_slice_goes_in_several_calls_over_a_short_link() {
    let short = Duration::from_micros(100);
    for slice in [8 << 10, 100 << 10, 112 << 10, 1 << 20] {
        assert_eq!(longest_write(short, slice).await, 112 << 10, "{slice}");
    }
    assert!(longest_write(short, PAGE).await > 200 << 10, "a list of pages goes as a whole");
    assert!(longest_write(ROUND_TRIP, 1 << 20).await > 200 << 10);
}
