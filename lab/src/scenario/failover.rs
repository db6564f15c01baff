//! Failovers: a program writes to a unit behind two target port groups, while the states of the groups change
//! and the links are cut.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Number of paths: target port group N is behind portal group N, over link N - 1.
pub const PATHS: u8 = 2;

/// Events on the paths of a unit, and the programs that write meanwhile.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Failover {
    /// The event, in a few words.
    pub event: String,
    /// The scripted changes, sorted by time.
    pub orders: Vec<PathOrder>,
    /// The initial state of each target port group.
    #[serde(default = "optimized_first")]
    pub states: [AccessState; PATHS as usize],
    /// LUN of the unit, which must have a file.
    #[serde(default)]
    pub lun: u16,
    /// Time limit of a run, seconds.
    pub limit: Option<u64>,
    /// The runs. By default, a copy and random writes, by each [`Contender`].
    #[serde(default = "all_runs")]
    pub runs: Vec<FailoverRun>,
}

fn optimized_first() -> [AccessState; PATHS as usize] {
    [AccessState::Optimized, AccessState::NonOptimized]
}

fn all_runs() -> Vec<FailoverRun> {
    let loads = [Writes::Copy, Writes::Random];
    let both = |writes| {
        [Contender::Own, Contender::DmMultipath].map(|through| FailoverRun { through, writes })
    };
    loads.into_iter().flat_map(both).collect()
}

/// A scripted change of a path.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PathOrder {
    /// Seconds after the first byte has reached the unit.
    pub at: f64,
    /// The change: `group N STATE`, `cut N` or `mend N`.
    pub order: String,
}

/// The action of a scripted change. Paths are numbered from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathDeed {
    /// Puts the path's target port group into a state.
    Group(u8, AccessState),
    /// Cuts the path's link.
    Cut(u8),
    /// Restores the path's link.
    Mend(u8),
}

/// An asymmetric access state (SPC-4 §5.15.2.4), in the words of `lab/lio`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum AccessState {
    /// Active/optimized.
    #[serde(rename = "active/optimized")]
    Optimized,
    /// Active/non-optimized.
    #[serde(rename = "active/non-optimized")]
    NonOptimized,
    /// Standby.
    #[serde(rename = "standby")]
    Standby,
    /// Unavailable.
    #[serde(rename = "unavailable")]
    Unavailable,
    /// Offline.
    #[serde(rename = "offline")]
    Offline,
    /// Transitioning.
    #[serde(rename = "transitioning")]
    Transitioning,
}

/// A run of a failover.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverRun {
    /// The path management that is used.
    pub through: Contender,
    /// Kind of the writes.
    pub writes: Writes,
}

/// The path management between a writer and a unit with two paths.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// This project: block-copy for a copy, block-serve for random writes.
    Own,
    /// The kernel's initiator with a session for each path, under dm-multipath and multipathd.
    DmMultipath,
}

/// Kind of writes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// An image, from its beginning to its end.
    Copy,
    /// Blocks at random places, each with a checksum in it, by fio.
    Random,
}

/// Settings of the kernel's initiator and of multipathd.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Multipath {
    /// Lines of `iscsid.conf`. They override the package's lines.
    #[serde(default)]
    pub iscsid: BTreeMap<String, String>,
    /// The section `defaults` of `multipath.conf`.
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
    /// The section `overrides` of `multipath.conf`. It overrides multipathd's built-in table of devices.
    #[serde(default)]
    pub overrides: BTreeMap<String, String>,
}

impl AccessState {
    /// Returns the name in scenarios and for `lab/lio`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimized => "active/optimized",
            Self::NonOptimized => "active/non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::Offline => "offline",
            Self::Transitioning => "transitioning",
        }
    }

    /// Returns whether a port in this state serves reads and writes.
    pub fn serves(self) -> bool {
        match self {
            Self::Optimized | Self::NonOptimized => true,
            Self::Standby | Self::Unavailable | Self::Offline | Self::Transitioning => false,
        }
    }
}

impl FromStr for AccessState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [
            Self::Optimized,
            Self::NonOptimized,
            Self::Standby,
            Self::Unavailable,
            Self::Offline,
            Self::Transitioning,
        ];
        all.into_iter().find(|state| state.name() == text).ok_or(())
    }
}

impl FromStr for PathDeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = |number: &str| number.parse().ok().filter(|path| (1..=PATHS).contains(path));
        let words: Vec<_> = text.split_whitespace().collect();
        let deed = match words[..] {
            ["group", number, state] => {
                path(number).zip(state.parse().ok()).map(|(path, state)| Self::Group(path, state))
            }
            ["cut", number] => path(number).map(Self::Cut),
            ["mend", number] => path(number).map(Self::Mend),
            _ => None,
        };
        deed.ok_or_else(|| {
            format!("`{text}` is not `group N STATE`, `cut N` or `mend N`; N is 1 or 2")
        })
    }
}

