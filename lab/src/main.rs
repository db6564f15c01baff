//! The command line of the lab.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use iscsi_lab::args::{Cli, Command, DrawArgs};
use iscsi_lab::draw::{Page, draw};
use iscsi_lab::error::Error;
use iscsi_lab::scenario::Scenario;
use iscsi_lab::{agent, exec, run};
use tokio::runtime::Builder;

fn main() -> ExitCode {
    match start(Cli::parse().command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn start(command: Command) -> Result<u8, Error> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(&args).await,
            Command::Exec(args) => exec::exec(&args).await,
            Command::Draw(args) => draw_all(&args),
            Command::Agent { job } => agent::carry_out(&job).await,
        }
    })
}

fn draw_all(args: &DrawArgs) -> Result<u8, Error> {
    let goals = match &args.goals {
        Some(path) => Scenario::read(path)?.goals,
        None => Vec::new(),
    };
    let page = |path: &PathBuf| Ok(Page { goals: goals.clone(), ..Page::read(path)? });
    let pages: Result<Vec<_>, Error> = args.results.iter().map(page).collect();
    for path in draw(&pages?, &args.out)? {
        eprintln!("{}", path.display());
    }
    Ok(0)
}
