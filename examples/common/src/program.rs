//! Starts a program, runs its work, and returns its exit status.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;

use iscsi_pdu::keys::printable;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use crate::credentials::CredentialsError;
use crate::exit_status::{self, INTERRUPTED, USAGE};
use crate::failure::{Kind, file_advice};
use crate::log::{self, Log, Show, Usually};
use crate::stop::Stop;

/// Errors that each program has, whatever its work is. Each message is one sentence.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The arguments contradict each other, or do not suit the unit.
    #[error("{0}")]
    Usage(Cow<'static, str>),
    /// The options for passwords do not suit the URLs, or a password file cannot be read.
    #[error(transparent)]
    Password(#[from] CredentialsError),
    /// A signal stopped the program.
    #[error("interrupted")]
    Interrupted,
    /// The result cannot be printed.
    #[error("standard output: {cause}{}", file_advice(cause.kind()))]
    Output {
        /// The reason.
        cause: io::Error,
    },
    /// The operating system provides no thread or no signal handler.
    #[error("the system does not let the program start: {0}")]
    Runtime(io::Error),
}

impl ProgramError {
    /// Creates the error for a wrong command line.
    #[must_use]
    pub fn usage(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Usage(text.into())
    }

    /// Returns the exit status for the error.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Password(cause) => cause.status(),
            Self::Interrupted => INTERRUPTED,
            Self::Output { cause } | Self::Runtime(cause) => exit_status::of_system(cause),
        }
    }

    /// Returns the kind of the failure, by the side at fault.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Usage(_) | Self::Password(_) => Kind::Caller,
            Self::Interrupted => Kind::Interrupted,
            Self::Output { .. } | Self::Runtime(_) => Kind::System,
        }
    }
}

/// The exit status of a program that ends with an error. The error is printed on standard error, after the name
/// of the program.
pub trait ExitStatus: Display + From<ProgramError> {
    /// Returns the exit status for the error.
    fn exit_status(&self) -> u8;
}

/// A program: its arguments, its messages and its log.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program, before each of its messages.
    pub name: &'static str,
    /// The message at the first signal that asks to stop.
    pub stopping: &'static str,
    /// The log entries that are shown if `RUST_LOG` is not set.
    pub usually: Usually,
    /// Function that writes lines to standard error.
    pub show: Show,
}

impl Program {
    /// Runs the work of the program on a new runtime, and returns the exit status that the work returns. A
    /// signal requests the work to stop.
    #[must_use]
    pub fn run<E: ExitStatus, W: Future<Output = Result<u8, E>>>(
        self,
        work: impl FnOnce(Stop) -> W,
    ) -> ExitCode {
        let ended = match self.start() {
            Ok(started) => {
                let work = work(started.stop.clone());
                started.finish(Box::pin(async { work.await.map_err(Failed::new) }))
            }
            Err(cause) => Err(Failed::new(E::from(ProgramError::Runtime(cause)))),
        };
        match ended {
            Ok(status) => ExitCode::from(status),
            Err(Failed { text, status }) => {
                // The error may contain text of a target or a server.
                (self.show)(&format!("{}: {}\n", self.name, printable(&text)));
                ExitCode::from(status)
            }
        }
    }

    fn start(self) -> io::Result<Started> {
        let Self { name, stopping, usually, show } = self;
        // Signals are handled first: even if no process reads the log, the program can be ended.
        let stop = Stop::at_signal(move || show(&format!("{name}: {stopping}\n")), INTERRUPTED)?;
        let log = log::start(usually, show);
        Ok(Started { stop, log, runtime: Builder::new_multi_thread().enable_all().build()? })
    }
}

/// A started program that can run its work.
struct Started {
    stop: Stop,
    log: Log,
    runtime: Runtime,
}

impl Started {
    /// Runs the work until it ends. The work is boxed, and this function is not generic, so that the runtime is
    /// compiled here and not in every program.
    fn finish(
        self,
        work: Pin<Box<dyn Future<Output = Result<u8, Failed>> + '_>>,
    ) -> Result<u8, Failed> {
        let result = self.runtime.block_on(work);
        // A name lookup, a slow reader or a read of standard input may still block a thread. The process does
        // not wait for such threads.
        self.runtime.shutdown_background();
        self.log.flush();
        result
    }
}

/// The error of a program: its text and its exit status.
struct Failed {
    text: String,
    status: u8,
}

impl Failed {
    fn new(error: impl ExitStatus) -> Self {
        Self { text: error.to_string(), status: error.exit_status() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_during_a_wait_for_a_reader_of_standard_output_is_an_interrupt() {
        let error = |kind: io::ErrorKind| ProgramError::Output { cause: kind.into() };
        assert_eq!(error(io::ErrorKind::Interrupted).status(), 130);
        assert_eq!(error(io::ErrorKind::BrokenPipe).status(), 1);
        assert_eq!(ProgramError::Interrupted.status(), 130);
        assert_eq!(ProgramError::usage("leave one of them out").status(), 2);
    }
}
