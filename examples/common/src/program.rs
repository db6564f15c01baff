//! The start, the work and the exit status of a program.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;

use iscsi_pdu::keys::printable;
use tokio::runtime::{Builder, Runtime};

use crate::log::{self, Log, Show, Usually};
use crate::stop::Stop;

/// Exit status of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// An error of a program. It is printed on standard error, after the name of the program.
pub trait ProgramError: Display {
    /// Returns the exit status for the error.
    fn exit_status(&self) -> u8;

    /// Returns the error for a system that provides no threads or no signals.
    fn no_start(cause: io::Error) -> Self;
}

/// A program: its arguments, its messages and its log.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program, before each of its messages.
    pub name: &'static str,
    /// The message at the first signal that asks to stop.
    pub stopping: &'static str,
    /// What the log has if `RUST_LOG` is not set.
    pub usually: Usually,
    /// Puts lines on standard error.
    pub show: Show,
}

impl Program {
    /// Runs the work of the program on a separate runtime. A signal may ask it to stop. The work returns the
    /// exit status.
    #[must_use]
    pub fn run<E: ProgramError, W: Future<Output = Result<u8, E>>>(
        self,
        work: impl FnOnce(Stop) -> W,
    ) -> ExitCode {
        let ended = match self.start() {
            Ok(started) => {
                let work = work(started.stop.clone());
                started.finish(Box::pin(async { work.await.map_err(Failed::new) }))
            }
            Err(cause) => Err(Failed::new(E::no_start(cause))),
        };
        match ended {
            Ok(status) => ExitCode::from(status),
            Err(Failed { text, status }) => {
                // It may contain text of a peer.
                (self.show)(&format!("{}: {}\n", self.name, printable(&text)));
                ExitCode::from(status)
            }
        }
    }

    fn start(self) -> io::Result<Started> {
        let Self { name, stopping, usually, show } = self;
        // Comes first: a message that no process reads must not keep the program from ending.
        let stop = Stop::at_signal(move || show(&format!("{name}: {stopping}\n")), INTERRUPTED)?;
        let log = log::start(usually, show);
        Ok(Started { stop, log, runtime: Builder::new_multi_thread().enable_all().build()? })
    }
}

/// A program that is ready for its work.
struct Started {
    stop: Stop,
    log: Log,
    runtime: Runtime,
}

impl Started {
    /// Waits for the end of the work. The work is boxed, and this function not generic, so that the runtime
    /// is compiled here and not in every program.
    fn finish(
        self,
        work: Pin<Box<dyn Future<Output = Result<u8, Failed>> + '_>>,
    ) -> Result<u8, Failed> {
        let result = self.runtime.block_on(work);
        // A name lookup, a slow reader or standard input may still block a thread; the process does not
        // wait for them.
        self.runtime.shutdown_background();
        self.log.flush();
        result
    }
}

/// The error of a program, as text and exit status.
struct Failed {
    text: String,
    status: u8,
}

impl Failed {
    fn new(error: impl ProgramError) -> Self {
        Self { text: error.to_string(), status: error.exit_status() }
    }
}
