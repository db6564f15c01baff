//! Runs the program, waits for it, and creates temporary files.

use std::fs;
use std::io::{ErrorKind, PipeReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iscsi_examples_testkit as testkit;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::time::sleep;

pub(crate) use iscsi_examples_testkit::{
    Rig, TARGET, TIME_LIMIT, ends, object, signal, unique_serial, until, within_time_limit,
};

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
    testkit::command(env!("CARGO_BIN_EXE_block-copy"), arguments)
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
    within_time_limit(listening).await.expect("the place is taken")
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
    let text = testkit::stderr(output);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    text
}

/// Checks that the program failed with this status, and wrote a single line that contains all of `parts`.
#[track_caller]
pub(crate) fn fails(output: &Output, status: i32, parts: &[&str]) {
    testkit::assert_single_message("block-copy", output, status, parts);
}

/// Runs a copy that must fail with this status and a message that contains `parts`.
#[track_caller]
pub(crate) fn refuses(status: i32, source: &str, destination: &str, parts: &[&str]) {
    fails(&block_copy(&[source, destination, "--progress", "none"]), status, parts);
}
