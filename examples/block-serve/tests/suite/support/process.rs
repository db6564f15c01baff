//! The program as a process before a target, and clients of it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use iscsi_copy::NbdDevice;
use iscsi_examples_common::named_units;
use iscsi_examples_testkit as testkit;
use iscsi_testkit::config::TargetConfig;
use serde_json::Value;

pub(crate) use iscsi_examples_testkit::{Rig, TARGET, signal, stderr};

use super::{Raw, connect, soon};

/// Starts a target with a unit of 4 MiB.
pub(crate) async fn target() -> Rig {
    target_with(|_| {}).await
}

pub(crate) async fn target_with(change: impl FnOnce(&mut TargetConfig)) -> Rig {
    Rig::start_with(512, 4 << 20, change).await
}

/// Returns a path that no other test uses.
pub(crate) fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("block-serve-{name}-{}", std::process::id()))
}

pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = testkit::command(env!("CARGO_BIN_EXE_block-serve"), arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a server, and waits until it is ready. Returns the process, the rest of its standard output, and the
/// first JSON object.
pub(crate) fn started(
    url: &str,
    socket: &Path,
    further: &[&str],
) -> (Child, BufReader<ChildStdout>, Value) {
    let listen = format!("unix:{}", socket.display());
    let arguments = [&[url, "--listen", &listen, "--json"], further].concat();
    ready(&mut program(&arguments))
}

pub(crate) fn ready(command: &mut Command) -> (Child, BufReader<ChildStdout>, Value) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("{line}{said}")
    });
    assert_eq!(named_units::missing(&ready), [""; 0], "{ready}");
    (child, lines, ready)
}

pub(crate) async fn client(socket: &Path) -> NbdDevice {
    let uri = format!("nbd+unix:///?socket={}&patience=0", socket.display());
    NbdDevice::open(&uri.parse().unwrap()).await.unwrap()
}

/// Returns the last JSON object and the exit status.
pub(crate) fn ended(mut child: Child, mut lines: BufReader<ChildStdout>) -> (Value, Option<i32>) {
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap().code();
    (serde_json::from_str(&rest).unwrap(), status)
}

pub(crate) async fn raw(socket: &Path) -> Raw {
    soon(Raw::shake_hands(connect(socket).await)).await
}
