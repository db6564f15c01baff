//! Which redirections of a login are followed.

/// Which redirections of a login are followed (RFC 7143 §11.13.5).
///
/// A redirection may come before either side has proven itself, so anybody who answers at the portal can send the
/// initiator, its CHAP response and its data to another host. With mutual CHAP that host must prove the target's secret
/// before it gets any request; without, nothing shows whose host it is.
///
/// Whatever is chosen, an address of this host alone (127.0.0.0/8, ::1) is gone to only from another one, and an address of
/// this link (169.254.0.0/16, fe80::/10) only from such a one or from this host: a target elsewhere has no
/// business with services that listen there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Redirects {
    /// To any host where that must prove itself (mutual CHAP), otherwise on the same host.
    #[default]
    Proven,
    /// None is followed.
    Never,
    /// Those to another port of the same host.
    SameHost,
    /// Those to any host. Arrays whose group address redirects to a member (EqualLogic, PS Series) need it, unless
    /// they prove themselves.
    Any,
}

impl Redirects {
    /// Reads the value of a URL's option.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "never" => Some(Self::Never),
            "same-host" => Some(Self::SameHost),
            "any" => Some(Self::Any),
            _ => None,
        }
    }

    /// What counts for a login after which the target has proven itself, or not.
    pub(crate) const fn of_login(self, is_mutual: bool) -> Self {
        match self {
            Self::Proven if is_mutual => Self::Any,
            Self::Proven => Self::SameHost,
            Self::Never | Self::SameHost | Self::Any => self,
        }
    }
}
