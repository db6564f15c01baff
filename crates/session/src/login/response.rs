//! The fields of a Login Response besides its text (RFC 7143 §11.13).

use iscsi_pdu::keys::{Key, decode_pairs};
use iscsi_pdu::{Itt, LOGIN_VERSION, LoginResponse, LoginStatus, Stage, StatSn, TargetAddress};

use super::error::LoginViolation;

/// The address to which a target redirects (RFC 7143 §11.13.5, status class 1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Redirect {
    pub(crate) address: TargetAddress,
    /// Whether the new address also holds for later logins.
    pub(crate) permanent: bool,
}

/// The values with which the header of a response is compared.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) itt: Itt,
    pub(super) stage: Stage,
    /// Whether the request proposed the next stage.
    pub(super) transit: bool,
    /// The StatSN that must come; `None` before the first response, whose StatSN may be any.
    pub(super) stat_sn: Option<StatSn>,
}

impl Expected {
    /// Checks a response of status class 0. The fields of other responses are not reliable. The ISID is not
    /// checked: some targets do not echo it, and a connection has only one login.
    pub(super) fn check(&self, response: &LoginResponse) -> Result<(), LoginViolation> {
        if response.itt != self.itt {
            return Err(LoginViolation::Mismatch("Initiator Task Tag"));
        }
        if response.version_active != LOGIN_VERSION {
            return Err(LoginViolation::Version(response.version_active));
        }
        if response.current_stage != self.stage {
            return Err(LoginViolation::Mismatch("CSG"));
        }
        self.check_transit(response)?;
        match self.stat_sn {
            Some(expected) if expected != response.stat_sn => {
                Err(LoginViolation::StatSn { expected, found: response.stat_sn })
            }
            _ => Ok(()),
        }
    }

    fn check_transit(&self, response: &LoginResponse) -> Result<(), LoginViolation> {
        let proposed = self.transit && response.next_stage == Some(next_stage(self.stage));
        if response.transit && (response.is_continued || !proposed) {
            return Err(LoginViolation::Transition);
        }
        Ok(())
    }
}

/// Checks the response to a text that is not complete: the target must not send text yet (RFC 7143 §11.12.2).
pub(super) fn check_acknowledgement(
    response: &LoginResponse,
    data: &[u8],
) -> Result<(), LoginViolation> {
    if response.is_continued || !data.is_empty() {
        return Err(LoginViolation::Interruption);
    }
    Ok(())
}

/// The stage that a request proposes to go to.
pub(super) const fn next_stage(stage: Stage) -> Stage {
    match stage {
        Stage::SecurityNegotiation => Stage::OperationalNegotiation,
        Stage::OperationalNegotiation | Stage::FullFeature => Stage::FullFeature,
    }
}

/// Reads the address of a redirection (RFC 7143 §11.13.5, status class 1). An unknown status detail counts as
/// temporary.
pub(super) fn read_redirect(status: LoginStatus, text: &[u8]) -> Result<Redirect, LoginViolation> {
    let pairs = decode_pairs(text).map_err(|_| LoginViolation::Redirection)?;
    let mut values = pairs.iter().filter(|(key, _)| *key == Key::TargetAddress.name());
    let address = values.find_map(|(_, value)| TargetAddress::parse(value).ok());
    let address = address.ok_or(LoginViolation::Redirection)?;
    Ok(Redirect { address, permanent: status == LoginStatus::TARGET_MOVED_PERMANENTLY })
}
