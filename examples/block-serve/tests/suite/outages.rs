//! Tests of the program while its target is gone: when requests fail, what is served afterwards, and what the log says.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::process::{TARGET, ended, raw, signal, socket, started};
use crate::support::{FUA, errno, soon};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use tokio::time::sleep;

/// Starts a target at the address of a stopped one. Retries while the address is in use: a child that another
/// test has forked keeps the old socket open until its exec.
async fn start_again(address: SocketAddr, target: impl Fn() -> Target) -> Server {
    let starting = async {
        loop {
            match Server::start_at(address, target(), Duration::ZERO).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    sleep(Duration::from_millis(1)).await;
                }
                server => return server.unwrap(),
            }
        }
    };
    soon(starting).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_gone_for_too_long_is_served_again_when_it_is_back() {
    let disk = RamDisk::new(512, 8192);
    let target = || {
        let mut config = TargetConfig::new(TARGET, disk.clone());
        config.keys.default_time2wait = 0;
        Target::new(config)
    };
    // The address is used by no other process, so that its port is still free when the target starts again.
    let server = Server::start_at(("127.0.0.77", 0), target(), Duration::ZERO).await.unwrap();
    let address = server.address();
    let url = format!("iscsi://{address}/{TARGET}/0");
    let socket = socket("outage");
    let (mut child, lines, _) =
        started(&url, &socket, &["--retry-timeout", "2", "--write-behind", "0"]);
    let mut client = raw(&socket).await;
    assert_eq!(client.write(0, 0, &[1; 4096]).await, 0);
    assert_eq!(client.flush().await, 0);
    assert_eq!(client.write(0, 4096, &[2; 4096]).await, 0);
    server.stop().await;
    // The request waits until the time limit, and then fails.
    assert_eq!(client.read(1 << 20, 4096).await, Err(errno::IO));
    assert_eq!(client.read(1 << 20, 4096).await, Err(errno::IO));
    let mut other = raw(&socket).await;
    assert_eq!(other.flush().await, errno::IO, "clients can come meanwhile");

    let _server = start_again(address, target).await;
    soon(async {
        while client.read(1 << 20, 4096).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for client in [&mut client, &mut other] {
        assert_eq!(client.flush().await, errno::IO, "what was not flushed may be lost");
        assert_eq!(client.flush().await, 0);
    }
    assert_eq!(client.read(0, 4096).await, Ok(vec![1; 4096]));
    assert_eq!(client.write(FUA, 0, &[3; 4096]).await, 0);
    assert!(disk.holds(0, &[3; 4096]));
    let mut said = child.stderr.take().unwrap();
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    let mut told = String::new();
    said.read_to_string(&mut told).unwrap();
    for part in ["requests fail until a session is back", "a session is back"] {
        assert!(told.lines().any(|line| line.contains(part)), "{part}: {told}");
    }
}

/// While the target is not reachable, every answered write fails. The log reports the beginning and the end of
/// the outage, not each write.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_once_and_not_for_each_write() {
    const WRITES: u64 = 30;
    let target = || Target::new(TargetConfig::new(TARGET, RamDisk::new(512, 8192)));
    let server = Server::start_at(("127.0.0.79", 0), target(), Duration::ZERO).await.unwrap();
    let address = server.address();
    let url = format!("iscsi://{address}/{TARGET}/0");
    let socket = socket("lines");
    let (mut child, lines, _) = started(&url, &socket, &["--patience", "1"]);
    let mut client = raw(&socket).await;
    server.stop().await;
    for at in 0..WRITES {
        assert_eq!(client.write(0, at * 4096, &[1; 4096]).await, 0, "it is answered ahead");
    }
    assert_eq!(client.flush().await, errno::IO);
    let _server = start_again(address, target).await;
    soon(async {
        while client.read(1 << 20, 4096).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(client.write(0, 0, &[2; 4096]).await, 0);
    while client.flush().await != 0 {}
    let mut said = child.stderr.take().unwrap();
    signal(&child, "-TERM");
    assert_eq!(ended(child, lines).1, Some(0));
    let mut told = String::new();
    said.read_to_string(&mut told).unwrap();
    for (part, count) in [
        ("requests fail until a session is back", 1),
        ("a session is back", 2),
        ("a write that was answered has failed", 1),
        (&format!("again; {WRITES} of them that were answered before"), 1),
    ] {
        let lines = told.lines().filter(|line| line.contains(part)).count();
        assert_eq!(lines, count, "{part}: {told}");
    }
}
