//! Tests of the end of a server, and of the start of the next one at the same address.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::support::{bytes, soon};
use block_serve::{Address, Args, Error, Listener, Ready, Stop, StopButton};
use clap::Parser;
use iscsi_copy::{Device, NbdDevice};
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::fault::Fault;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

const TARGET: &str = "iqn.2026-01.org.example:disk";

/// A complete block-serve server in this process, with its target.
struct Serving {
    target: Server,
    disk: RamDisk,
    socket: PathBuf,
    button: StopButton,
    running: JoinHandle<Result<Value, Error>>,
}

impl Serving {
    async fn start(name: &str, further: &[&str]) -> Self {
        let disk = RamDisk::new(512, 8192);
        let target = Target::new(TargetConfig::new(TARGET, disk.clone()));
        let target = Server::start(target).await.unwrap();
        let url = format!("iscsi://{}/{TARGET}/0", target.address());
        let name = format!("block-serve-handover-{name}-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listen = format!("unix:{}", socket.display());
        let words = [&["block-serve", &url, "--listen", &listen], further].concat();
        let args = Args::parse_from(words);
        let (button, stop) = Stop::new();
        let ready = soon(Ready::prepare(&args, &stop)).await.unwrap();
        let running = tokio::spawn(async move { ready.run(&stop).await });
        Self { target, disk, socket, button, running }
    }

    /// Connects a client that writes, receives the reply and disconnects. The unit does not respond meanwhile.
    async fn write_and_leave(&self, data: &[u8]) {
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        let client = soon(NbdDevice::open(&uri.parse().unwrap())).await.unwrap();
        self.target.with(Target::hold);
        soon(client.write_at(0, vec![data.to_vec().into()])).await.unwrap();
    }

    /// Waits until the server disconnects new clients immediately.
    async fn closed(&self) {
        soon(async {
            while let Ok(mut stream) = UnixStream::connect(&self.socket).await {
                if stream.read(&mut [0]).await.unwrap_or_default() == 0 {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    async fn next(&self) -> std::io::Result<Listener> {
        Listener::bind(&Address::Unix(self.socket.clone())).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_comes_when_all_that_was_answered_is_on_the_unit() {
    for further in [&[][..], &["--until-last"]] {
        let serving = Serving::start("order", further).await;
        serving.write_and_leave(&bytes(1, 4096)).await;
        if further.is_empty() {
            serving.button.press();
        }
        serving.closed().await;
        let early = serving.next().await.err().map(|error| error.kind());
        assert_eq!(early, Some(ErrorKind::AddrInUse), "{further:?}: its write is not answered");
        serving.target.with(Target::release);
        let Serving { running, disk, socket, .. } = serving;
        let end = soon(running).await.unwrap().unwrap();
        assert_eq!(end["bytes_written"], 4096);
        assert!(disk.holds(0, &bytes(1, 4096)) && !socket.exists());
        drop(Listener::bind(&Address::Unix(socket)).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_server_comes_after_a_loss_too() {
    let serving = Serving::start("loss", &[]).await;
    let fault = Fault::write_error(0..u64::MAX).times(1);
    serving.target.with(|target| target.config_mut().faults.push(fault));
    serving.write_and_leave(&bytes(1, 4096)).await;
    serving.button.press();
    serving.closed().await;
    serving.next().await.unwrap_err();
    serving.target.with(Target::release);
    let Serving { running, socket, .. } = serving;
    let end = soon(running).await.unwrap();
    assert!(matches!(end, Err(Error::Flush(_))), "{end:?}");
    drop(Listener::bind(&Address::Unix(socket)).await.unwrap());
}
