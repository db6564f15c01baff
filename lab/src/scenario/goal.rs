//! Goals: what figures must reach, and why some do not.

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::result::LinkConditions;
use crate::size::Rate;

/// What the figures of one program must reach. It has at least one of `steady`, `start`,
/// `no_slower_than` and `reconnects`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Whose figures, by the name in the result.
    pub who: String,
    /// Over which links, and which way.
    #[serde(default)]
    pub over: Over,
    /// The rate from the fifth second on, at least, 10^6 bits a second; above 0.
    pub steady: Option<f64>,
    /// What the whole takes beyond its bytes at the link's rate, at most.
    pub start: Option<Start>,
    /// Who may not move the same bytes over the same link faster, by the name in the result.
    pub no_slower_than: Option<String>,
    /// The number of sessions that may be lost and reconnect, as the program reports it.
    pub reconnects: Option<u32>,
    /// Why some figures fall short.
    #[serde(default)]
    pub reasons: Vec<Reason>,
}

/// Some links, and one direction or both; what a list does not name, or an empty one, is all.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// Which way; both if not given.
    pub direction: Option<Direction>,
    /// Round-trip times, milliseconds.
    #[serde(default)]
    pub rtt_ms: Vec<f64>,
    /// Rates, each way.
    #[serde(default)]
    pub rate: Vec<Rate>,
    /// Packets lost each way, percent; 0 is a link that loses none.
    #[serde(default)]
    pub loss: Vec<f64>,
}

/// A time that grows with the round-trip time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Round-trip times, 0 or more.
    pub rtts: f64,
    /// Seconds besides, 0 or more.
    pub seconds: f64,
}

/// Why figures fall short of their goal.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Which of them.
    #[serde(default)]
    pub over: Over,
    /// One sentence.
    pub text: String,
}

impl Goal {
    /// Why a figure over this link falls short, if the scenario knows.
    pub fn reason(&self, link: &LinkConditions, direction: &str) -> Option<&str> {
        let found = self.reasons.iter().find(|reason| reason.over.holds(link, direction));
        found.map(|reason| reason.text.as_str())
    }

    /// Says what makes no sense in a scenario that measures under these names.
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
    /// Whether figures over this link and in this direction are meant.
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
    /// The time over a link, seconds.
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
