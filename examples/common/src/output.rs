//! Standard output and standard error, which somebody else reads, or does not.

use std::io::{self, ErrorKind, Write};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

use crate::stop::Stop;

/// Writes a text to standard output. A reader that takes nothing is not waited for once the work
/// shall stop.
///
/// # Errors
/// What the system says, or [`ErrorKind::Interrupted`] when the text was not taken before the end.
pub async fn print(text: String, stop: &Stop) -> io::Result<()> {
    let write = spawn_blocking(move || {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()
    });
    match stop.hurry(write).await {
        Some(result) => result?,
        None => Err(io::Error::new(ErrorKind::Interrupted, "interrupted while nobody read it")),
    }
}

/// Puts whole lines on standard error. That nobody is there who hears them is no reason to end.
/// Whoever waits until they are taken, the sessions go on; see [`aside`].
pub fn say(lines: &str) {
    aside(|| drop(io::stderr().lock().write_all(lines.as_bytes())));
}

/// Does what may block. A worker of a runtime leaves its other tasks to another thread before, so
/// that a session is driven on meanwhile.
///
/// # Panics
/// In a `LocalSet` of a runtime with several workers, whose tasks nobody else can take.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}
