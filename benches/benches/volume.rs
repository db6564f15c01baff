//! Benchmarks of volumes: requests to a volume of two members, and the same requests to one member. There are
//! three kinds of members: some take no time, some copy the data, some are reached over TCP on this machine.
//! Compare the figures only with each other.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic, and names itself")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use iscsi_initiator::device::{Device, DeviceFuture, DeviceResult};
use iscsi_initiator::{Disk, Initiator, Options};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use iscsi_volume::{Chunk, Member, Volume};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// Bytes of a member.
const MEMBER: usize = 64 * MIB;
/// Bytes of a request.
const LEN: usize = MIB;
/// Number of requests in flight.
const DEPTH: u64 = 8;
/// Bytes of a chunk.
const CHUNKS: [(&str, usize); 2] = [("512 KiB", 512 * KIB), ("64 KiB", 64 * KIB)];

const IN_ONE_PIECE: &str = ", members in one piece";

/// A member that does nothing, or that copies the data of reads and writes.
#[derive(Clone, Debug)]
struct Nearby(Option<Arc<Mutex<Vec<u8>>>>);

impl Nearby {
    fn copying() -> Self {
        Self(Some(Arc::new(Mutex::new(vec![1; MEMBER]))))
    }
}

impl Device for Nearby {
    fn capacity(&self) -> u64 {
        MEMBER as u64
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            if let Self(Some(bytes)) = self {
                let at = usize::try_from(offset).map_err(io::Error::other)?;
                let end = at + buffer.len();
                buffer.copy_from_slice(&bytes.lock().unwrap()[at..end]);
            }
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        Box::pin(async move {
            if let Self(Some(bytes)) = self {
                let mut at = usize::try_from(offset).map_err(io::Error::other)?;
                let mut bytes = bytes.lock().unwrap();
                for page in pages {
                    bytes[at..at + page.len()].copy_from_slice(&page);
                    at += page.len();
                }
            }
            Ok(())
        })
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

fn volume<D: Device>(chunk: usize, members: [D; 2]) -> Volume<D> {
    let members = members.into_iter().map(|device| Member::new("member", device)).collect();
    Volume::new(Chunk::new(chunk as u64).unwrap(), members).unwrap()
}

/// A volume that reads all data of a member in one piece, and copies them to their places.
#[derive(Debug)]
struct InOnePiece<D> {
    volume: Volume<D>,
    /// Buffers for reuse.
    pool: Mutex<Vec<BytesMut>>,
}

impl<D: Device> InOnePiece<D> {
    async fn read_part(
        &self,
        member: usize,
        range: &std::ops::Range<u64>,
    ) -> DeviceResult<BytesMut> {
        let part = self.volume.stripe().part(range, member);
        let len = usize::try_from(part.end - part.start).map_err(io::Error::other)?;
        let mut buffer = self.pool.lock().unwrap().pop().unwrap_or_default();
        buffer.resize(len, 0);
        self.volume.members()[member].device().read_into(part.start, buffer).await
    }
}

impl<D: Device> Device for InOnePiece<D> {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.volume)
    }

    fn capacity(&self) -> u64 {
        self.volume.capacity()
    }

    fn read_into(&self, offset: u64, mut buffer: BytesMut) -> DeviceFuture<'_, BytesMut> {
        Box::pin(async move {
            let range = offset..offset + buffer.len() as u64;
            let parts = tokio::join!(self.read_part(0, &range), self.read_part(1, &range));
            let parts = [parts.0?, parts.1?];
            let (mut done, mut at) = ([0; 2], 0);
            for piece in self.volume.stripe().pieces(range) {
                let len = usize::try_from(piece.len).map_err(io::Error::other)?;
                let from = done[piece.member];
                buffer[at..at + len].copy_from_slice(&parts[piece.member][from..from + len]);
                done[piece.member] += len;
                at += len;
            }
            self.pool.lock().unwrap().extend(parts);
            Ok(buffer)
        })
    }

    fn write_at(&self, offset: u64, pages: Vec<Bytes>) -> DeviceFuture<'_, ()> {
        self.volume.write_at(offset, pages)
    }

    fn flush(&self) -> DeviceFuture<'_, ()> {
        self.volume.flush()
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Work {
    Read,
    Write,
}

