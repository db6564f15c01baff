//! Makes the scripted changes of a failover, each at its time.

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep_until;

use super::watch::Watch;
use crate::error::Error;
use crate::scenario::{AccessState, Failover, PathDeed};
use crate::testbed::Testbed;

/// Changes that were made: the time, the action and the words of each.
type Happened = Vec<(f64, PathDeed, String)>;

/// The scripted changes of a failover, and those that were made.
#[derive(Debug)]
pub(super) struct Script<'a> {
    failover: &'a Failover,
    testbed: &'a mut Testbed,
    happened: Happened,
}

impl<'a> Script<'a> {
    pub(super) fn of(failover: &'a Failover, testbed: &'a mut Testbed) -> Self {
        Self { failover, testbed, happened: Vec::new() }
    }

    /// Makes all scripted changes, each at its time. Returns only after an error.
    pub(super) async fn carry_out(&mut self, watch: &Watch<'_>) -> Error {
        let begun = watch.begun().await;
        for order in &self.failover.orders {
            sleep_until((begun + Duration::from_secs_f64(order.at)).into()).await;
            let deed = match order.order.parse() {
                Ok(deed) => deed,
                Err(reason) => return Error::Usage(reason),
            };
            // The change is recorded before it is made, so that `undo` also reverts a change that has failed
            // or was interrupted.
            self.happened.push((watch.now(), deed, order.order.clone()));
            if let Err(error) = make(self.testbed, deed).await {
                return error;
            }
            if let Some(last) = self.happened.last_mut() {
                last.0 = watch.now();
            }
        }
        pending().await
    }

    /// Restores all paths that a change has affected.
    pub(super) async fn undo(&mut self) -> Result<(), Error> {
        for path in 1..=crate::scenario::PATHS {
            let touched = |wanted: &dyn Fn(PathDeed) -> bool| {
                self.happened.iter().any(|(_, deed, _)| wanted(*deed))
            };
            let cut = touched(&|deed| deed == PathDeed::Cut(path));
            let changed = touched(&|deed| matches!(deed, PathDeed::Group(own, _) if own == path));
            if cut {
                make(self.testbed, PathDeed::Mend(path)).await?;
            }
            if changed {
                make(self.testbed, PathDeed::Group(path, AccessState::Optimized)).await?;
            }
        }
        Ok(())
    }

    pub(super) fn happened(self) -> Happened {
        self.happened
    }
}

async fn make(testbed: &mut Testbed, deed: PathDeed) -> Result<(), Error> {
    match deed {
        PathDeed::Group(group, state) => {
            let words = [format!("group={group}"), format!("state={}", state.name())];
            testbed.change_target("access", &words).await
        }
        PathDeed::Cut(path) => testbed.cut(path.saturating_sub(1)).await,
        PathDeed::Mend(path) => testbed.mend(path.saturating_sub(1)).await,
    }
}
