//! Measures the resources that a part of a program has used.

use std::time::Instant;

use nix::sys::resource::{Usage as Resources, UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};

use crate::Trouble;

/// Resources used up to a point in time.
#[derive(Debug)]
pub(crate) struct Usage {
    at: Instant,
    resources: Resources,
}

impl Usage {
    /// Returns the resources that all threads of this program have used so far.
    pub(crate) fn of_program() -> Result<Self, Trouble> {
        Ok(Self { at: Instant::now(), resources: getrusage(UsageWho::RUSAGE_SELF)? })
    }

    /// Returns the resources that this thread has used so far.
    pub(crate) fn of_thread() -> Result<Self, Trouble> {
        Ok(Self { at: Instant::now(), resources: getrusage(UsageWho::RUSAGE_THREAD)? })
    }

    /// Returns the resources used since `begun`.
    pub(crate) fn since(&self, begun: &Self) -> Value {
        let (from, to) = (&begun.resources, &self.resources);
        let user = seconds(to.user_time()) - seconds(from.user_time());
        let system = seconds(to.system_time()) - seconds(from.system_time());
        json!({
            "seconds": self.at.duration_since(begun.at).as_secs_f64(),
            "cpu_seconds": user + system,
            "user_seconds": user,
            "system_seconds": system,
            "minor_faults": to.minor_page_faults() - from.minor_page_faults(),
            "voluntary_switches": to.voluntary_context_switches() - from.voluntary_context_switches(),
            "involuntary_switches": to.involuntary_context_switches() - from.involuntary_context_switches(),
        })
    }
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}
