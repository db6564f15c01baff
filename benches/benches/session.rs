//! Benchmarks of a command in the session, without sockets.
//!
//! `write, session alone` stops at the slices that a driver would pass to the kernel. The other benchmarks
//! include the test target, which copies the data.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use iscsi_benches::Pair;
use iscsi_pdu::scsi::{Cdb, Lun};
use iscsi_session::{Command, DigestOffer, Offer, Payload};

const MIB: usize = 1024 * 1024;

fn pages(total: usize) -> Payload {
    let page = Bytes::from(vec![0x5a; 4096]);
    Payload::from_pages((0..total / 4096).map(|_| page.clone()))
}

fn write(payload: &Payload) -> Command {
    let blocks = u16::try_from(payload.len() / 512).unwrap();
    Command::new(Lun::ZERO, Cdb::write_10(0, blocks)).with_write(payload.clone())
}

fn with_digests() -> Offer {
    Offer::default()
        .with_header_digest(DigestOffer::Required)
        .with_data_digest(DigestOffer::Required)
}

fn write_session_alone(c: &mut Criterion) {
    let mut group = c.benchmark_group("write, session alone");
    group.throughput(Throughput::Bytes(MIB as u64));
    for (name, offer) in
        [("1 MiB of 4 KiB pages", Offer::default()), ("the same, digests", with_digests())]
    {
        let payload = pages(MIB);
        let ready = || {
            let mut pair = Pair::new(offer).unwrap();
            pair.submit(write(&payload)).unwrap();
            pair
        };
        group.bench_function(name, |b| {
            b.iter_batched_ref(ready, Pair::transmit_only, BatchSize::SmallInput);
        });
    }
}

fn round_trips(c: &mut Criterion) {
    let mut group = c.benchmark_group("with the test target");
    for (name, len) in [("4 KiB", 4096), ("64 KiB", 65536), ("1 MiB", MIB)] {
        let blocks = u16::try_from(len / 512).unwrap();
        let mut pair = Pair::new(Offer::default()).unwrap();
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("read {name}"), |b| {
            b.iter(|| {
                let buffer = BytesMut::zeroed(len);
                pair.submit(Command::new(Lun::ZERO, Cdb::read_10(0, blocks)).with_read(buffer))
                    .unwrap();
                assert_eq!(pair.drive(), 1);
            });
        });
        let payload = pages(len);
        group.bench_function(format!("write {name}"), |b| {
            b.iter(|| {
                pair.submit(write(&payload)).unwrap();
                assert_eq!(pair.drive(), 1);
            });
        });
    }
}

criterion_group!(benches, write_session_alone, round_trips);
criterion_main!(benches);
