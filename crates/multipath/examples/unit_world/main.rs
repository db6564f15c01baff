//! Runs the machine of a logical unit against a model of targets, and searches for an order of events in which
//! a check fails: a write is lost without a report, is executed over a newer one, or never ends.
//!
//! ```text
//! unit_world exhaustive [NAME ...]       all states of small worlds
//! unit_world random [SEED [EPISODES]]    random episodes of larger worlds
//! unit_world replay SEED                 one episode, step by step
//! unit_world hunt                        the first world or episode in which a check fails
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "a model, which is no part of the library"
)]

mod random;
mod search;
mod small;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use world::Seen;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|arg| arg.parse::<u64>().ok());
    match args.first().map(String::as_str) {
        Some("exhaustive") => exhaustive(&args[1..]),
        Some("random") => random_episodes(number(1).unwrap_or(0), number(2).unwrap_or(100_000)),
        Some("hunt") => hunt(),
        Some("replay") => replay(number(1).unwrap_or(0)),
        _ => {
            println!(
                "usage: unit_world exhaustive [NAME ...] | random [SEED [EPISODES]] | replay SEED | hunt"
            );
            ExitCode::FAILURE
        }
    }
}

fn exhaustive(names: &[String]) -> ExitCode {
    println!(
        "| world | states | steps | depth | ends | late executions | losses reported | hedges won | witnesses | in doubt | seconds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut code = ExitCode::SUCCESS;
    for (name, settings) in small::quick().into_iter().chain(small::long()) {
        let is_wanted = if names.is_empty() { true } else { names.iter().any(|it| it == name) };
        if !is_wanted {
            continue;
        }
        let begun = Instant::now();
        let report = search::search(&Arc::new(settings), begun, usize::MAX);
        let Seen {
            late_executions, losses_reported, hedges_won, witnesses, in_doubt_waits, ..
        } = report.seen;
        println!(
            "| {name} | {} | {} | {} | {} | {late_executions} | {losses_reported} | {hedges_won} | {witnesses} | {in_doubt_waits} | {:.1} |",
            report.states,
            report.steps,
            report.depth,
            report.terminal,
            begun.elapsed().as_secs_f64()
        );
        if let Some((why, trace)) = report.violation {
            println!("\n{name}: {why}, after {} steps:", trace.len());
            trace.iter().for_each(|action| println!("  {action:?}"));
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn random_episodes(first: u64, count: u64) -> ExitCode {
    let begun = Instant::now();
    let mut seen = Seen::default();
    for seed in first..first + count {
        let episode = random::episode(seed, begun);
        seen.add(&episode.seen);
        if let Some((why, trace)) = episode.violation {
            println!("seed {seed}: {why}, after {} steps", trace.len());
            return ExitCode::FAILURE;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} episodes in {seconds:.1} s, {:.0} a second: {seen:?}",
        count as f64 / seconds
    );
    ExitCode::SUCCESS
}

fn replay(seed: u64) -> ExitCode {
    let episode = random::episode(seed, Instant::now());
    let Some((why, trace)) = episode.violation else {
        println!("seed {seed}: nothing is wrong");
        return ExitCode::SUCCESS;
    };
    let mut world = random::world(seed, Instant::now());
    world.is_verbose = true;
    for action in trace {
        println!("{action:?}");
        world.take(action).ok();
    }
    println!("{why}");
    ExitCode::FAILURE
}

/// Maximum number of states in each world, and of random episodes, before `hunt` reports that no check fails.
const MAX_STATES: usize = 200_000;
const EPISODES: u64 = 20_000;

/// Searches worlds and episodes until a check fails. Prints a table row: the world, the number of steps, the
/// number of states or the seed, and the failed check.
fn hunt() -> ExitCode {
    let start = Instant::now();
    for (name, settings) in small::quick().into_iter().chain(small::long()) {
        let report = search::search(&Arc::new(settings), start, MAX_STATES);
        if let Some((why, trace)) = report.violation {
            println!("{name} | {} | {} | {why}", trace.len(), report.states);
            return ExitCode::FAILURE;
        }
    }
    for seed in 0..EPISODES {
        if let Some((why, trace)) = random::episode(seed, start).violation {
            let why = why.lines().next().unwrap_or_default();
            let why = why.split(": [").next().unwrap_or_default();
            println!("a random episode | {} | seed {seed} | {why}", trace.len());
            return ExitCode::FAILURE;
        }
    }
    println!("not found | | |");
    ExitCode::SUCCESS
}
