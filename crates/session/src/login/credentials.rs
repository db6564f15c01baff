//! Checks that credentials are strong enough to be used (RFC 7143 §9.2.1).

use iscsi_pdu::keys::{MAX_VALUE_LEN, MIN_SECRET_LEN};

use super::error::AuthenticationError;
use crate::chap::Secret;
use crate::config::Chap;

/// Checks the credentials of both sides before a login uses them.
pub(super) fn check(chap: &Chap) -> Result<(), AuthenticationError> {
    if !(1..=MAX_VALUE_LEN).contains(&chap.user.len()) || chap.user.contains('\0') {
        return Err(AuthenticationError::UserName);
    }
    if chap.algorithms.is_empty() {
        return Err(AuthenticationError::NoAlgorithm);
    }
    check_length(&chap.secret, chap.allow_short_secret)?;
    let Some(target) = &chap.target else { return Ok(()) };
    check_length(&target.secret, chap.allow_short_secret)?;
    if chap.secret.equals(&target.secret) {
        return Err(AuthenticationError::SameSecret);
    }
    Ok(())
}

fn check_length(secret: &Secret, allow_short: bool) -> Result<(), AuthenticationError> {
    if secret.len() >= MIN_SECRET_LEN {
        return Ok(());
    }
    if secret.is_empty() || !allow_short {
        return Err(AuthenticationError::ShortSecret);
    }
    tracing::warn!(
        "a CHAP secret is shorter than 96 bits, so an attacker who sees the login can guess it; choose 12 to 16 random bytes"
    );
    Ok(())
}
