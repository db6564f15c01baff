//! Tests of the blocking handles, for programs without async.

use std::io::{Read, Seek, SeekFrom, Write};
use std::thread;

use crate::support::{Rig, pattern, soon, until};
use iscsi_initiator::blocking::{Disk, DiskStream, Initiator, connect};
use iscsi_initiator::device::{Extent, ExtentState};
use iscsi_initiator::{Advice, Error, ErrorKind, Options};
use tokio::runtime::{Builder, Runtime};

const CAPACITY: u64 = 4096 * 512;

fn initiator() -> Initiator {
    let options = Options::default().with_use_environment(false);
    Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap()
}

/// Starts a target on its own threads.
fn start() -> (Runtime, Rig) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let rig = runtime.block_on(Rig::start(512, CAPACITY / 512, |_| {}));
    (runtime, rig)
}

fn open(rig: &Rig) -> Disk {
    initiator().disk(rig.unit_url(0, "")).unwrap()
}

fn sessions(rig: &Rig) -> usize {
    rig.server.with(|target| target.sessions())
}

#[test]
fn handles_go_to_any_thread() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Initiator>();
    shared::<Disk>();
    sent::<DiskStream>();
}

#[test]
fn calls_wait_for_their_end() {
    let (_runtime, rig) = start();
    let initiator = initiator();
    let targets = initiator.discover(rig.url("")).unwrap();
    assert_eq!(targets[0].name.to_string(), crate::support::TARGET);
    let disk = initiator.disk(rig.unit_url(0, "")).unwrap();
    assert_eq!((disk.capacity(), disk.block_size()), (CAPACITY, 512));
    let data = pattern(70_000, 1);
    disk.write_at(700, &data).unwrap();
    assert!(rig.disk.holds(700, &data));
    let mut back = vec![0; data.len()];
    disk.read_at(700, &mut back).unwrap();
    assert!(back == data);
    disk.write_zeroes(700, 300).unwrap();
    disk.discard(1024, 512).unwrap();
    assert!(rig.disk.holds(700, &[0; 300]) && rig.disk.holds(1024, &[0; 512]));
    let hole = Extent::new(1024, 512, ExtentState::Deallocated);
    assert_eq!(disk.extents(1024, 512).unwrap(), [hole]);
    disk.flush().unwrap();
    assert_eq!(rig.disk.flushes(), 1);
    assert_eq!(
        disk.write_at(CAPACITY, &[1]).as_ref().err().map(Error::kind),
        Some(ErrorKind::InvalidInput)
    );
    let mut untouched = [7; 2];
    assert!(disk.read_at(CAPACITY - 1, &mut untouched).is_err());
    assert_eq!(untouched, [7; 2]);
    let session = initiator.get_ref().connect(rig.unit_url(0, ""));
    let session = initiator.block_on(session).unwrap().unwrap();
    initiator.block_on(session.logout()).unwrap().unwrap();
    disk.logout().unwrap();
    assert_eq!(disk.read_at(0, &mut [0]).as_ref().err().map(Error::kind), Some(ErrorKind::Closed));
    assert_eq!(sessions(&rig), 0);
    rig.assert_clean();
}