/// Sends `count` requests from several tasks, repeatedly over the device. Returns how long they take.
async fn time(device: &Arc<dyn Device>, count: u64, work: Work) -> Duration {
    let places = (MEMBER / LEN) as u64;
    let data = Bytes::from(vec![0x5a; LEN]);
    let buffers: Vec<_> = (0..DEPTH).map(|_| BytesMut::zeroed(LEN)).collect();
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for (first, mut buffer) in (0..DEPTH).zip(buffers) {
        let (device, data) = (Arc::clone(device), data.clone());
        tasks.spawn(async move {
            for number in (first..count).step_by(usize::try_from(DEPTH).unwrap()) {
                let offset = number % places * LEN as u64;
                match work {
                    Work::Read => buffer = device.read_into(offset, buffer).await.unwrap(),
                    Work::Write => device.write_at(offset, vec![data.clone()]).await.unwrap(),
                }
            }
        });
    }
    tasks.join_all().await;
    begin.elapsed()
}

/// Targets on separate threads, and a disk of each.
struct Testbed {
    near: Runtime,
    disks: Vec<Disk>,
    /// Runtime of the servers. It stands after `disks`, so that the servers still run when the disks are dropped.
    _far: Runtime,
    _servers: Vec<Server>,
}

impl Testbed {
    fn new() -> Self {
        let far = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let near = Builder::new_current_thread().enable_all().build().unwrap();
        let options = Options::default().with_use_environment(false);
        let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
        let (mut servers, mut disks) = (Vec::new(), Vec::new());
        for name in ["iqn.2026-01.org.example:one", "iqn.2026-01.org.example:two"] {
            let disk = RamDisk::new(512, MEMBER as u64 / 512);
            disk.fill(1);
            let target = Target::new(TargetConfig::new(name, disk));
            let server = far.block_on(Server::start(target)).unwrap();
            let url = format!("iscsi://{}/{name}/0", server.address());
            servers.push(server);
            let disk = async {
                initiator
                    .connect(url.as_str())
                    .await
                    .unwrap()
                    .disk_without_reconnect()
                    .await
                    .unwrap()
            };
            disks.push(near.block_on(disk));
        }
        Self { near, disks, _far: far, _servers: servers }
    }
}

/// Measures reads and writes on each device.
fn compare(
    c: &mut Criterion,
    name: &str,
    runtime: &Runtime,
    devices: &[(String, Arc<dyn Device>)],
) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Bytes(LEN as u64)).sampling_mode(SamplingMode::Flat);
    for (kind, work) in [("read", Work::Read), ("write", Work::Write)] {
        for (device_name, device) in devices {
            // The volume that reads in one piece differs from the other volumes only in reads.
            if work == Work::Write && device_name.ends_with(IN_ONE_PIECE) {
                continue;
            }
            group.bench_function(format!("{kind}, {device_name}"), |bench| {
                bench.iter_custom(|count| runtime.block_on(time(device, count, work)));
            });
        }
    }
    group.finish();
}

/// Returns the measured devices: one member, volumes of two members with different chunk sizes, and the same
/// volumes with reads in one piece.
fn devices<D: Device + Clone + 'static>(members: [D; 2]) -> Vec<(String, Arc<dyn Device>)> {
    let mut devices: Vec<(String, Arc<dyn Device>)> =
        vec![("one member".to_owned(), Arc::new(members[0].clone()))];
    for (name, chunk) in CHUNKS {
        let striped = volume(chunk, members.clone());
        let other = InOnePiece { volume: striped.clone(), pool: Mutex::default() };
        devices.push((format!("chunks of {name}"), Arc::new(striped)));
        devices.push((format!("chunks of {name}{IN_ONE_PIECE}"), Arc::new(other)));
    }
    devices
}

fn nearby(c: &mut Criterion) {
    let runtime = Builder::new_current_thread().build().unwrap();
    compare(c, "volume, members that do nothing", &runtime, &devices([Nearby(None), Nearby(None)]));
    let members = [Nearby::copying(), Nearby::copying()];
    compare(c, "volume, members that copy", &runtime, &devices(members));
}

fn over_tcp(c: &mut Criterion) {
    let testbed = Testbed::new();
    let members = [testbed.disks[0].clone(), testbed.disks[1].clone()];
    compare(c, "volume, members behind TCP", &testbed.near, &devices(members));
}

criterion_group!(benches, nearby, over_tcp);
criterion_main!(benches);
