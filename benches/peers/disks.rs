//! Measures the initiator as its users have it: disks, each opened by the unit's URL or over a shared
//! session, with a number of requests in flight.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use iscsi_initiator::scsi::Lun;
use iscsi_initiator::{
    Advanced, DigestOffer, Disk, Error, Initiator, Offer, Options, Sessions, Url,
};
use iscsi_tls::Rustls;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Trouble;
use crate::args::{Digests, Direction, RunArgs};
use crate::usage::Usage;

/// Requests per worker before the measurement.
const WARM_UP: u64 = 4;
/// Maximum of concurrent logins: as many as the backlog of a target holds.
const LOGINS: usize = 32;

/// Runs the load. Returns the resources that the measured part used.
pub(crate) fn run(args: &RunArgs) -> Result<Value, Trouble> {
    args.runtime.build()?.block_on(measure(args))
}

async fn measure(args: &RunArgs) -> Result<Value, Trouble> {
    let count = args.bytes.0 / args.io.0.max(1) / u64::from(args.disks.max(1));
    if count == 0 {
        return Err("that is less than one request of each disk".into());
    }
    let disks = open(args).await?;
    let mut workers = Vec::new();
    for disk in &disks {
        workers.extend(workers_of(disk, args)?);
    }
    let warm_up = WARM_UP * u64::from(args.depth);
    let mut workers = carry_out(workers, 0..warm_up).await?;
    if let ([worker], None) = (workers.as_mut_slice(), args.idle) {
        // Fill the list once, so that its memory is mapped before the measurement.
        let mut latencies = vec![1; usize::try_from(count)?];
        latencies.clear();
        worker.latencies = Some(latencies);
    }
    let begun = Usage::of_program()?;
    if let Some(seconds) = args.idle {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    } else {
        workers = carry_out(workers, warm_up..warm_up + count).await?;
    }
    let mut taken = Usage::of_program()?.since(&begun);
    if let Some(latency) = median_latency(&mut workers) {
        taken["latency_us"] = json!(latency);
    }
    drop(workers);
    for disk in disks {
        disk.logout().await?;
    }
    Ok(taken)
}

async fn open(args: &RunArgs) -> Result<Vec<Disk>, Trouble> {
    let name = "iqn.2026-01.org.example:initiator";
    let initiator = Initiator::with_options(name, options(args.digests))?;
    match args.sessions {
        Some(sessions) => open_over(&initiator, args, sessions).await,
        None => open_each(&initiator, args).await,
    }
}

/// Opens `args.disks` disks over `sessions` sessions. Each disk uses the next session in turn.
async fn open_over(
    initiator: &Initiator,
    args: &RunArgs,
    sessions: u16,
) -> Result<Vec<Disk>, Trouble> {
    let first = Url::parse(&args.url)?.lun.and_then(Lun::number).ok_or("the URL names no unit")?;
    let mut open = Vec::new();
    for _ in 0..sessions {
        open.push(initiator.connect(args.url.as_str()).await?);
    }
    let mut disks = Vec::new();
    for (number, session) in (0..args.disks).zip(open.iter().cycle()) {
        let number = u32::from(first) + number;
        let lun = u16::try_from(number).ok().and_then(Lun::new).ok_or("too many units")?;
        disks.push(session.logical_unit(lun).disk_without_reconnect().await?);
    }
    Ok(disks)
}

/// Opens `args.disks` disks, each with a separate session.
async fn open_each(initiator: &Initiator, args: &RunArgs) -> Result<Vec<Disk>, Trouble> {
    let (mut disks, mut logins) = (Vec::new(), JoinSet::new());
    for _ in 0..args.disks {
        if logins.len() == LOGINS {
            disks.extend(logins.join_next().await.transpose()?.transpose()?);
        }
        let (initiator, url) = (initiator.clone(), args.url.clone());
        logins.spawn(async move { initiator.disk(url.as_str()).await });
    }
    while let Some(disk) = logins.join_next().await {
        disks.push(disk??);
    }
    Ok(disks)
}