#[test]
fn one_call_opens_a_disk_by_its_url() {
    let (_runtime, rig) = start();
    let disk = connect(rig.unit_url(0, "")).unwrap();
    disk.write_at(700, &[7; 100]).unwrap();
    assert!(rig.disk.holds(700, &[7; 100]) && sessions(&rig) > 0);
    // Each call creates its own initiator, so the second login does not end the session of the first.
    let other = connect(rig.unit_url(0, "")).unwrap();
    let mut back = [0; 100];
    other.read_at(700, &mut back).unwrap();
    disk.read_at(700, &mut back).unwrap();
    assert_eq!(back, [7; 100]);
    other.logout().unwrap();
    disk.logout().unwrap();
    assert_eq!(sessions(&rig), 0);
    assert_eq!(connect("http://host").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_stream_reads_writes_and_seeks() {
    let (_runtime, rig) = start();
    let disk = open(&rig);
    let data = pattern(1_500_001, 5);
    let mut stream = disk.stream(12_345);
    stream.write_all(&data).unwrap();
    stream.flush().unwrap();
    assert!(rig.disk.holds(12_345, &data));
    assert_eq!(rig.disk.flushes(), 1);
    stream.seek(SeekFrom::Start(12_345)).unwrap();
    let mut back = vec![0; data.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == data);
    // `stream_position` must not seek, because a seek would discard the data that was read ahead.
    stream.seek(SeekFrom::End(-1024)).unwrap();
    stream.read_exact(&mut back[..512]).unwrap();
    let commands = rig.server.with(|target| target.commands().len());
    assert_eq!(stream.stream_position().unwrap(), CAPACITY - 512);
    stream.read_exact(&mut back[..512]).unwrap();
    assert_eq!(rig.server.with(|target| target.commands().len()), commands);
    stream.seek(SeekFrom::End(-3)).unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 3);
    let full = stream.write_all(b"x").unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    rig.assert_clean();
}

#[test]
fn many_threads_share_a_disk() {
    let (_runtime, rig) = start();
    let disk = open(&rig);
    thread::scope(|scope| {
        for number in 0..8u64 {
            let disk = disk.clone();
            scope.spawn(move || {
                for round in 0..20 {
                    let (offset, data) = (number * 65_536, pattern(65_000, round));
                    disk.write_at(offset, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    disk.read_at(offset, &mut back).unwrap();
                    assert!(back == data);
                }
                disk.flush().unwrap();
            });
        }
    });
    assert_eq!(rig.disk.flushes(), 8);
    rig.assert_clean();
}

/// Dropping the last handle, of any type, logs out, and then stops the runtime.
#[test]
fn the_last_handle_logs_out() {
    let (_runtime, rig) = start();
    let initiator = initiator();
    let disk = initiator.disk(rig.unit_url(0, "")).unwrap();
    drop(initiator);
    let stream = disk.stream(0);
    drop(disk);
    assert!(sessions(&rig) > 0);
    drop(stream);
    assert_eq!(sessions(&rig), 0);
    rig.assert_clean();
}

/// A blocking call in an async task returns an error. The target runs on the only thread of the runtime, so
/// the call would stop it and never return.
#[tokio::test]
async fn an_async_task_gets_an_error_instead_of_a_standstill() {
    let rig = Rig::start(512, CAPACITY / 512, |_| {}).await;
    let initiator = initiator();
    let url = rig.unit_url(0, "");
    assert_eq!(
        initiator.disk(url.as_str()).as_ref().err().and_then(Error::advice),
        Some(Advice::Await)
    );
    // The calls return the same error if nearly half of the cooperative budget of the task (tokio) is used.
    for _ in 0..60 {
        tokio::task::consume_budget().await;
    }
    assert_eq!(
        initiator.discover(url.as_str()).as_ref().err().and_then(Error::advice),
        Some(Advice::Await)
    );
    assert_eq!(
        initiator.block_on(async {}).as_ref().err().and_then(Error::advice),
        Some(Advice::Await)
    );
    let spawned = initiator.clone();
    let result = tokio::spawn(async move { spawned.discover("iscsi://127.0.0.1:1").map(drop) });
    assert_eq!(result.await.unwrap().as_ref().err().and_then(Error::advice), Some(Advice::Await));

    let opening = initiator.clone();
    let disk = tokio::task::spawn_blocking(move || opening.disk(url)).await.unwrap().unwrap();
    assert_eq!(disk.flush().as_ref().err().and_then(Error::advice), Some(Advice::Await));
    let mut stream = disk.stream(0);
    let error = stream.read(&mut [0]).unwrap_err();
    let inner = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    assert_eq!(inner.and_then(Error::advice), Some(Advice::Await));
    // Handles that are dropped in a task still log out, and do not block it.
    drop((stream, disk, initiator));
    soon(until(|| sessions(&rig) == 0)).await;
    rig.assert_clean();
}

/// A blocking call inside a future does not consume the wake-up of that future.
#[test]
fn calls_within_a_future_that_is_waited_for() {
    let (_runtime, rig) = start();
    let initiator = initiator();
    let disk = initiator.disk(rig.unit_url(0, "")).unwrap();
    let data = pattern(4096, 3);
    let ended = initiator.block_on(async {
        for at in 0..50 {
            let (outer, inner) =
                tokio::join!(disk.get_ref().write_at(at * 8192, data.clone()), async {
                    disk.write_at(at * 8192 + 4096, &data)
                });
            outer.and(inner)?;
        }
        Ok::<_, Error>(())
    });
    ended.unwrap().unwrap();
    assert!(rig.disk.holds(49 * 8192, &[&data[..], &data].concat()));
}
