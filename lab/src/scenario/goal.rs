//! Goals of figures, and reasons why some figures fall short.

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::result::LinkConditions;
use crate::size::Rate;

/// Goals of the figures of one program: at least one of `steady`, `start`, `no_slower_than` and `reconnects`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Name of the program in the result.
    pub who: String,
    /// The links and the direction to which the goals apply.
    #[serde(default)]
    pub over: Over,
    /// Lowest rate from the fifth second on, 10^6 bits per second; above 0.
    pub steady: Option<f64>,
    /// Longest time of the run beyond the time that its bytes need at the link's rate.
    pub start: Option<Start>,
    /// Name of another program, which must not move the same bytes over the same link faster.
    pub no_slower_than: Option<String>,
    /// Largest number of sessions that may be lost and reconnect, as the program reports it.
    pub reconnects: Option<u32>,
    /// Reasons why some figures fall short.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

/// Some links, and one direction or both. An empty or missing list means all.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// The direction; both if not given.
    pub direction: Option<Direction>,
    /// Round-trip times, milliseconds.
    #[serde(default)]
    pub rtt_ms: Vec<f64>,
    /// Rates in each direction.
    #[serde(default)]
    pub rate: Vec<Rate>,
    /// Lost packets in each direction, percent; 0 is a link without loss.
    #[serde(default)]
    pub loss: Vec<f64>,
}

/// A time that grows with the round-trip time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Number of round-trip times, 0 or more.
    pub rtts: f64,
    /// Seconds in addition, 0 or more.
    pub seconds: f64,
}

/// The reason why some figures fall short of their goal.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The links and the direction of these figures.
    #[serde(default)]
    pub over: Over,
    /// The reason, one sentence.
    pub text: String,
}

impl Goal {
    /// Returns the reason why a figure over this link falls short, if the scenario has one.
    pub fn reason(&self, link: &LinkConditions, direction: &str) -> Option<&str> {
        let found = self.reasons.iter().find(|reason| reason.over.holds(link, direction));
        found.map(|reason| reason.text.as_str())
    }

    /// Checks the goal. `measured` are the names in the scenario. The error names the first inconsistency.
    pub(super) fn check(&self, measured: &[&str]) -> Result<(), String> {
        let names = std::iter::once(&self.who).chain(&self.no_slower_than);
        for name in names {
            if !measured.contains(&name.as_str()) {
                return Err(format!("no [[measure]] is called `{name}`"));
            }
        }
        let has_part = self.steady.is_some()
            || self.start.is_some()
            || self.no_slower_than.is_some()
            || self.reconnects.is_some();
        if !has_part {
            return Err("it wants `steady`, `start`, `no_slower_than` or `reconnects`".to_owned());
        }
        if self.steady.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("`steady` wants a number above 0".to_owned());
        }
        if self.start.is_some_and(|start| !start.is_time()) {
            return Err("`start` wants numbers, 0 or more".to_owned());
        }
        Ok(())
    }
}

impl Over {
    /// Returns whether this includes the link and the direction.
    pub fn holds(&self, link: &LinkConditions, direction: &str) -> bool {
        let any = |list: &[f64], value: f64| list.is_empty() || list.contains(&value);
        let rates: Vec<_> = self.rate.iter().map(|rate| Some(rate.mbit_per_s)).collect();
        self.direction.is_none_or(|own| own.name() == direction)
            && any(&self.rtt_ms, link.rtt_ms)
            && any(&self.loss, link.loss_percent)
            && (rates.is_empty() || rates.contains(&link.rate_mbit_per_s))
    }
}

impl Start {
    /// Returns the time over a link, seconds.
    pub fn over(self, link: &LinkConditions) -> f64 {
        self.rtts * link.rtt_ms * 1e-3 + self.seconds
    }

    fn is_time(self) -> bool {
        [self.rtts, self.seconds].iter().all(|part| part.is_finite() && *part >= 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(rtt_ms: f64, loss_percent: f64) -> LinkConditions {
        LinkConditions { rtt_ms, rate_mbit_per_s: Some(100.0), loss_percent }
    }

    fn over(text: &str) -> Over {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn what_is_not_named_is_all() {
        for direction in ["write", "read"] {
            assert!(Over::default().holds(&link(4.0, 1.0), direction));
        }
    }

    #[test]
    fn each_list_narrows() {
        let here = link(100.0, 0.1);
        let narrowed = over("direction = 'read'\nrtt_ms = [100]\nrate = ['100mbit']\nloss = [0.1]");
        assert!(narrowed.holds(&here, "read"));
        assert!(!narrowed.holds(&here, "write"));
        assert!(!over("rtt_ms = [40]").holds(&here, "read"));
        assert!(!over("rate = ['1gbit']").holds(&here, "read"));
        assert!(!over("loss = [0]").holds(&here, "read"));
        assert!(over("loss = [0]").holds(&link(100.0, 0.0), "read"));
    }

    #[test]
    fn a_link_without_a_rate_is_of_no_named_rate() {
        let unlimited = LinkConditions { rate_mbit_per_s: None, ..link(4.0, 0.0) };
        assert!(!over("rate = ['100mbit']").holds(&unlimited, "write"));
        assert!(over("").holds(&unlimited, "write"));
    }

    #[test]
    fn a_start_grows_with_the_round_trip_time() {
        let start = Start { rtts: 20.0, seconds: 0.3 };
        assert!((start.over(&link(100.0, 0.0)) - 2.3).abs() < 1e-9);
    }

    #[test]
    fn the_first_reason_that_holds_is_told() {
        let text = "who = 'a'\nsteady = 1\nreasons = [\
                    { over = { loss = [1] }, text = 'loss' }, { text = 'else' }]";
        let goal: Goal = toml::from_str(text).unwrap();
        assert_eq!(goal.reason(&link(4.0, 1.0), "write"), Some("loss"));
        assert_eq!(goal.reason(&link(4.0, 0.0), "write"), Some("else"));
        let none = Goal { reasons: Vec::new(), ..goal };
        assert_eq!(none.reason(&link(4.0, 1.0), "write"), None);
    }
}