fn options(digests: Digests) -> Options {
    let (header, data) = match digests {
        Digests::None => (DigestOffer::Never, DigestOffer::Never),
        Digests::Header => (DigestOffer::Required, DigestOffer::Never),
        Digests::Both => (DigestOffer::Required, DigestOffer::Required),
    };
    let offer = Offer::default().with_header_digest(header).with_data_digest(data);
    Options::default()
        .with_sessions(Sessions::Fixed(1))
        .with_use_environment(false)
        .with_tls(Arc::new(Rustls::default()))
        .with_advanced(Advanced::default().with_offer(offer))
}

/// One of the concurrent request streams to a disk. It sends one request after the other.
#[derive(Debug)]
struct Worker {
    disk: Disk,
    /// Number of the disk's next request, shared by the workers of the disk.
    next: Arc<AtomicU64>,
    io: usize,
    /// Number of requests that fit on the unit: request n uses place n modulo this number.
    places: u64,
    data: Data,
    /// Nanoseconds of each request, if they are measured.
    latencies: Option<Vec<u64>>,
}

#[derive(Debug)]
enum Data {
    /// The data of every write.
    Write(Bytes),
    /// The buffer of every read, which each read returns.
    Read(BytesMut),
    /// Each read gets a new buffer.
    Fresh,
}

fn workers_of(disk: &Disk, args: &RunArgs) -> Result<Vec<Worker>, Trouble> {
    let (io, places) = (usize::try_from(args.io.0)?, disk.capacity() / args.io.0);
    if places == 0 {
        return Err("the unit is smaller than a request".into());
    }
    let next = Arc::new(AtomicU64::new(0));
    let written = Bytes::from(vec![0x5a; io]);
    let data = || match (args.direction, args.fresh) {
        (Direction::Write, _) => Data::Write(written.clone()),
        // Pages of zeroed memory are mapped at the first write, so fill the buffer before the measurement.
        (Direction::Read, false) => Data::Read(BytesMut::from(written.as_ref())),
        (Direction::Read, true) => Data::Fresh,
    };
    let worker = |_| {
        let (disk, next) = (disk.clone(), Arc::clone(&next));
        Worker { disk, next, io, places, data: data(), latencies: None }
    };
    Ok((0..args.depth).map(worker).collect())
}

/// Executes the requests with the numbers `numbers` on each disk, and returns the workers at the end.
async fn carry_out(workers: Vec<Worker>, numbers: Range<u64>) -> Result<Vec<Worker>, Trouble> {
    for worker in &workers {
        worker.next.store(numbers.start, Ordering::Relaxed);
    }
    let mut under_way: JoinSet<_> =
        workers.into_iter().map(|worker| worker.work(numbers.end)).collect();
    let mut workers = Vec::with_capacity(under_way.len());
    while let Some(worker) = under_way.join_next().await {
        workers.push(worker??);
    }
    Ok(workers)
}

impl Worker {
    /// Executes requests up to the number `end`.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep the worker twice")]
    fn work(mut self, end: u64) -> impl Future<Output = Result<Self, Error>> + Send {
        async move {
            loop {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return Ok(self);
                }
                let begun = self.latencies.is_some().then(Instant::now);
                self.request(number % self.places * self.io as u64).await?;
                if let (Some(begun), Some(latencies)) = (begun, &mut self.latencies) {
                    latencies.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
            }
        }
    }

    async fn request(&mut self, offset: u64) -> Result<(), Error> {
        match &mut self.data {
            Data::Write(data) => self.disk.write_at(offset, data.clone()).await,
            Data::Read(buffer) => {
                *buffer = self.disk.read_into(offset, std::mem::take(buffer)).await?;
                Ok(())
            }
            Data::Fresh => self.disk.read_at(offset, self.io).await.map(drop),
        }
    }
}

/// Returns the median of the measured latencies, in microseconds.
fn median_latency(workers: &mut [Worker]) -> Option<f64> {
    let latencies = workers.iter_mut().find_map(|worker| worker.latencies.as_mut())?;
    latencies.sort_unstable();
    latencies.get(latencies.len() / 2).map(|nanoseconds| *nanoseconds as f64 / 1e3)
}
