//! Access states of target ports (SPC-4 §5.11.2).

use iscsi_pdu::scsi::{AccessState, AdditionalSense, Sense};

/// State of a target port for the unit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Access {
    /// The asymmetric access state.
    pub state: AccessState,
    /// PREF: the unit prefers to be used through this port.
    pub preferred: bool,
}

/// Priority of a port; the lowest is the best. Requests go to the best ports and to no others.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Priority(u8);

impl Access {
    /// The state of each port of a unit that does not report states: each port is as good as any other.
    pub const UNKNOWN: Self = Self { state: AccessState::ActiveOptimized, preferred: false };

    /// Creates the state of a port that the unit does not prefer.
    #[must_use]
    pub const fn of_state(state: AccessState) -> Self {
        Self { state, preferred: false }
    }

    /// Returns the state of a port that refuses a command with these sense data; `None` if they do not name an
    /// access state.
    #[must_use]
    pub fn of_refusal(sense: &Sense) -> Option<Self> {
        let state = match sense.additional {
            _ if sense.deferred => return None,
            AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION => AccessState::Transitioning,
            AdditionalSense::TARGET_PORT_IN_STANDBY_STATE => AccessState::Standby,
            AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE => AccessState::Unavailable,
            AdditionalSense::LOGICAL_UNIT_OFFLINE => AccessState::Offline,
            _ => return None,
        };
        Some(Self { state, preferred: false })
    }

    /// Returns the state to assume for a port that refuses a command that every disk supports: `Offline` after
    /// INVALID FIELD IN CDB, otherwise `None`. LIO 6.1 refuses every command through an offline group with
    /// that code.
    #[must_use]
    pub fn suspected(sense: &Sense) -> Option<Self> {
        let is_senseless =
            !sense.deferred && sense.additional == AdditionalSense::INVALID_FIELD_IN_CDB;
        is_senseless.then_some(Self { state: AccessState::Offline, preferred: false })
    }

    /// Returns whether the port accepts reads and writes.
    #[must_use]
    pub const fn serves(self) -> bool {
        self.state.is_active()
    }

    /// Returns the priority of the port.
    #[must_use]
    pub const fn priority(self) -> Priority {
        let by_state = match self.state {
            AccessState::ActiveOptimized => 0,
            AccessState::LogicalBlockDependent => 2,
            AccessState::ActiveNonOptimized => 4,
            // The port may serve the unit soon.
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
        Access { state, preferred: false }
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
        for (asc, ascq, refused, suspected) in [
            (0x04, 0x0a, Some(AccessState::Transitioning), None),
            (0x04, 0x0b, Some(AccessState::Standby), None),
            (0x04, 0x0c, Some(AccessState::Unavailable), None),
            (0x04, 0x12, Some(AccessState::Offline), None),
            (0x24, 0x00, None, Some(AccessState::Offline)),
            (0x04, 0x01, None, None),
        ] {
            let current = sense(0x70, asc, ascq);
            assert_eq!(Access::of_refusal(&current), refused.map(access), "{asc:02x}/{ascq:02x}");
            assert_eq!(Access::suspected(&current), suspected.map(access), "{asc:02x}/{ascq:02x}");
            let deferred = sense(0x71, asc, ascq);
            assert_eq!((Access::of_refusal(&deferred), Access::suspected(&deferred)), (None, None));
        }
    }
}
