//! The target of a lab, as described by scenarios and command lines.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// LIO with its units and keys.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The units of the target, in the form of `lab/lio`: `NUMBER:SIZE[:BLOCK[:FILE|null]]`.
    pub luns: Vec<Unit>,
    /// Commands that one session may have in flight; LIO's default if not given.
    pub depth: Option<u32>,
    /// Attributes of the units, such as `emulate_tpu`; LIO's defaults for those not given.
    #[serde(default)]
    pub unit: BTreeMap<String, String>,
    /// Attributes of the target port groups, if there are several, such as `nonop_delay_msecs`; LIO's defaults
    /// for those not given.
    #[serde(default)]
    pub groups: BTreeMap<String, String>,
    /// Operational keys (RFC 7143 §13); LIO's defaults for those not given.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
}

impl Target {
    /// Returns the words for `lab/lio up`. `keys` override the target's own.
    pub fn words(&self, keys: &BTreeMap<String, String>) -> Vec<String> {
        let mut all = self.keys.clone();
        all.extend(keys.clone());
        let luns = self.luns.iter().map(|unit| format!("lun={}", unit.words));
        let depth = self.depth.map(|depth| format!("depth={depth}"));
        let unit = self.unit.iter().map(|(name, value)| format!("unit.{name}={value}"));
        let groups = self.groups.iter().map(|(name, value)| format!("alua.{name}={value}"));
        let keys = all.iter().map(|(key, value)| format!("{key}={value}"));
        luns.chain(unit).chain(groups).chain(depth).chain(keys).collect()
    }

    /// Returns the memory that the units take, bytes.
    pub fn memory(&self) -> u64 {
        self.luns.iter().filter(|unit| unit.in_memory).map(|unit| unit.size.0).sum()
    }
}

/// A logical unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unit {
    /// LUN of the unit.
    pub number: u16,
    /// Size of the unit.
    pub size: Size,
    /// Whether the unit's data is in memory.
    pub in_memory: bool,
    /// The file with the unit's data.
    pub file: Option<PathBuf>,
    words: String,
}

impl FromStr for Unit {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let refusal = || format!("a unit is NUMBER:SIZE[:BLOCK[:FILE|null]], not `{words}`");
        let mut parts = words.splitn(4, ':');
        let number = parts.next().and_then(|part| part.parse().ok()).ok_or_else(refusal)?;
        let size = parts.next().ok_or_else(refusal)?.parse()?;
        let place = parts.nth(1);
        let in_memory = place.is_none();
        let file = place.filter(|place| *place != "null").map(PathBuf::from);
        Ok(Self { number, size, in_memory, file, words: words.to_owned() })
    }
}

impl TryFrom<String> for Unit {
    type Error = String;

    fn try_from(words: String) -> Result<Self, String> {
        words.parse()
    }
}

impl From<Unit> for String {
    fn from(unit: Unit) -> Self {
        unit.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_takes_memory_unless_it_is_kept_elsewhere() {
        let unit = |words: &str| words.parse::<Unit>().unwrap();
        assert!(unit("0:64M").in_memory && unit("0:64M:4096").in_memory);
        assert!(!unit("0:2G:512:null").in_memory && !unit("7:1G:512:/run/unit").in_memory);
        assert_eq!(unit("7:1G:512:/run/unit").number, 7);
        assert_eq!(unit("7:1G:512:/run/unit").file, Some("/run/unit".into()));
        assert_eq!((unit("0:2G:512:null").file, unit("0:64M").file), (None, None));
    }

    #[test]
    fn a_unit_without_sense_is_refused() {
        for words in ["", "0", "x:64M", "0:", "0:big"] {
            assert!(words.parse::<Unit>().is_err(), "{words}");
        }
    }

    #[test]
    fn keys_of_a_measurement_win() {
        let target = Target {
            luns: vec!["0:64M".parse().unwrap()],
            depth: Some(32),
            unit: [("emulate_tpu".to_owned(), "1".to_owned())].into(),
            groups: [("nonop_delay_msecs".to_owned(), "0".to_owned())].into(),
            keys: [("InitialR2T".to_owned(), "Yes".to_owned())].into(),
        };
        let words = target.words(&[("InitialR2T".to_owned(), "No".to_owned())].into());
        let attributes = ["unit.emulate_tpu=1", "alua.nonop_delay_msecs=0"];
        assert_eq!(words[0], "lun=0:64M");
        assert_eq!(words[1..3], attributes);
        assert_eq!(words[3..], ["depth=32", "InitialR2T=No"]);
    }
}
