//! Outlook of further logins after a failed login.

/// Whether further logins may succeed, by the cause of a failed login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outlook {
    /// The cause may be temporary.
    MayPass,
    /// The target accepted the login. The later failure may be temporary.
    LoginAccepted,
    /// Authentication of the initiator or of the target has failed. A target may read its accounts only after
    /// it accepts connections, but each try may count towards locking the account, so there are few tries.
    Credentials,
    /// Another try at the same portal would fail in the same way, but another portal may be the right one.
    OtherPortal,
    /// No later try can succeed.
    Never,
}
