//! State that all logins of a session share.

use std::fmt;

use bytes::Bytes;
use iscsi_pdu::LoginRequest;

use super::Login;
use crate::config::Config;
use crate::entropy::Entropy;

/// The source of challenges, and facts about the target that earlier logins found.
pub(crate) struct Logins {
    entropy: Box<dyn Entropy>,
    /// Whether the target cannot read a list of CHAP algorithms.
    single_chap_algorithm: bool,
}

impl Logins {
    pub(crate) fn new(entropy: impl Entropy + 'static) -> Self {
        Self { entropy: Box::new(entropy), single_chap_algorithm: false }
    }

    /// Makes later logins propose only MD5.
    pub(crate) const fn use_single_chap_algorithm(&mut self) {
        self.single_chap_algorithm = true;
    }

    /// Returns whether the next login proposes only MD5.
    pub(crate) const fn uses_single_chap_algorithm(&self) -> bool {
        self.single_chap_algorithm
    }

    /// Returns the next request of a login with its text, if it is the initiator's turn to send.
    pub(crate) fn poll_request(
        &mut self,
        login: &mut Login,
        config: &Config,
    ) -> Option<(LoginRequest, Bytes)> {
        login.poll_request(config, &mut *self.entropy)
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins")
            .field("single_chap_algorithm", &self.single_chap_algorithm)
            .finish_non_exhaustive()
    }
}
