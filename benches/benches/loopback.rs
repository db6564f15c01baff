//! Benchmarks of a disk over TCP on this machine: the initiator on one thread, the test target on another. The
//! target copies and checks all bytes, which takes most of the time: compare the figures only with each other.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use iscsi_initiator::Tuning;
use iscsi_initiator::{Advanced, DigestOffer, Disk, Initiator, Offer, Options};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_tuner::Sends;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const NAME: &str = "iqn.2026-01.org.example:disk";
const KIB: usize = 1024;
/// Size of the disk in bytes.
const DISK: usize = 64 * KIB * KIB;

/// Requests of `len` bytes, `depth` of them in flight.
#[derive(Clone, Copy)]
struct Load {
    len: usize,
    depth: u64,
}

const LOADS: [(&str, Load); 5] = [
    ("1 MiB x 8", Load { len: 1024 * KIB, depth: 8 }),
    ("128 KiB x 64", Load { len: 128 * KIB, depth: 64 }),
    ("64 KiB x 32", Load { len: 64 * KIB, depth: 32 }),
    ("4 KiB x 32", Load { len: 4 * KIB, depth: 32 }),
    ("4 KiB x 1", Load { len: 4 * KIB, depth: 1 }),
];

/// A disk of the test target over TCP, and the threads of the initiator and of the target.
struct Testbed {
    near: Runtime,
    disk: Disk,
    /// Runtime of the server. The last field, so that it is dropped last.
    _far: Runtime,
    _server: Server,
}

impl Testbed {
    fn new(options: Options) -> Self {
        let far = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let near = Builder::new_current_thread().enable_all().build().unwrap();
        let server = far.block_on(Server::start(Target::new(target()))).unwrap();
        let url = format!("iscsi://{}/{NAME}/0", server.address());
        let disk = near.block_on(async {
            let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options);
            initiator
                .unwrap()
                .connect(url.as_str())
                .await
                .unwrap()
                .disk_without_reconnect()
                .await
                .unwrap()
        });
        Self { near, disk, _far: far, _server: server }
    }

    /// Returns how long `count` requests take.
    fn time(&self, load: Load, count: u64, request: Request) -> Duration {
        self.near.block_on(async {
            let workers = load.depth.min(count);
            let runs = (0..workers).map(|first| Turn { first, step: workers, end: count });
            let runs: Vec<_> = runs.map(|turn| request(self.disk.clone(), load, turn)).collect();
            let begin = Instant::now();
            runs.into_iter().collect::<JoinSet<_>>().join_all().await;
            begin.elapsed()
        })
    }
}

/// The share of one worker in the requests.
struct Turn {
    first: u64,
    step: u64,
    end: u64,
}

impl Turn {
    /// Returns the offsets of the requests on the disk.
    fn offsets(self, len: usize) -> impl Iterator<Item = u64> {
        let places = (DISK / len) as u64;
        let step = usize::try_from(self.step).unwrap();
        (self.first..self.end).step_by(step).map(move |index| index % places * len as u64)
    }
}

type Run = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
/// A function that executes the share of one worker.
type Request = fn(Disk, Load, Turn) -> Run;

fn write(disk: Disk, load: Load, turn: Turn) -> Run {
    let data = Bytes::from(vec![0x5a; load.len]);
    Box::pin(async move {
        for offset in turn.offsets(load.len) {
            disk.write_at(offset, data.clone()).await.unwrap();
        }
    })
}

fn read(disk: Disk, load: Load, turn: Turn) -> Run {
    let mut buffer = BytesMut::zeroed(load.len);
    Box::pin(async move {
        for offset in turn.offsets(load.len) {
            buffer = disk.read_into(offset, buffer).await.unwrap();
        }
    })
}

fn target() -> TargetConfig {
    let blocks = (DISK / 512) as u64;
    let mut config = TargetConfig::new(NAME, RamDisk::new(512, blocks));
    config.keys.initial_r2t = false;
    config.keys.first_burst_length = 1 << 20;
    config.keys.max_burst_length = 1 << 20;
    config
}

fn plain() -> Options {
    Options::default().with_use_environment(false)
}

fn with_digests() -> Options {
    let offer = Offer::default()
        .with_header_digest(DigestOffer::Required)
        .with_data_digest(DigestOffer::Required);
    plain().with_advanced(Advanced::default().with_offer(offer))
}

fn one_page_a_send() -> Options {
    plain().with_tuning(Tuning::default().with_sends(Some(Sends::OnePage)))
}

fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    testbed: &Testbed,
    name: &str,
    request: Request,
) {
    for (shape, load) in LOADS {
        group.throughput(Throughput::Bytes(load.len as u64));
        group.bench_function(format!("{name} {shape}"), |b| {
            b.iter_custom(|count| testbed.time(load, count, request));
        });
    }
}

fn loopback(c: &mut Criterion) {
    let both: &[(&str, Request)] = &[("write", write), ("read", read)];
    // A read sends only a header, so the length of sends does not affect reads.
    let writes = &both[..1];
    for (name, options, requests) in [
        ("plain", plain(), both),
        ("digests", with_digests(), both),
        ("one page a send", one_page_a_send(), writes),
    ] {
        let testbed = Testbed::new(options);
        let mut group = c.benchmark_group(format!("loopback, {name}"));
        // With few requests per sample, the start and the end of the workers would take most of the time. Flat
        // sampling gives all samples the same number of requests.
        group.sampling_mode(SamplingMode::Flat).sample_size(10);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for (name, request) in requests {
            bench(&mut group, &testbed, name, *request);
        }
        group.finish();
    }
}

criterion_group!(benches, loopback);
criterion_main!(benches);
