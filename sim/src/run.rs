//! Runs the episode of a seed: requests of many kinds, or copies. After some of them, repeated copies, a volume
//! or a served unit follow.

use tokio::runtime::Builder;

use crate::copy::repeated;
use crate::episode::Report;
use crate::settings::Settings;
use crate::{copy, episode, panics, serve, volume};

/// Runs the episode of a seed, in virtual time. A panic in any task is a violation.
///
/// # Errors
/// When the system has no resources for a runtime.
pub fn run(seed: u64, settings: &Settings) -> std::io::Result<Report> {
    let mut report = if copy::is_copy(seed) {
        part(seed, Box::pin(copy::episode(seed, settings)))?
    } else {
        part(seed, Box::pin(episode::episode(seed, settings)))?
    };
    // Each further part has its own world, so that the random draws of the first part stay the same.
    if report.violation.is_none() && repeated::follow(seed) {
        report = report.and(part(seed, Box::pin(repeated::episode(seed, settings)))?);
    }
    if report.violation.is_none() && volume::follow(seed) {
        report = report.and(part(seed, Box::pin(volume::episode(seed, settings)))?);
    }
    if report.violation.is_none() && serve::follow(seed) {
        report = report.and(part(seed, Box::pin(serve::episode(seed, settings)))?);
    }
    Ok(report)
}

fn part(seed: u64, episode: impl Future<Output = Report>) -> std::io::Result<Report> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let (report, panicked) = panics::watched(|| runtime.block_on(episode));
    let mut report = report.unwrap_or_else(|| Report::empty(seed));
    report.violation = panicked.or(report.violation);
    Ok(report)
}
