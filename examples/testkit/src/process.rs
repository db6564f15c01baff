//! A program as a process.

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Time limit of each wait in the tests, much longer than any should take.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Returns the command of a program, without the environment variables that affect it, and with an empty
/// standard input. `path` is the `CARGO_BIN_EXE_...` of the program.
pub fn command(path: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    for variable in ["USERNAME", "PASSWORD", "TARGET_USERNAME", "TARGET_PASSWORD"] {
        command.env_remove(format!("LIBISCSI_CHAP_{variable}"));
    }
    command.env_remove("RUST_LOG").env_remove("LISTEN_FDS");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Sends a signal, such as `-INT`, to a program that this test has started.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits for work, at most for [`TIME_LIMIT`]. Returns `None` if it takes longer.
pub async fn within_time_limit<T>(work: impl Future<Output = T>) -> Option<T> {
    timeout(TIME_LIMIT, work).await.ok()
}

/// Waits until `holds` returns true. Fails if the program ends before that.
pub async fn until(child: &mut Child, mut holds: impl FnMut() -> bool) {
    let held = within_time_limit(async {
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

/// Waits until a program has ended. After 20 seconds, kills it and fails.
pub async fn ends(child: Child) -> Output {
    let id = child.id().to_string();
    let mut end = spawn_blocking(|| child.wait_with_output().unwrap());
    let Ok(output) = timeout(Duration::from_secs(20), &mut end).await else {
        Command::new("kill").args(["-KILL", &id]).status().unwrap();
        panic!("the program does not obey: {:?}", end.await.unwrap());
    };
    output.unwrap()
}
