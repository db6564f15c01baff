//! Reports whether the path carries packets of full length.

use iscsi_initiator::PathCheck;
use iscsi_tuner::SegmentLimit;
use serde_json::{Value, json};

use crate::table::Line;

/// The result of the path check.
#[derive(Clone, Debug, PartialEq)]
pub enum Path {
    /// The path was checked.
    Tried(PathCheck),
    /// The path was not checked, with the reason.
    NotTried(String),
}

impl Path {
    /// Returns the maximum segment length of the path, if longer segments do not arrive.
    #[must_use]
    pub const fn limit(&self) -> Option<SegmentLimit> {
        match self {
            Self::Tried(PathCheck::Swallows(limit)) => Some(*limit),
            Self::Tried(_) | Self::NotTried(_) => None,
        }
    }

    /// Returns the result as one line. `portal` is the name of the portal.
    #[must_use]
    pub fn line(&self, portal: &str) -> Line {
        let (value, note) = match self {
            Self::Tried(PathCheck::Passes(packet)) => {
                ("arrive", format!("{packet} bytes, by a ping with data"))
            }
            Self::Tried(PathCheck::Swallows(limit)) => ("do not arrive", limit.finding(portal)),
            Self::Tried(_) => ("unknown", "the pings with data show nothing".to_owned()),
            Self::NotTried(why) => ("unknown", why.clone()),
        };
        Line::new("full packets", value, note)
    }

    /// Returns the result as JSON.
    #[must_use]
    pub fn to_json(&self, portal: &str) -> Value {
        match self {
            Self::Tried(PathCheck::Passes(packet)) => {
                json!({ "check": "passes", "packet_bytes": packet })
            }
            Self::Tried(PathCheck::Swallows(limit)) => json!({
                "check": "swallows",
                "packet_bytes": limit.swallowed,
                "segment_bytes": limit.segment,
                "way": limit.way.map(|way| way.to_string()),
                "finding": limit.finding(portal),
                "remedy": SegmentLimit::REMEDY,
            }),
            Self::Tried(_) => json!({ "check": "unclear" }),
            Self::NotTried(why) => json!({ "check": "not tried", "error": why }),
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi_tuner::Way;

    use super::*;

    #[test]
    fn what_was_found_is_told_in_words_and_in_numbers() {
        let limit = SegmentLimit::new(1200, 1500, Some(Way::FromPeer));
        let swallows = Path::Tried(PathCheck::Swallows(limit));
        let told = swallows.to_json("iscsi://192.0.2.1:3260");
        assert_eq!((&told["check"], &told["packet_bytes"]), (&json!("swallows"), &json!(1500)));
        assert_eq!((&told["segment_bytes"], &told["way"]), (&json!(1200), &json!("from the peer")));
        assert!(told["finding"].as_str().unwrap().contains("black hole"));
        assert!(told["remedy"].as_str().unwrap().contains("clamp the MSS"));
        assert_eq!(swallows.limit(), Some(limit));
        for (path, check) in [
            (Path::Tried(PathCheck::Passes(1500)), "passes"),
            (Path::Tried(PathCheck::Unclear), "unclear"),
            (Path::NotTried("no answer".to_owned()), "not tried"),
        ] {
            assert_eq!(path.to_json("portal")["check"], check);
            assert_eq!(path.limit(), None);
        }
    }
}
