//! Outlook of further logins after a failed one.

/// Outlook of further logins, by the cause of a failed one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outlook {
    /// The cause may be temporary.
    MayPass,
    /// The target accepted the login. The later failure may be temporary.
    LoginAccepted,
    /// One side has not authenticated itself. A target may read its accounts only after it listens, but each
    /// try may count towards locking the account, so there are few tries.
    Credentials,
    /// Another try at the same portal would end the same way; another portal may be the right one.
    OtherPortal,
    /// Waiting does not help.
    Never,
}
