//! `lab exec`: runs one program between two hosts.

use std::time::Duration;

use crate::args::ExecArgs;
use crate::environment::{Ending, Environment, scripts};
use crate::error::Error;
use crate::job::{ExecJob, Job};
use crate::size::Size;
use crate::target::Unit;

/// Default time limit of a program.
const HOUR: Duration = Duration::from_secs(3600);
/// Memory that the kernel and a program need besides the units.
const BASE: u64 = 1 << 30;
/// The default unit.
const UNIT: &str = "lun=0:64M";

/// Runs a program and returns its exit status.
///
/// # Errors
/// [`Error`] if the program cannot be started.
pub async fn exec(args: &ExecArgs) -> Result<u8, Error> {
    let environment = Environment::find(args.lab.environment)?;
    let job = job(args)?;
    let limit = args.lab.limit.map_or(HOUR, Duration::from_secs);
    let units = units(&job.target)?;
    let held: u64 = units.iter().filter(|unit| unit.in_memory).map(|unit| unit.size.0).sum();
    let memory = args.lab.memory.unwrap_or(Size(BASE + held));
    Ok(report_ending(environment.carry_out(&Job::Exec(job), memory, limit).await?, limit))
}

fn job(args: &ExecArgs) -> Result<ExecJob, Error> {
    let of_link =
        |word: &&String| ["rtt=", "rate=", "loss="].iter().any(|key| word.starts_with(key));
    if let Some(word) = args.words.iter().find(|word| !word.contains('=')) {
        return Err(Error::Usage(format!(
            "`{word}` is not KEY=VALUE; the program stands behind `--`"
        )));
    }
    let mut target: Vec<_> = args.words.iter().filter(|word| !of_link(word)).cloned().collect();
    if !target.iter().any(|word| word.starts_with("lun=")) {
        target.insert(0, UNIT.to_owned());
    }
    Ok(ExecJob {
        link: args.words.iter().filter(of_link).cloned().collect(),
        lun: units(&target)?.first().map_or(0, |unit| unit.number),
        target,
        program: args.program.clone(),
        scripts: scripts(),
    })
}

fn units(words: &[String]) -> Result<Vec<Unit>, Error> {
    let luns = words.iter().filter_map(|word| word.strip_prefix("lun="));
    luns.map(|lun| lun.parse().map_err(Error::Usage)).collect()
}

/// Reports a lab that was ended by its time limit or a signal, and returns the exit status.
pub(crate) fn report_ending(ending: Ending, limit: Duration) -> u8 {
    match ending {
        Ending::Status(status) => status,
        Ending::Limit => {
            eprintln!("lab: the limit of {} s ended the run", limit.as_secs());
            124
        }
        Ending::Interrupt(signal) => {
            eprintln!("lab: interrupted by {signal}");
            128 + u8::try_from(signal as i32).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn job_of(words: &[&str]) -> Result<ExecJob, Error> {
        let line = ["lab", "exec"].iter().chain(words).chain(&["--", "true"]);
        let Command::Exec(args) = Cli::parse_from(line).command else { panic!("another command") };
        job(&args)
    }

    #[test]
    fn words_go_to_the_link_or_to_the_target() {
        let job = job_of(&["rtt=100", "lun=7:1G", "loss=0.1", "InitialR2T=No"]).unwrap();
        assert_eq!(job.link, ["rtt=100", "loss=0.1"]);
        assert_eq!(job.target, ["lun=7:1G", "InitialR2T=No"]);
        assert_eq!(job.lun, 7);
    }

    #[test]
    fn there_is_a_unit_without_a_word() {
        assert_eq!(job_of(&["depth=8"]).unwrap().target, [UNIT, "depth=8"]);
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        assert!(matches!(job_of(&["100mbit"]), Err(Error::Usage(_))));
        assert!(matches!(job_of(&["lun=0:huge"]), Err(Error::Usage(_))));
    }
}
