//! Access state of a target port towards the unit, and how good it makes a path (SPC-4 §5.11.2).

use iscsi_pdu::scsi::{AccessState, AdditionalSense, Sense};

/// State of a target port towards the unit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Access {
    /// Access state of the port's group.
    pub state: AccessState,
    /// PREF: the unit would rather be used through this port.
    pub preferred: bool,
}

/// How good a port is; the least is the best. Requests use only the best paths that there are.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Priority(u8);

impl Access {
    /// A port of a unit that reports no port groups: each port is as good as any other.
    pub const UNKNOWN: Self = Self { state: AccessState::ActiveOptimized, preferred: false };

    /// A port in this state, not preferred.
    pub const fn of_state(state: AccessState) -> Self {
        Self { state, preferred: false }
    }

    /// Returns the state of a port that refused a command with this sense data; `None` if the sense
    /// is not about the port.
    pub fn refused(sense: &Sense) -> Option<Self> {
        if sense.deferred {
            return None;
        }
        let state = match sense.additional {
            AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION => AccessState::Transitioning,
            AdditionalSense::TARGET_PORT_IN_STANDBY_STATE => AccessState::Standby,
            AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE => AccessState::Unavailable,
            AdditionalSense::LOGICAL_UNIT_OFFLINE => AccessState::Offline,
            _ => return None,
        };
        Some(Self::of_state(state))
    }

    /// Returns the state of a port that refused a command which every disk knows, with INVALID FIELD
    /// IN CDB: the answer of LIO 6.1 to every command through a port group that is offline.
    pub fn suspected(sense: &Sense) -> Option<Self> {
        let is_senseless =
            !sense.deferred && sense.additional == AdditionalSense::INVALID_FIELD_IN_CDB;
        is_senseless.then_some(Self::of_state(AccessState::Offline))
    }

    /// Returns whether the port takes reads and writes.
    pub const fn serves(self) -> bool {
        self.state.is_active()
    }

    /// Returns how good the port is: by its state, then by preference.
    pub const fn priority(self) -> Priority {
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
        Priority(if self.preferred { by_state } else { by_state + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn access(state: AccessState) -> Access {
        Access::of_state(state)
    }

    #[test]
    fn ports_are_ordered_by_their_state_and_then_by_preference() {
        let states = [
            AccessState::ActiveOptimized,
            AccessState::LogicalBlockDependent,
            AccessState::ActiveNonOptimized,
            AccessState::Transitioning,
            AccessState::Standby,
            AccessState::Unavailable,
            AccessState::Offline,
        ];
        assert!(states.is_sorted_by_key(|state| access(*state).priority()));
        for state in states {
            let preferred = Access { state, preferred: true };
            assert!(preferred.priority() < access(state).priority());
        }
        let reluctant = Access { state: AccessState::ActiveNonOptimized, preferred: true };
        assert!(access(AccessState::ActiveOptimized).priority() < reluctant.priority());
        assert_eq!(states.iter().filter(|state| access(**state).serves()).count(), 3);
        assert_eq!(Access::UNKNOWN, access(AccessState::ActiveOptimized));
    }

    #[test]
    fn a_refusal_names_the_state_of_the_port() {
        let sense = |response, asc, ascq| {
            let bytes = [response, 0, 2, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
            Sense::decode(&bytes).unwrap()
        };
        let refused = |asc, ascq| Access::refused(&sense(0x70, asc, ascq));
        assert_eq!(refused(0x04, 0x0a), Some(access(AccessState::Transitioning)));
        assert_eq!(refused(0x04, 0x0b), Some(access(AccessState::Standby)));
        assert_eq!(refused(0x04, 0x0c), Some(access(AccessState::Unavailable)));
        assert_eq!(refused(0x04, 0x12), Some(access(AccessState::Offline)));
        assert_eq!(refused(0x04, 0x01), None);
        assert_eq!(Access::refused(&sense(0x71, 0x04, 0x0b)), None, "deferred");
        assert_eq!(Access::suspected(&sense(0x70, 0x24, 0)).map(Access::serves), Some(false));
        assert_eq!(Access::suspected(&sense(0x70, 0x20, 0)), None);
    }
}