impl FailoverRun {
    /// Returns the name of the writer in results.
    pub fn name(self) -> &'static str {
        match (self.through, self.writes) {
            (Contender::Own, Writes::Copy) => "block-copy",
            (Contender::Own, Writes::Random) => "block-serve",
            (Contender::DmMultipath, _) => "dm-multipath",
        }
    }
}

impl Writes {
    /// Returns the name in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Random => "random",
        }
    }
}

impl Failover {
    /// Returns the time until `end` in which no path served, seconds. `happened` has the changes with their times.
    pub fn unserved(&self, happened: &[(f64, PathDeed)], end: f64) -> f64 {
        let mut states = self.states;
        let mut is_up = [true; PATHS as usize];
        let mut since = None;
        let mut unserved = 0.0;
        for (at, deed) in happened.iter().filter(|(at, _)| *at < end) {
            let place = |path: u8| usize::from(path.saturating_sub(1));
            match *deed {
                PathDeed::Group(path, state) => {
                    if let Some(own) = states.get_mut(place(path)) {
                        *own = state;
                    }
                }
                PathDeed::Cut(path) | PathDeed::Mend(path) => {
                    if let Some(own) = is_up.get_mut(place(path)) {
                        *own = matches!(deed, PathDeed::Mend(_));
                    }
                }
            }
            let serves = states.iter().zip(is_up).any(|(state, is_up)| is_up && state.serves());
            match (serves, since) {
                (false, None) => since = Some(*at),
                (true, Some(begun)) => {
                    unserved += at - begun;
                    since = None;
                }
                _ => {}
            }
        }
        unserved + since.map_or(0.0, |begun| end - begun)
    }

    /// Checks the failover. The error names the first inconsistency.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.event.trim().is_empty() {
            return Err("`event` says what happens".to_owned());
        }
        if self.runs.is_empty() {
            return Err("`runs` is empty".to_owned());
        }
        if self.limit == Some(0) {
            return Err("`limit` must be at least 1".to_owned());
        }
        if !self.states.iter().any(|state| state.serves()) {
            return Err("`states`: no path serves at the beginning".to_owned());
        }
        let mut before = 0.0;
        for order in &self.orders {
            if !order.at.is_finite() || order.at < before {
                return Err("`at` of `orders` wants numbers that do not fall, from 0 on".to_owned());
            }
            before = order.at;
            order.order.parse::<PathDeed>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover(orders: &[(f64, &str)]) -> Failover {
        let orders = orders.iter().map(|(at, order)| PathOrder { at: *at, order: (*order).into() });
        Failover {
            event: "one".to_owned(),
            orders: orders.collect(),
            states: optimized_first(),
            lun: 0,
            limit: None,
            runs: all_runs(),
        }
    }

    fn unserved(orders: &[(f64, &str)], end: f64) -> f64 {
        let failover = failover(orders);
        let deed = |order: &PathOrder| (order.at, order.order.parse().unwrap());
        let happened: Vec<_> = failover.orders.iter().map(deed).collect();
        failover.unserved(&happened, end)
    }

    #[test]
    fn orders_are_read() {
        assert_eq!("group 2 standby".parse(), Ok(PathDeed::Group(2, AccessState::Standby)));
        assert_eq!("cut 1".parse(), Ok(PathDeed::Cut(1)));
        assert_eq!("mend 2".parse(), Ok(PathDeed::Mend(2)));
        for order in ["", "group 3 standby", "group 1 asleep", "cut", "cut 0", "mend 1 2"] {
            assert!(order.parse::<PathDeed>().is_err(), "{order}");
        }
    }

    #[test]
    fn a_unit_is_unserved_while_no_path_serves() {
        assert_eq!(
            unserved(&[(2.0, "group 1 standby"), (8.0, "group 1 active/optimized")], 20.0),
            0.0
        );
        let both = [
            (2.0, "group 1 transitioning"),
            (4.0, "cut 2"),
            (8.0, "group 1 active/optimized"),
            (12.0, "mend 2"),
        ];
        assert_eq!(unserved(&both, 20.0), 4.0);
        assert_eq!(unserved(&both, 7.0), 3.0);
        assert_eq!(unserved(&both, 3.0), 0.0);
        assert_eq!(unserved(&[(1.0, "cut 1"), (2.0, "cut 2"), (5.0, "mend 2")], 9.0), 3.0);
    }

    #[test]
    fn all_write_unless_some_are_named() {
        let names: Vec<_> =
            all_runs().into_iter().map(|run| (run.name(), run.writes.name())).collect();
        let all = [
            ("block-copy", "copy"),
            ("dm-multipath", "copy"),
            ("block-serve", "random"),
            ("dm-multipath", "random"),
        ];
        assert_eq!(names, all);
    }
}
