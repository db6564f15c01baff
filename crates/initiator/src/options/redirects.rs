//! Defines which redirections of a login are followed.

/// Which redirections of a login are followed (RFC 7143 §11.13.5).
///
/// A redirection may arrive before either side has proved its identity. So any host that answers at the
/// portal can redirect the initiator, its CHAP response and its data to another host. With mutual CHAP, the
/// new host must prove that it knows the target's secret before it receives any request. Without mutual CHAP,
/// the identity of the new host is not checked.
///
/// Two rules apply to every choice, so that a remote target cannot reach services that listen on this host or
/// link. An address of this host (127.0.0.0/8, ::1) is followed only if the portal that redirects has such an
/// address, too. An address of this link (169.254.0.0/16, fe80::/10) is followed only if that portal has an
/// address of this link or of this host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Redirects {
    /// With mutual CHAP, follows a redirection to any host, because it must prove its identity. Without it,
    /// follows a redirection only to another port of the same host.
    #[default]
    Proven,
    /// Follows no redirection.
    Never,
    /// Follows a redirection to another port of the same host.
    SameHost,
    /// Follows a redirection to any host. Arrays whose group address redirects to a member (EqualLogic, PS
    /// Series) need this, unless they use mutual CHAP.
    Any,
}

impl Redirects {
    /// Parses the value of the URL's option.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "never" => Some(Self::Never),
            "same-host" => Some(Self::SameHost),
            "any" => Some(Self::Any),
            _ => None,
        }
    }

    /// Returns the rule for a login. `is_mutual` is whether the login uses mutual CHAP, so that the target
    /// must prove its identity.
    pub(crate) const fn of_login(self, is_mutual: bool) -> Self {
        match self {
            Self::Proven if is_mutual => Self::Any,
            Self::Proven => Self::SameHost,
            Self::Never | Self::SameHost | Self::Any => self,
        }
    }
}
