//! What the port of a path does for the unit, by what the unit has told last (SPC-4 §5.11.2).

use iscsi_pdu::scsi::AccessState;

use crate::error::Error;
use crate::error::sense::{is_senseless, state_of_port};

/// The state of a port towards the unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Access {
    pub(crate) state: AccessState,
    /// PREF: the unit would rather be used through this port.
    pub(crate) preferred: bool,
}

/// How good a port is; the least is the best. Requests go to none but the best that there are.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank(u8);

impl Access {
    /// That of a unit that tells nothing of its ports: each is as good as any other.
    pub(crate) const UNKNOWN: Self = Self { state: AccessState::ActiveOptimized, preferred: false };

    /// That of a port that has refused a command, by the reason; `None` if the error is not about the port.
    pub(crate) fn refused(error: &Error) -> Option<Self> {
        let state = error.sense().and_then(state_of_port)?;
        Some(Self { state, preferred: false })
    }

    /// That of a port whose refusal of what the unit knows makes no sense but for its state.
    pub(crate) fn suspected(error: &Error) -> Option<Self> {
        let is_senseless = error.sense().is_some_and(is_senseless);
        is_senseless.then_some(Self { state: AccessState::Offline, preferred: false })
    }

    /// Whether it takes reads and writes.
    pub(crate) const fn serves(self) -> bool {
        self.state.is_active()
    }

    pub(crate) const fn rank(self) -> Rank {
        let by_state = match self.state {
            AccessState::ActiveOptimized => 0,
            AccessState::LogicalBlockDependent => 2,
            AccessState::ActiveNonOptimized => 4,
            // It will serve soon, or not.
            AccessState::Transitioning => 6,
            AccessState::Standby => 8,
            AccessState::Unavailable | AccessState::Reserved(_) => 10,
            AccessState::Offline => 12,
        };
        Rank(if self.preferred { by_state } else { by_state + 1 })
    }
}

#[cfg(test)]
mod tests {
    use iscsi_pdu::scsi::Sense;

    use super::*;

    const fn access(state: AccessState) -> Access {
        Access { state, preferred: false }
    }

    #[test]
    fn ports_rank_by_their_state_and_then_by_preference() {
        let states = [
            AccessState::ActiveOptimized,
            AccessState::LogicalBlockDependent,
            AccessState::ActiveNonOptimized,
            AccessState::Transitioning,
            AccessState::Standby,
            AccessState::Unavailable,
            AccessState::Offline,
        ];
        assert!(states.is_sorted_by_key(|state| access(*state).rank()));
        for state in states {
            let preferred = Access { state, preferred: true };
            assert!(preferred.rank() < access(state).rank());
        }
        let reluctant = Access { state: AccessState::ActiveNonOptimized, preferred: true };
        assert!(access(AccessState::ActiveOptimized).rank() < reluctant.rank());
        assert_eq!(states.iter().filter(|state| access(**state).serves()).count(), 3);
        assert_eq!(Access::UNKNOWN, access(AccessState::ActiveOptimized));
    }

    #[test]
    fn a_refusal_says_what_state_the_port_is_in() {
        let refused = |asc, ascq| {
            let bytes = [0x70, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
            let sense = Box::new(Sense::decode(&bytes).unwrap());
            Access::refused(&Error::CheckCondition { command: "READ (16)", sense })
        };
        assert_eq!(refused(0x04, 0x0a), Some(access(AccessState::Transitioning)));
        assert_eq!(refused(0x04, 0x0b), Some(access(AccessState::Standby)));
        assert_eq!(refused(0x04, 0x0c), Some(access(AccessState::Unavailable)));
        assert_eq!(refused(0x04, 0x12), Some(access(AccessState::Offline)));
        assert_eq!(refused(0x04, 0x01), None);
        assert_eq!(Access::refused(&Error::Closed), None);
    }
}
