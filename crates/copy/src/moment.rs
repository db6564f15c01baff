//! Waits for times that may never come.

use std::future::pending;

use tokio::time::{Instant, sleep_until};

/// Waits until a time; without one, for ever.
pub(crate) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
