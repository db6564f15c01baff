//! A program from its first word to its exit status.

use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;

use iscsi_pdu::keys::printable;
use tokio::runtime::{Builder, Runtime};

use crate::log::{self, Log, Show, Usually};
use crate::stop::Stop;

/// The exit status of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// The error of a program. It is printed on standard error, behind the name of the program.
pub trait ProgramError: Display {
    /// The exit status that stands for it.
    fn exit_status(&self) -> u8;

    /// The system gives no threads or no signals.
    fn no_start(cause: io::Error) -> Self;
}

/// A program: its arguments, its messages and its log.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, before whatever it says.
    pub name: &'static str,
    /// The message at the first signal to stop.
    pub stopping: &'static str,
    /// The log where `RUST_LOG` says nothing.
    pub usually: Usually,
    /// Puts lines on standard error.
    pub say: Show,
}

impl Program {
    /// Does the work of the program, on threads of its own, which a signal may tell to stop. The work gives
    /// the exit status.
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
                // Text of a peer may be in it.
                (self.say)(&format!("{}: {}\n", self.name, printable(&text)));
                ExitCode::from(status)
            }
        }
    }

    fn start(self) -> io::Result<Started> {
        let Self { name, stopping, usually, say } = self;
        // Before anything is said: whoever does not read it must not keep the program.
        let stop = Stop::at_signal(move || say(&format!("{name}: {stopping}\n")), INTERRUPTED)?;
        let log = log::start(usually, say);
        Ok(Started { stop, log, runtime: Builder::new_multi_thread().enable_all().build()? })
    }
}

/// A program that may begin its work.
struct Started {
    stop: Stop,
    log: Log,
    runtime: Runtime,
}

impl Started {
    /// Waits for the end of the work. It is boxed, and not generic, so that a runtime is compiled here and not in every
    /// program.
    fn finish(
        self,
        work: Pin<Box<dyn Future<Output = Result<u8, Failed>> + '_>>,
    ) -> Result<u8, Failed> {
        let result = self.runtime.block_on(work);
        // A name may take long to be found, a reader to read, or standard input to come; the process need not
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
