//! A program from its first word to its exit status.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use tokio::runtime::Builder;

use crate::log::{self, Show, Usually};
use crate::stop::Stop;

/// The exit status of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// What a program fails with. It is told on standard error, behind the name of the program.
pub trait ProgramError: Display {
    /// The exit status that stands for it.
    fn exit_status(&self) -> u8;

    /// The system gives no threads or no signals.
    fn no_start(cause: io::Error) -> Self;
}

/// How a program is started, and what it says by itself.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name, before whatever it says.
    pub name: &'static str,
    /// What it says at the first signal to stop.
    pub stopping: &'static str,
    /// What it logs where `RUST_LOG` says nothing.
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
        match self.start(work) {
            Ok(status) => ExitCode::from(status),
            Err(error) => {
                (self.say)(&format!("{}: {error}\n", self.name));
                ExitCode::from(error.exit_status())
            }
        }
    }

    fn start<E: ProgramError, W: Future<Output = Result<u8, E>>>(
        self,
        work: impl FnOnce(Stop) -> W,
    ) -> Result<u8, E> {
        let Self { name, stopping, usually, say } = self;
        // Before anything is said: whoever does not read it must not keep the program.
        let tell = move || say(&format!("{name}: {stopping}\n"));
        let stop = Stop::at_signal(tell, INTERRUPTED).map_err(E::no_start)?;
        let log = log::start(usually, say);
        let runtime = Builder::new_multi_thread().enable_all().build().map_err(E::no_start)?;
        let result = runtime.block_on(work(stop));
        // A name may take long to be found, a reader to read, or standard input to come; the process need not
        // wait for them.
        runtime.shutdown_background();
        log.flush();
        result
    }
}
