//! The command line program.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use link_doctor::stop::StopButton;
use link_doctor::{Args, Error, Report, Stop, run};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("link-doctor: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let report = runtime.block_on(async {
        let (button, stop) = Stop::new();
        // From here on a signal does not end the process by itself.
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Runtime)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Runtime)?;
        tokio::spawn(press_on_signal(button, interrupt, terminate));
        run(args, &stop).await
    })?;
    tell(args, &report).map_err(Error::Output)?;
    report.end.map_or(Ok(()), Err)
}

/// Stops the examination at the first signal, and the process at the second.
async fn press_on_signal(button: StopButton, mut interrupt: Signal, mut terminate: Signal) {
    for asked_before in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
        if asked_before {
            std::process::exit(Error::Interrupted.status().into());
        }
        eprintln!("link-doctor: ending with what was measured so far; once more ends at once");
        button.press();
    }
}

fn tell(args: &Args, report: &Report) -> io::Result<()> {
    let mut output = io::stdout().lock();
    if args.json {
        writeln!(output, "{}", report.to_json())?;
    } else {
        write!(output, "{report}")?;
    }
    output.flush()
}
