//! The command line program.

use std::io::{self, Write};
use std::process::ExitCode;

use block_copy::progress::ProgressMode;
use block_copy::stop::StopButton;
use block_copy::{Args, Error, Report, Stop, run};
use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("block-copy: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(args: &Args) -> Result<(), Error> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    let result = runtime.block_on(async {
        let (button, stop) = Stop::new();
        // From here on a signal does not end the process by itself.
        let interrupt = signal(SignalKind::interrupt()).map_err(Error::Runtime)?;
        let terminate = signal(SignalKind::terminate()).map_err(Error::Runtime)?;
        tokio::spawn(press_on_signal(button, interrupt, terminate));
        run(args, &stop).await
    });
    // A read of standard input may be stuck for ever; the process need not wait for it.
    runtime.shutdown_background();
    tell(args, &result?)
}

/// Stops the copy at the first signal, and the process at the second.
async fn press_on_signal(button: StopButton, mut interrupt: Signal, mut terminate: Signal) {
    for asked_before in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
        if asked_before {
            std::process::exit(Error::Interrupted.status().into());
        }
        eprintln!("block-copy: stopping when what is under way has ended; once more stops at once");
        button.press();
    }
}

fn tell(args: &Args, report: &Report) -> Result<(), Error> {
    if args.progress != ProgressMode::None {
        eprintln!("{report}");
    }
    if args.json {
        let mut output = io::stdout().lock();
        writeln!(output, "{}", report.to_json())
            .and_then(|()| output.flush())
            .map_err(|cause| Error::Output { cause })?;
    }
    Ok(())
}
