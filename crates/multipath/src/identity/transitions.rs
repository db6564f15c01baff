//! How long a target port may take to change its state towards a unit.

use std::time::Duration;

/// How long is waited for a port that changes its asymmetric access state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Transitions {
    /// IMPLICIT TRANSITION TIME in seconds (SPC-4 §6.37); 0 if the unit does not report it.
    reported: u8,
    /// Another port may serve the unit, and is tried before this one is waited for.
    are_cut_short: bool,
    has_other_ports: bool,
}

impl Transitions {
    /// The limit while another port can be tried.
    const SHORT: Duration = Duration::from_secs(1);

    /// The unit has reported its time, in seconds, or none. Zero stands for none.
    pub fn on_report(&mut self, seconds: Option<u8>) {
        self.reported = seconds.unwrap_or(0);
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

    /// All of it in one number.
    pub fn to_bits(self) -> u32 {
        let [cut, others] = [self.are_cut_short, self.has_other_ports].map(u32::from);
        u32::from(self.reported) | cut << 8 | others << 9
    }

    /// What [`to_bits`](Self::to_bits) has returned.
    pub const fn from_bits(bits: u32) -> Self {
        let [reported, flags, ..] = bits.to_le_bytes();
        Self { reported, are_cut_short: flags & 1 != 0, has_other_ports: flags & 2 != 0 }
    }

    /// How long is waited; `usual` where the unit reports no time.
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
