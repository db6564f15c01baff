//! Time limits for state changes of target ports.

use std::time::Duration;

/// Time limit of the wait for a port that changes its asymmetric access state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Transitions {
    /// IMPLICIT TRANSITION TIME in seconds (SPC-4 §6.37); 0 if the unit does not report it.
    reported: u8,
    /// Whether the wait is short, because another port may serve the unit and is tried first.
    are_cut_short: bool,
    has_other_ports: bool,
}

impl Transitions {
    /// The limit while another port can be tried.
    const SHORT: Duration = Duration::from_secs(1);

    /// Records the time that the unit has reported, in seconds. Zero and `None` mean that it reports no time.
    pub fn on_report(&mut self, seconds: Option<u8>) {
        self.reported = seconds.unwrap_or(0);
    }

    /// Sets whether the wait is short, because another port is tried next.
    pub const fn cut_short(&mut self, are_cut_short: bool) {
        self.are_cut_short = are_cut_short;
    }

    /// Records that requests may go through several ports.
    pub const fn add_other_ports(&mut self) {
        self.has_other_ports = true;
    }

    /// Returns whether requests may go through several ports.
    pub const fn has_other_ports(&self) -> bool {
        self.has_other_ports
    }

    /// Packs the value into bits.
    pub fn to_bits(self) -> u32 {
        let [cut, others] = [self.are_cut_short, self.has_other_ports].map(u32::from);
        u32::from(self.reported) | cut << 8 | others << 9
    }

    /// Unpacks the value from the bits of [`to_bits`](Self::to_bits).
    pub const fn from_bits(bits: u32) -> Self {
        let [reported, flags, ..] = bits.to_le_bytes();
        Self { reported, are_cut_short: flags & 1 != 0, has_other_ports: flags & 2 != 0 }
    }

    /// Returns the time limit: the time that the unit reports, or `usual` if it reports none. If the wait is
    /// cut short, the limit is at most one second.
    pub fn limit(&self, usual: Duration) -> Duration {
        let limit = match self.reported {
            0 => usual,
            seconds => Duration::from_secs(seconds.into()),
        };
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
        assert_eq!(Transitions::from_bits(transitions.to_bits()), transitions);
        assert_eq!(transitions.limit(usual), short);
        transitions.cut_short(false);
        transitions.add_other_ports();
        assert_eq!(Transitions::from_bits(transitions.to_bits()), transitions);
        transitions.on_report(Some(0));
        assert_eq!(transitions.limit(usual), usual);
    }
}
