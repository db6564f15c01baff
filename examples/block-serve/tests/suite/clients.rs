//! Tests of clients of a server in this process: the data and the errors that they receive, and what they
//! cannot do to other clients.

use std::io::ErrorKind;
use std::time::Duration;

use crate::support::{LEN, MEMORY, Raw, Rig, WINDOW, bytes, kind, soon};
use block_serve::{Address, Listener};
use bytes::BytesMut;
use iscsi_copy::{Device, NbdDevice};
use iscsi_initiator::device::ExtentState;
use iscsi_testkit::disk::{Cache, RamDisk};
use iscsi_testkit::scsi::{Sense, Unit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// A generator of pseudo-random numbers. Each run has the same numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_see_what_both_have_written_whatever_lies_between() {
    let layers = [(512, 0, 0), (4096, WINDOW, 0), (512, 0, MEMORY), (4096, WINDOW, MEMORY)];
    for (block, window, memory) in layers {
        let disk = RamDisk::new(block, LEN as u64 / u64::from(block));
        let rig = Rig::before(disk, window, memory, false).await;
        let clients = [rig.client().await, rig.client().await];
        let (mut model, mut numbers) = (vec![0; LEN], Numbers(u64::from(window) + memory));
        for step in 0..400 {
            let client = &clients[numbers.below(2)];
            let max = if numbers.below(8) == 0 { 300_000 } else { 9000 };
            let len = numbers.below(max) + 1;
            let at = numbers.below(LEN - len);
            match numbers.below(10) {
                0..4 => {
                    let data = bytes(step, len);
                    soon(client.write_at(at as u64, vec![data.clone()])).await.unwrap();
                    model[at..at + len].copy_from_slice(&data);
                }
                4 => {
                    soon(client.write_zeroes(at as u64, len as u64)).await.unwrap();
                    model[at..at + len].fill(0);
                }
                5 => {
                    soon(client.write_allocated_zeroes(at as u64, len as u64)).await.unwrap();
                    model[at..at + len].fill(0);
                }
                6 => {
                    let extents = soon(client.extents(at as u64, len as u64)).await.unwrap();
                    for hole in extents.iter().filter(|extent| extent.state.reads_zeros()) {
                        let (start, end) = (hole.offset as usize, hole.end() as usize);
                        assert!(model[start..end].iter().all(|byte| *byte == 0), "{hole:?}");
                    }
                }
                7 => {
                    soon(client.flush()).await.unwrap();
                    assert!(rig.disk.holds(0, &model));
                }
                _ => {
                    let data = soon(client.read_at(at as u64, len)).await.unwrap();
                    assert!(data == model[at..at + len], "{at} {len} of {window} {memory}");
                }
            }
        }
        soon(clients[0].flush()).await.unwrap();
        assert!(rig.disk.holds(0, &model));
        assert_eq!(rig.server.stats().failed, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_is_told_of_a_loss() {
    for window in [0, WINDOW] {
        let rig = Rig::start(window, 0, false).await;
        rig.disk.switch_cache(Cache::Volatile);
        let clients = [rig.client().await, rig.client().await];
        soon(clients[0].flush()).await.unwrap();
        soon(clients[0].write_at(0, vec![bytes(1, 4096)])).await.unwrap();
        // Wait until the write has reached the unit's cache. Then the unit loses it.
        soon(async {
            while rig.disk.unflushed_blocks() == 0 {
                yield_now().await
            }
        })
        .await;
        rig.disk.lose_power();
        for client in &clients {
            let told = soon(client.flush()).await.is_err();
            assert!(told, "with a window of {window}");
            soon(client.flush()).await.unwrap();
        }
    }
}

/// Cached data are dropped when another initiator has reset the unit, or the target reports a change (SAM-5
/// §5.14).
#[tokio::test(flavor = "multi_thread")]
async fn what_the_unit_tells_of_itself_ends_what_was_kept_of_it() {
    let tells: [fn(&mut iscsi_testkit::target::Target); 4] = [
        |target| target.reset_by_another(0),
        |target| report_change(target, Sense::CAPACITY_CHANGED),
        |target| report_change(target, Sense::INQUIRY_CHANGED),
        |target| report_change(target, Sense::LUNS_CHANGED),
    ];
    for (window, tells) in [0, WINDOW].into_iter().zip([tells; 2]) {
        for tells in tells {
            let rig = Rig::start(window, MEMORY, false).await;
            let client = rig.client().await;
            assert_eq!(soon(client.read_at(0, 4096)).await.unwrap(), vec![0; 4096]);
            let extents = soon(client.extents(0, 4096)).await.unwrap();
            rig.disk.write(0, &bytes(5, 4096));
            assert_eq!(soon(client.read_at(0, 4096)).await.unwrap(), vec![0; 4096], "it is kept");
            assert_eq!(soon(client.extents(0, 4096)).await.unwrap(), extents);
            rig.target.with(tells);
            // The next command receives the report.
            soon(client.read_at(1 << 20, 4096)).await.unwrap();
            assert_eq!(soon(client.read_at(0, 4096)).await.unwrap(), bytes(5, 4096));
            let extents = soon(client.extents(0, 4096)).await.unwrap();
            assert_eq!(extents[0].state, ExtentState::Data);
        }
    }
}

/// All reads are served from memory, so no read of the client lets the unit report a reset. The cache must
/// still notice it.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_all_in_memory_sees_all_the_same_what_a_reset_has_changed() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let client = rig.client().await;
    assert_eq!(soon(client.read_at(0, 4096)).await.unwrap(), vec![0; 4096]);
    rig.disk.write(0, &bytes(5, 4096));
    rig.target.with(|target| target.reset_by_another(0));
    soon(async {
        while client.read_at(0, 4096).await.unwrap() != bytes(5, 4096) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Makes the target report a change. The unit itself does not change.
fn report_change(target: &mut iscsi_testkit::target::Target, sense: Sense) {
    let unit = target.config_mut().units[&0].clone();
    target.replace_unit_with_attention(0, unit, sense);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_unit_that_another_one_has_taken_the_place_of() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let client = rig.client().await;
    soon(client.read_at(0, 4096)).await.unwrap();
    let other =
        Unit::new(RamDisk::new(512, LEN as u64 / 512)).with_identity("0002", 0x3000_0000_0000_0002);
    rig.target.with(|target| target.replace_unit(0, other));
    soon(client.read_at(1 << 20, 4096)).await.unwrap_err();
    soon(client.read_at(0, 4096)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_the_end_or_read_only_is_refused() {
    let rig = Rig::start(WINDOW, MEMORY, true).await;
    let client = rig.client().await;
    assert!(client.limits().is_read_only);
    soon(client.write_at(0, vec![bytes(1, 512)])).await.unwrap_err();
    soon(client.read_into(LEN as u64 - 512, BytesMut::zeroed(1024))).await.unwrap_err();
    let data = soon(client.read_at(0, 512)).await.unwrap();
    assert_eq!(data, vec![0; 512]);
    let uri = format!("nbd+unix:///other?socket={}", rig.socket.display()).parse().unwrap();
    let error = soon(NbdDevice::open(&uri)).await.unwrap_err();
    assert!(error.to_string().contains("export"), "{error}");
    assert!(rig.disk.holds(0, &vec![0; LEN]));
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_told_and_kept() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let client = rig.client().await;
    // By default the unit returns one extent per response, so the client would have to ask again.
    rig.target.with(|target| {
        let units = target.config_mut().units.values_mut();
        units.for_each(|unit| unit.behavior.lba_status_runs = Some(usize::MAX));
    });
    let whole = soon(client.extents(0, LEN as u64)).await.unwrap();
    assert_eq!((whole.len(), whole[0].state), (1, ExtentState::Deallocated));
    soon(client.write_at(1 << 20, vec![bytes(3, 1 << 20)])).await.unwrap();
    soon(client.flush()).await.unwrap();
    let states: Vec<_> =
        soon(client.extents(0, LEN as u64)).await.unwrap().iter().map(|it| it.state).collect();
    assert_eq!(states, [ExtentState::Deallocated, ExtentState::Data, ExtentState::Deallocated]);
    soon(client.discard(0, LEN as u64)).await.unwrap();
    soon(client.write_zeroes(0, LEN as u64)).await.unwrap();
    soon(client.flush()).await.unwrap();
    assert_eq!(rig.disk.mapped_blocks(), 0);
    soon(client.write_allocated_zeroes(0, 4096)).await.unwrap();
    soon(client.flush()).await.unwrap();
    assert_eq!(rig.disk.mapped_blocks(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_brings_everything_to_the_unit() {
    let rig = Rig::start(WINDOW, 0, false).await;
    let client = rig.client().await;
    let data = bytes(9, 1 << 20);
    for offset in (0..LEN).step_by(1 << 20) {
        soon(client.write_at(offset as u64, vec![data.clone()])).await.unwrap();
    }
    rig.button.press();
    soon(rig.running).await.unwrap();
    soon(rig.server.flush()).await.unwrap();
    assert!((0..LEN).step_by(1 << 20).all(|offset| rig.disk.holds(offset as u64, &data)));
    assert!(!rig.socket.exists());
    soon(client.read_at(0, 512)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_target_is_told_by_a_flush() {
    let rig = Rig::start(WINDOW, 0, false).await;
    let client = rig.client().await;
    rig.target.with(|target| {
        target
            .config_mut()
            .faults
            .push(iscsi_testkit::fault::Fault::write_error(0..u64::MAX).times(1))
    });
    soon(client.write_at(0, vec![bytes(1, 4096)])).await.unwrap();
    soon(client.flush()).await.unwrap_err();
    soon(client.write_at(0, vec![bytes(2, 4096)])).await.unwrap();
    soon(client.flush()).await.unwrap();
    assert!(rig.disk.holds(0, &bytes(2, 4096)));
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_silence_of_some_harm_no_others() {
    let rig = Rig::start(WINDOW, MEMORY, false).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(rig.raw().await);
    }
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 200],
        &[0; 4096],
        b"\0\0\0\x03IHAVEOPT\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = rig.raw().await;
        // The server may close the connection before all bytes are sent, so an error is ignored.
        drop(stream.write_all(garbage).await);
        drop(stream.shutdown().await);
        let mut answer = Vec::new();
        drop(soon(stream.read_to_end(&mut answer)).await);
    }
    let client = rig.client().await;
    soon(client.write_at(0, vec![bytes(4, 4096)])).await.unwrap();
    assert_eq!(soon(client.read_at(0, 4096)).await.unwrap(), bytes(4, 4096));
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_replies_holds_up_no_other() {
    let rig = Rig::start(0, 0, false).await;
    let mut greedy = Raw::shake_hands(rig.raw().await).await;
    // Requests 400 MiB of replies, and reads none of them. The server must stop reading requests.
    for _ in 0..100 {
        let sent = greedy.send(0, kind::READ, 0, 4 << 20);
        if timeout(Duration::from_millis(200), sent).await.is_err() {
            break;
        }
    }
    let client = rig.client().await;
    for offset in (0..LEN).step_by(1 << 20) {
        soon(client.read_at(offset as u64, 1 << 20)).await.unwrap();
    }
}

#[tokio::test]
async fn a_socket_is_for_one_server() {
    let rig = Rig::start(0, 0, false).await;
    let address = Address::Unix(rig.socket.clone());
    let error = Listener::bind(&address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    rig.button.press();
    soon(rig.running).await.unwrap();
    drop(Listener::bind(&address).await.unwrap());
}

/// Without a cache, a client that requests one extent causes one command for one extent. With a cache, one
/// command returns many extents, which serve the next requests.
#[tokio::test(flavor = "multi_thread")]
async fn one_extent_is_asked_for_by_itself() {
    for memory in [0, MEMORY] {
        let rig = Rig::start(0, memory, false).await;
        rig.target.with(|target| {
            let units = target.config_mut().units.values_mut();
            units.for_each(|unit| unit.behavior.lba_status_runs = Some(usize::MAX));
        });
        for at in (0..64).step_by(2) {
            rig.disk.write(at * 4096, &[7; 4096]);
        }
        let client = rig.client().await;
        for at in 0..64_u64 {
            let state = if at % 2 == 0 { ExtentState::Data } else { ExtentState::Deallocated };
            let first = soon(client.first_extent(at * 4096, 1 << 20)).await.unwrap().unwrap();
            assert_eq!((first.offset, first.state), (at * 4096, state));
            assert!(first.len == 4096 || at == 63);
        }
        let rooms = rig.target.with(|target| {
            let asked = target.commands().iter().filter(|asked| asked.cdb[..2] == [0x9e, 0x12]);
            asked.map(|asked| asked.cdb[10..14].to_vec()).collect::<Vec<_>>()
        });
        let (questions, room) = if memory == 0 { (64, 24) } else { (1, 32 * 1024 - 8_u32) };
        assert_eq!(rooms, vec![room.to_be_bytes().to_vec(); questions]);
    }
}
