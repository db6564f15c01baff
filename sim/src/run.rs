//! The episode of a seed: requests of many kinds, or copies.

use tokio::runtime::Builder;

use crate::episode::Report;
use crate::settings::Settings;
use crate::{copy, episode, panics};

/// Runs the episode of a seed, in virtual time. A panic is a violation, in whichever task.
///
/// # Errors
/// When the system has no room for a runtime.
pub fn run(seed: u64, settings: &Settings) -> std::io::Result<Report> {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let (report, panicked) = panics::watched(|| {
        if copy::is_copy(seed) {
            runtime.block_on(Box::pin(copy::episode(seed, settings)))
        } else {
            runtime.block_on(Box::pin(episode::episode(seed, settings)))
        }
    });
    let mut report = report.unwrap_or_else(|| Report::empty(seed));
    report.violation = panicked.or(report.violation);
    Ok(report)
}
