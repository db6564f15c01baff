//! Redirections of a login that are followed.

/// Which redirections of a login are followed (RFC 7143 §11.13.5).
///
/// A redirection may come before either side has proved its identity. So any host that answers at the portal
/// can redirect the initiator, its CHAP response and its data to another host. With mutual CHAP that host
/// must prove the target's secret before it receives any request; without it, nothing shows whose host it is.
///
/// Two rules apply to every choice. An address of this host (127.0.0.0/8, ::1) is followed only if the portal
/// that redirects has such an address, too. An address of this link (169.254.0.0/16, fe80::/10) is followed
/// only if that portal has an address of this link or of this host. A target elsewhere must not reach
/// services that listen there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Redirects {
    /// Follows to any host that must prove its identity (mutual CHAP), otherwise only on the same
    /// host.
    #[default]
    Proven,
    /// Follows no redirection.
    Never,
    /// Follows to another port of the same host.
    SameHost,
    /// Follows to any host. Arrays whose group address redirects to a member (EqualLogic, PS
    /// Series) need it, unless they use mutual CHAP.
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

    /// Returns the rule for a login. `is_mutual` is whether the target proves its identity in it.
    pub(crate) const fn of_login(self, is_mutual: bool) -> Self {
        match self {
            Self::Proven if is_mutual => Self::Any,
            Self::Proven => Self::SameHost,
            Self::Never | Self::SameHost | Self::Any => self,
        }
    }
}
