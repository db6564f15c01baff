//! Runs a target on loopback and the program, and creates temporary files.

use std::fs;
use std::io::{ErrorKind, PipeReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iscsi_examples_common::named_units;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disk";

/// A running target with one unit.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) disk: RamDisk,
}

impl Rig {
    /// Starts a target with a unit of `bytes` bytes, a multiple of `block_size`.
    pub(crate) async fn start(block_size: u32, bytes: u64) -> Self {
        Self::start_with(block_size, bytes, |_| {}).await
    }

    pub(crate) async fn start_with(
        block_size: u32,
        bytes: u64,
        change: impl FnOnce(&mut TargetConfig),
    ) -> Self {
        let disk = RamDisk::new(block_size, bytes / u64::from(block_size));
        assert_eq!(disk.capacity(), bytes);
        let mut config = target(&disk);
        change(&mut config);
        Self { server: Server::start(Target::new(config)).await.unwrap(), disk }
    }

    /// Starts a distant target: each of its responses is delayed by `delay`.
    pub(crate) async fn start_far(block_size: u32, bytes: u64, delay: Duration) -> Self {
        Self::start_at("127.0.0.1", block_size, bytes, delay).await
    }

    /// Starts a target at an address that no other test uses, so that no test takes its port after the target
    /// has stopped.
    pub(crate) async fn start_apart(block_size: u32, bytes: u64) -> Self {
        Self::start_at("127.0.0.78", block_size, bytes, Duration::ZERO).await
    }

    async fn start_at(address: &str, block_size: u32, bytes: u64, delay: Duration) -> Self {
        let disk = RamDisk::new(block_size, bytes / u64::from(block_size));
        let target = Target::new(target(&disk));
        Self { server: Server::start_at((address, 0), target, delay).await.unwrap(), disk }
    }

    /// Returns the number of bytes in all WRITE (10) and (16) commands that the target has received.
    pub(crate) fn written(&self) -> u64 {
        let blocks = |cdb: &[u8]| match cdb[0] {
            0x2a => u64::from(u16::from_be_bytes([cdb[7], cdb[8]])),
            0x8a => u64::from(u32::from_be_bytes([cdb[10], cdb[11], cdb[12], cdb[13]])),
            _ => 0,
        };
        let blocks: u64 = self
            .server
            .with(|target| target.commands().iter().map(|command| blocks(&command.cdb)).sum());
        blocks * u64::from(self.disk.block_size())
    }

    /// Returns the URL of the unit.
    pub(crate) fn url(&self) -> String {
        self.at(&format!("/{TARGET}/0"))
    }

    /// Returns the URL of a path at the portal.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("iscsi://{}{path}", self.server.address())
    }

    /// Checks that the initiator has not violated the protocol.
    pub(crate) fn assert_clean(&self) {
        let violations = self.server.with(|target| target.violations().to_vec());
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// Returns the configuration of a target with a unit. The serial number of the unit is unique, because other
/// tests may copy at the same time.
fn target(disk: &RamDisk) -> TargetConfig {
    let mut config = TargetConfig::new(TARGET, disk.clone());
    config.units.values_mut().for_each(|unit| unit.serial = serial());
    config
}

/// Returns a serial number that no other unit of a test has.
pub(crate) fn serial() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A temporary folder. Dropping it removes the folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    /// Creates a folder in memory if the machine has a file system there, for small files that must not wait
    /// for a disk.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory) } else { Self::new() }
    }

    fn below(parent: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("block-copy-test-{}-{number}", std::process::id()));
        // A killed test leaves its folder, and a later process may have the same id.
        drop(fs::remove_dir_all(&path));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Creates a file with this content, and returns its path.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Returns bytes that depend on their offset: no two blocks are equal.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..).flat_map(word).take(len).collect()
}

/// Returns the command of the program, without environment variables that affect it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_block-copy"));
    for variable in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{variable}"));
    }
    command.env_remove("RUST_LOG");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program to its end. No file may grow beyond `units` times 512 bytes: a longer write fails, as on a
/// full disk.
pub(crate) fn block_copy_within(units: u64, arguments: &[&str]) -> Output {
    through_shell(&format!("trap '' XFSZ; ulimit -f {units}"), arguments).output().unwrap()
}

/// Returns a shell command that executes `before` and then the program.
pub(crate) fn through_shell(before: &str, arguments: &[&str]) -> Command {
    let program = program(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before}; exec \"$0\" \"$@\"")]);
    shell.arg(program.get_program()).args(program.get_args());
    for (variable, _) in program.get_envs() {
        shell.env_remove(variable);
    }
    shell.stdin(Stdio::null());
    shell
}

/// Runs the program to its end.
pub(crate) fn block_copy(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// Runs the program with `input` on standard input, which is a pipe.
pub(crate) fn block_copy_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = program(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A program that refuses the input closes the pipe, so an error is ignored.
        scope.spawn(move || drop(pipe.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

/// Sends a signal to a program that this test has started.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Time limit of every wait in the tests, much longer than any should take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true. Fails if the program ends before that.
pub(crate) async fn until(child: &mut Child, mut holds: impl FnMut() -> bool) {
    let held = soon(async {
        while !holds() {
            assert!(child.try_wait().unwrap().is_none(), "the program ended early");
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    if held.is_none() {
        child.kill().unwrap();
        panic!("the program does not do what was waited for");
    }
}

/// Waits for work, at most for [`PATIENCE`]. Returns `None` if it takes longer.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(PATIENCE, work).await.ok()
}

/// Listens at the address of a stopped target. Retries while the address is in use: a child that another test
/// has forked keeps the old socket open until its exec.
pub(crate) async fn listen_again(address: SocketAddr) -> TcpListener {
    let listening = async {
        loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    sleep(Duration::from_millis(1)).await;
                }
                listener => return listener.unwrap(),
            }
        }
    };
    soon(listening).await.expect("the place is taken")
}

/// Waits until a program has ended. After 20 seconds, kills it and fails.
pub(crate) async fn ends(child: Child) -> Output {
    let id = child.id().to_string();
    let mut end = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap());
    let Ok(output) = timeout(Duration::from_secs(20), &mut end).await else {
        Command::new("kill").args(["-KILL", &id]).status().unwrap();
        panic!("the program does not obey: {:?}", end.await.unwrap());
    };
    output.unwrap()
}

/// Returns a full pipe. It stays full as long as its read end is open.
pub(crate) async fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = pipe::Sender::from_owned_fd(writer.into()).unwrap();
    writer.writable().await.unwrap();
    while writer.try_write(&[0; 512]).is_ok() {}
    (reader, writer.into_blocking_fd().unwrap())
}

/// Checks that the program has succeeded, and returns its standard error.
pub(crate) fn succeeds(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    said
}

/// Checks that the program failed with this status, and wrote a single line that contains all of `parts`.
pub(crate) fn fails(output: &Output, status: i32, parts: &[&str]) {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(output.stdout.is_empty(), "something was claimed on standard output");
    let message = said.strip_prefix("block-copy: ").unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
    assert!(!message.contains("panicked") && !message.contains("hunter"), "{message}");
}

/// Returns the JSON object on standard output.
pub(crate) fn object(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let object = serde_json::from_str(text).unwrap();
    assert_eq!(named_units::missing(&object), [""; 0], "{object}");
    object
}

/// Runs a copy that must fail with status 1 and a message that contains `parts`.
pub(crate) fn refuses(source: &str, destination: &str, parts: &[&str]) {
    fails(&block_copy(&[source, destination, "--progress", "none"]), 1, parts);
}
