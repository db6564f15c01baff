//! Actions of a user on a running copy.

use std::future::pending;

use iscsi_copy::Control;
use tokio::time::sleep;

use super::watch::Watch;
use crate::rng::Rng;

/// How a copy is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    Cancel,
    Abandon,
    /// The future of the copy is dropped, and the process goes on.
    Drop,
    /// The process is killed.
    Kill,
}

/// Pauses a copy at times, and stops it after a while or while it flushes. Returns when the copy is to be dropped.
pub(crate) async fn lay(control: Control, watch: &Watch, mut rng: Rng, stop: Option<Stop>) {
    let flushes = if rng.percent(40) { rng.index(1..8) } else { 0 };
    let after = rng.any_scale(if flushes > 0 { 1000 } else { 20_000 });
    let stopping = async {
        let Some(stop) = stop else { return pending().await };
        for _ in 0..flushes {
            watch.flushes.notified().await;
        }
        sleep(after).await;
        match stop {
            Stop::Cancel => control.cancel(),
            Stop::Abandon => control.abandon(),
            Stop::Drop | Stop::Kill => return,
        }
        pending().await
    };
    let pausing = async {
        for _ in 0..if rng.percent(30) { rng.index(1..4) } else { 0 } {
            sleep(rng.any_scale(5000)).await;
            control.pause();
            sleep(rng.any_scale(20_000)).await;
            control.resume();
        }
        pending().await
    };
    tokio::select! {
        biased;
        () = stopping => {}
        () = pausing => {}
    }
}
