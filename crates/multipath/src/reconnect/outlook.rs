//! What a failed login says of the next one.

/// Whether the cause of a failed login may pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outlook {
    /// The cause may pass by itself.
    MayPass,
    /// The target accepted the login. What failed behind it may pass by itself.
    LoginAccepted,
    /// One side did not prove itself. A target may read its accounts later than it listens, but each try may count
    /// towards locking the account, so there are few.
    Credentials,
    /// Another try at the same portal ends the same way; another portal may be right.
    OtherPortal,
    /// No wait changes it.
    Never,
}
