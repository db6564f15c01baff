//! How long a target port may take to change its state towards a unit.

use std::time::Duration;

/// How long is waited for a port that changes its asymmetric access state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transitions {
    /// IMPLICIT TRANSITION TIME, if the unit reports it (SPC-4 §6.37).
    reported: Option<Duration>,
    /// Another port may serve the unit, and is tried before this one is waited for.
    are_cut_short: bool,
    has_other_ports: bool,
}

impl Transitions {
    /// The limit while another port can be tried.
    const SHORT: Duration = Duration::from_secs(1);

    /// The unit has reported its time, in seconds, or none. Zero stands for none.
    pub fn on_report(&mut self, seconds: Option<u8>) {
        let seconds = seconds.filter(|seconds| *seconds > 0);
        self.reported = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    }

    /// Sets whether another port is tried soon.
    pub const fn cut_short(&mut self, are_cut_short: bool) {
        self.are_cut_short = are_cut_short;
    }

    /// From now on requests may go through several ports.
    pub const fn add_other_ports(&mut self) {
        self.has_other_ports = true;
    }

    /// Whether requests may go through several ports.
    pub const fn has_other_ports(&self) -> bool {
        self.has_other_ports
    }

    /// How long is waited; `usual` where the unit reports no time.
    pub fn limit(&self, usual: Duration) -> Duration {
        let limit = self.reported.unwrap_or(usual);
        if self.are_cut_short { limit.min(Self::SHORT) } else { limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_the_unit_reports_counts_until_another_port_can_be_tried() {
        let [usual, short] = [20, 1].map(Duration::from_secs);
        let mut transitions = Transitions::default();
        assert_eq!(transitions.limit(usual), usual);
        transitions.on_report(Some(60));
        assert_eq!(transitions.limit(usual), Duration::from_secs(60));
        transitions.cut_short(true);
        assert_eq!(transitions.limit(usual), short);
        transitions.cut_short(false);
        transitions.on_report(Some(0));
        assert_eq!(transitions.limit(usual), usual);
    }
}
