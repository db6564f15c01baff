//! Executes the initiator's part of a test case, and checks the result.

use std::time::Duration;

use iscsi_initiator::{Advanced, Disk, Error, Initiator, Options, Session, Sessions};
use iscsi_session::{Offer, Timeouts};
use iscsi_testkit::disk::RamDisk;

use crate::liar::Liar;
use crate::row::{Job, Row};

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";
pub(crate) const BLOCKS: u64 = 512;
const INITIATOR: &str = "iqn.2026-01.org.example:host";
/// Offsets of the two reads or writes of a test case (`FIRST` and `SECOND`), and their `LENGTH`, in bytes.
const FIRST: u64 = 4096;
const SECOND: u64 = 128 * 1024;
pub(crate) const LENGTH: usize = 64 * 1024;
/// Offset at which a write and a read check that everything still works.
const AFTERWARDS: u64 = 224 * 1024;

/// Result of a test case.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Errors, in the order in which the requests were made.
    pub(crate) errors: Vec<Error>,
    /// Whether the session existed and worked at the end.
    pub(crate) works: bool,
    /// Description of wrong data; `None` if the data is right.
    pub(crate) wrong: Option<String>,
}

impl Outcome {
    fn failed(error: Error) -> Self {
        Self { errors: vec![error], ..Self::default() }
    }

    fn record<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(error);
                None
            }
        }
    }

    fn accuse(&mut self, wrong: impl Into<String>) {
        self.wrong.get_or_insert_with(|| wrong.into());
    }
}

/// Executes the job of the test case.
pub(crate) async fn live(row: &Row, liar: &Liar, disk: &RamDisk, soon: Duration) -> Outcome {
    let initiator = Initiator::with_options(INITIATOR, options(row, soon)).unwrap();
    let url = format!("iscsi://{}{}/{TARGET}/0{}", row.user, liar.address, row.query);
    if matches!(row.job, Job::Discover | Job::Open) {
        liar.arm();
    }
    if row.job == Job::Discover {
        return discover(&initiator, url.as_str()).await;
    }
    let (session, opened) = match open(row, &initiator, url.as_str()).await {
        Ok(open) => open,
        Err(outcome) => return outcome,
    };
    let mut outcome = Outcome::default();
    if opened.capacity() != disk.capacity() || opened.block_size() != disk.block_size() {
        outcome.accuse("the capacity is not the unit's");
    }
    liar.arm();
    work(row.job, &session, &opened, disk, &mut outcome).await;
    if outcome.errors.is_empty() || session.is_open() {
        let errors = std::mem::take(&mut outcome.errors);
        try_once_more(row.job, &opened, disk, &mut outcome).await;
        outcome.works = outcome.errors.is_empty();
        outcome.errors.splice(0..0, errors);
    }
    outcome
}

async fn open(row: &Row, initiator: &Initiator, url: &str) -> Result<(Session, Disk), Outcome> {
    if row.reopens {
        let opened = initiator.disk(url).await.map_err(Outcome::failed)?;
        return Ok((opened.sessions()[0].clone(), opened));
    }
    let session = initiator.connect(url).await.map_err(Outcome::failed)?;
    match session.disk_without_reconnect().await {
        Ok(opened) => Ok((session, opened)),
        Err(error) => Err(Outcome { works: session.is_open(), ..Outcome::failed(error) }),
    }
}

fn options(row: &Row, soon: Duration) -> Options {
    let timeouts = Timeouts::default().with_nop_interval(None);
    let mut options = Options::default().with_use_environment(false).with_timeouts(timeouts);
    if row.reopens {
        options = options.with_sessions(Sessions::Fixed(1)).with_advanced(
            Advanced::default().with_offer(Offer::default().with_default_time2wait(0)),
        );
    }
    if let Some(set) = row.limits {
        options = options.with_timeouts(set(timeouts, soon));
    }
    options
}

async fn discover(initiator: &Initiator, url: &str) -> Outcome {
    match initiator.discover(url).await {
        Err(error) => Outcome::failed(error),
        Ok(targets) => {
            let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
            let other = names.iter().any(|name| *name != TARGET);
            let wrong = other.then(|| format!("{names:?} are listed"));
            Outcome { works: true, wrong, ..Outcome::default() }
        }
    }
}

async fn work(job: Job, session: &Session, opened: &Disk, disk: &RamDisk, outcome: &mut Outcome) {
    match job {
        Job::Discover | Job::Open => {}
        Job::Read => {
            let read = |offset| opened.read_at(offset, LENGTH);
            let (first, second) = tokio::join!(read(FIRST), read(SECOND));
            for (offset, result) in [(FIRST, first), (SECOND, second)] {
                if let Some(data) = outcome.record(result)
                    && data != disk.read(offset, LENGTH)
                {
                    outcome.accuse(format!("a read at {offset} ended well with wrong bytes"));
                }
            }
        }
        Job::Write | Job::Abort => write(opened, disk, outcome).await,
        Job::Ping => drop(outcome.record(session.ping().await)),
        Job::Text => {
            if let Some(targets) = outcome.record(session.send_targets().await)
                && targets.iter().any(|target| target.name.as_str() != TARGET)
            {
                outcome.accuse("another target is listed than the session's own");
            }
        }
        Job::Reset => drop(outcome.record(opened.unit().reset().await)),
        Job::Logout => drop(outcome.record(session.logout().await)),
    }
}

/// Writes, and checks that each byte of a failed write is the old or the new one, and no other byte has changed.
async fn write(opened: &Disk, disk: &RamDisk, outcome: &mut Outcome) {
    let before = disk.read(0, usize::MAX);
    let after = [vec![0xa5; LENGTH], vec![0x5a; LENGTH]];
    let write = |offset, data: &[u8]| opened.write_at(offset, data.to_vec());
    let (first, second) = tokio::join!(write(FIRST, &after[0]), write(SECOND, &after[1]));
    let mut wanted = before.to_vec();
    for (offset, data, result) in [(FIRST, &after[0], first), (SECOND, &after[1], second)] {
        wanted[offset as usize..][..LENGTH].copy_from_slice(data);
        if outcome.record(result).is_some() && !disk.holds(offset, data) {
            outcome.accuse(format!("a write at {offset} ended well and is not on the disk"));
        }
    }
    let found = disk.read(0, usize::MAX);
    let blocks = found.chunks(512).zip(before.chunks(512)).zip(wanted.chunks(512));
    for ((found, before), wanted) in blocks.filter(|((found, _), wanted)| found != wanted) {
        let mut bytes = found.iter().zip(before).zip(wanted);
        if bytes.any(|((found, before), wanted)| found != before && found != wanted) {
            outcome.accuse("a byte of the disk is neither old nor new");
        }
    }
}

/// Checks that a session that has survived moves the right bytes, and logs out.
async fn try_once_more(job: Job, opened: &Disk, disk: &RamDisk, outcome: &mut Outcome) {
    if job == Job::Logout {
        return;
    }
    let data = vec![0xc3; 8192];
    if outcome.record(opened.write_at(AFTERWARDS, data.clone()).await).is_some()
        && !disk.holds(AFTERWARDS, &data)
    {
        outcome.accuse("the write afterwards is not on the disk");
    }
    if let Some(all) = outcome.record(opened.read_at(0, disk.capacity() as usize).await)
        && !disk.holds(0, &all)
    {
        outcome.accuse("the read afterwards has wrong bytes");
    }
    outcome.record(opened.logout().await);
}
