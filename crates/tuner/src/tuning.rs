//! What the user asks of the tuner.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use iscsi_rate::Rate;

/// The wishes of the user; the default leaves everything to the tuner.
///
/// ```
/// use iscsi_tuner::{Policy, Tuning};
///
/// let mut tuning = Tuning::default();
/// tuning.policy = Policy::Autotune;
/// tuning.bandwidth = Some("100mbit".parse()?);
/// # Ok::<(), iscsi_tuner::RateError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tuning {
    /// The policy that decides about the socket.
    pub policy: Policy,
    /// The rate of the narrowest part of the link, if it is known.
    pub bandwidth: Option<Rate>,
    /// The most data that a socket buffer which is set may hold, bytes; the kernel takes twice that
    /// for it. `None` is as much as the link needs.
    pub memory: Option<u64>,
    /// The send buffer, bytes, 4 KiB to 1 GiB; overrides the plan.
    pub send_buffer: Option<u64>,
    /// The receive buffer, bytes, 4 KiB to 1 GiB; overrides the plan.
    pub receive_buffer: Option<u64>,
    /// Whether small segments are sent immediately (`TCP_NODELAY`) or held back (Nagle).
    #[doc(alias = "nagle")]
    pub no_delay: Option<bool>,
    /// The amount of data in one system call.
    pub sends: Option<Sends>,
    /// The congestion control by its name.
    pub congestion_control: Option<String>,
}

/// Policies for the settings of the socket.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Policy {
    /// The kernel tunes buffers as far as it reaches; beyond, the tuner sets them if that is more.
    #[default]
    Auto,
    /// Buffers of the size that the link needs; left to the kernel where no more may be set than its
    /// tuning reaches, and that is too little.
    Static,
    /// The kernel tunes all buffers.
    Autotune,
    /// The recommended scheme of Y. Zhang and M. H. MacGregor, "Tuning Open-iSCSI for Operation over
    /// WAN Links" (2011): by round-trip time, its stability, and memory.
    Thesis,
    /// Nothing is set on the socket but `TCP_NODELAY`.
    Off,
}

/// The amount of data in one system call.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Sends {
    /// At most one page of 4096 bytes.
    OnePage,
    /// All pages, and PDUs, that the kernel accepts.
    #[default]
    ManyPages,
}

/// Text that names no [`Policy`].
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is no way to tune; there are auto, static, autotune, thesis and off")]
pub struct UnknownPolicy(String);

impl Policy {
    /// All policies.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Static, Self::Autotune, Self::Thesis, Self::Off];

    /// The policy's name, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Static => "static",
            Self::Autotune => "autotune",
            Self::Thesis => "thesis",
            Self::Off => "off",
        }
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_go_by_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("fast".parse::<Policy>(), Err(UnknownPolicy("fast".to_owned())));
    }
}
