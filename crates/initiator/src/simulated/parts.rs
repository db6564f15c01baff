//! Tests of requests of several commands, one of which fails or is refused by its traffic class: the commands
//! in flight run to their ends.

use iscsi_shaper::Class;
use iscsi_testkit::disk::Cache;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::scsi::{Sense, Unit};
use iscsi_testkit::target::Outcome;

use super::*;
use crate::{Advice, Error, ErrorKind, Shaper, TrafficClass};

/// Blocks of the longest command that the unit takes.
const PART: u32 = 128;
/// Bytes of eight commands of the longest length.
const LEN: usize = 8 * 128 * 512;
/// How much later the unit responds to the commands after the first part.
const DELAY: Duration = Duration::from_millis(500);

/// A disk over one session, whose unit has a volatile cache.
struct Rig {
    target: Arc<Mutex<Target>>,
    disk: Disk,
}

impl Rig {
    async fn open(class: Option<TrafficClass>) -> Self {
        let medium = RamDisk::new(512, 16384);
        medium.set_cache(Cache::Volatile);
        let mut unit = Unit::new(medium.clone()).with_transfer_blocks(PART, PART);
        unit.behavior.max_unmap_blocks = Some(PART);
        let slow = Fault::delay(u64::from(PART).., DELAY);
        let mut config = TargetConfig::new(TARGET, medium).with_fault(slow);
        config.units.insert(0, unit);
        let target = Arc::new(Mutex::new(Target::new(config)));
        let mut properties = Properties::default();
        properties.latency = ROUND_TRIP / 2;
        let network = Simulated::new([Arc::clone(&target)], properties);
        let options = Options::default().with_sessions(Sessions::Fixed(1)).with_class(class);
        let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
        let node =
            Node::over(Arc::new(network), name, options.with_use_environment(false)).unwrap();
        let url = Url::parse(&format!("iscsi://192.0.2.1/{TARGET}/0")).unwrap();
        Self { target, disk: open::open(&node, url).await.unwrap() }
    }

    /// Ends the next command for the first block with this sense.
    fn end_first_with(&self, sense: Sense) {
        lock(&self.target).config_mut().faults.push(Fault::sense(..1, sense).times(1));
    }

    fn active_tasks(&self) -> usize {
        lock(&self.target).active_tasks()
    }

    /// Flushes, and returns the result and the number of task management functions, such as aborts, that the
    /// target has executed so far.
    async fn flush(&self) -> (Result<(), Error>, u32) {
        let flushed = self.disk.flush().await;
        (flushed, lock(&self.target).functions_carried_out())
    }
}

/// Sends a request of which one part fails, after a write that is not flushed.
async fn fails_in_one_part(
    sense: Sense,
    request: impl AsyncFnOnce(&Disk) -> Result<(), Error>,
) -> Rig {
    let rig = Rig::open(None).await;
    rig.disk.write_at(0, Bytes::from_static(&[1; 512])).await.unwrap();
    rig.end_first_with(sense);
    let error = request(&rig.disk).await.unwrap_err();
    assert!(error.sense().is_some(), "{error}");
    assert_eq!(rig.active_tasks(), 0, "nothing of it is in flight");
    rig
}

/// A request of which one part fails aborts no other part: an aborted command may have received the report of a
/// reset, so the next flush would return a loss.
#[tokio::test(start_paused = true)]
async fn a_request_that_fails_in_one_part_aborts_no_other_one_and_is_no_loss() {
    let whole = Bytes::from(vec![2; LEN]);
    let rigs = [
        fails_in_one_part(Sense::WRITE_ERROR, async |disk| disk.write_at(0, whole).await).await,
        fails_in_one_part(Sense::READ_ERROR, async |disk| disk.read_at(0, LEN).await.map(drop))
            .await,
        // The first and last blocks are read first, because the write covers them only in part.
        fails_in_one_part(Sense::READ_ERROR, async |disk| {
            disk.write_at(100, Bytes::from(vec![3; 100_000])).await
        })
        .await,
        fails_in_one_part(Sense::WRITE_ERROR, async |disk| disk.discard(0, LEN as u64).await).await,
    ];
    for (number, rig) in rigs.iter().enumerate() {
        let (flushed, aborted) = rig.flush().await;
        flushed.unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(aborted, 0, "{number}");
    }
}

/// Sends a write of several parts in a traffic class of a megabyte per second, and closes the class after
/// `time`.
async fn closed_after(time: Duration, is_paused: bool, is_reset: bool) -> Rig {
    let shaper = Shaper::new(Class::new("8mbit".parse().unwrap())).unwrap();
    let class = shaper.traffic_class(shaper.default_class());
    let rig = Rig::open(Some(class.clone())).await;
    let disk = rig.disk.clone();
    let write = tokio::spawn(async move { disk.write_at(0, Bytes::from(vec![2; LEN])).await });
    tokio::time::sleep(time).await;
    if is_paused {
        class.pause();
    }
    if is_reset {
        lock(&rig.target).end_next_with(Outcome::check(Sense::RESET));
    }
    class.close();
    assert_eq!(
        write.await.unwrap().as_ref().err().and_then(Error::advice),
        Some(Advice::UseOtherClass)
    );
    rig
}

/// A traffic class that is closed refuses the parts that wait and aborts no part in flight. A part passes the
/// class every 50 ms, and most responses take 600 ms.
#[tokio::test(start_paused = true)]
async fn a_class_that_is_closed_refuses_what_waits_and_aborts_nothing_that_was_sent() {
    for (millis, is_paused) in (60..400).step_by(40).flat_map(|time| [(time, false), (time, true)])
    {
        let rig = closed_after(Duration::from_millis(millis), is_paused, false).await;
        assert_eq!(rig.active_tasks(), 0, "{millis} ms: nothing of the write is in flight");
        let (flushed, aborted) = rig.flush().await;
        flushed.unwrap_or_else(|error| panic!("{millis} ms: {error}"));
        assert_eq!(aborted, 0, "{millis} ms");
        rig.disk.logout().await.unwrap();
    }
}

/// The traffic class of a write is closed while parts of the write are in flight, and a response reports a
/// reset. The next flush returns the loss.
#[tokio::test(start_paused = true)]
async fn a_reset_that_is_reported_while_a_write_ends_is_a_loss() {
    let rig = closed_after(Duration::from_millis(220), false, true).await;
    let (flushed, aborted) = rig.flush().await;
    assert_eq!(
        flushed.as_ref().err().map(Error::kind),
        Some(ErrorKind::UnflushedWritesLost),
        "{flushed:?}"
    );
    assert_eq!(aborted, 0);
}
