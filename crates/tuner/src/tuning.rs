//! Holds the user's settings of the tuner.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use iscsi_rate::Rate;

/// The user's settings; the default leaves everything to the tuner.
///
/// ```
/// use iscsi_tuner::{Policy, Tuning};
///
/// let rate = "100mbit".parse()?;
/// let tuning = Tuning::default().with_policy(Policy::Autotune).with_bandwidth(Some(rate));
/// assert_eq!(tuning.bandwidth(), Some(rate));
/// # Ok::<(), iscsi_tuner::RateError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tuning {
    pub(crate) policy: Policy,
    pub(crate) bandwidth: Option<Rate>,
    pub(crate) memory: Option<u64>,
    pub(crate) send_buffer: Option<u64>,
    pub(crate) receive_buffer: Option<u64>,
    pub(crate) no_delay: Option<bool>,
    pub(crate) sends: Option<Sends>,
    pub(crate) congestion_control: Option<String>,
}

impl Tuning {
    /// Sets the policy that decides about the socket.
    #[must_use]
    pub const fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Declares the rate of the narrowest part of the link, if it is known.
    #[must_use]
    pub const fn with_bandwidth(mut self, bandwidth: Option<Rate>) -> Self {
        self.bandwidth = bandwidth;
        self
    }

    /// Limits the data that a socket buffer may hold if the tuner sets its size, bytes; the kernel takes
    /// twice that memory. `None`: as much as the link needs.
    #[must_use]
    pub const fn with_memory(mut self, memory: Option<u64>) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the send buffer, bytes, 4 KiB to 1 GiB, whatever the policy decides. `None`: the policy decides.
    #[must_use]
    pub const fn with_send_buffer(mut self, send_buffer: Option<u64>) -> Self {
        self.send_buffer = send_buffer;
        self
    }

    /// Sets the receive buffer, bytes, 4 KiB to 1 GiB, whatever the policy decides. `None`: the policy
    /// decides.
    #[must_use]
    pub const fn with_receive_buffer(mut self, receive_buffer: Option<u64>) -> Self {
        self.receive_buffer = receive_buffer;
        self
    }

    /// Sets whether small segments are sent immediately (`TCP_NODELAY`) or held back (Nagle). `None`: the
    /// policy decides.
    #[doc(alias = "nagle")]
    #[must_use]
    pub const fn with_no_delay(mut self, no_delay: Option<bool>) -> Self {
        self.no_delay = no_delay;
        self
    }

    /// Sets how much data is passed in one system call. `None`: the policy decides.
    #[must_use]
    pub const fn with_sends(mut self, sends: Option<Sends>) -> Self {
        self.sends = sends;
        self
    }

    /// Sets the congestion control, by name. `None`: the tuner decides.
    #[must_use]
    pub fn with_congestion_control(mut self, congestion_control: Option<String>) -> Self {
        self.congestion_control = congestion_control;
        self
    }

    /// Returns the declared rate of the link.
    #[must_use]
    pub const fn bandwidth(&self) -> Option<Rate> {
        self.bandwidth
    }
}

/// Policies for the settings of the socket.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Policy {
    /// The kernel tunes buffers as far as its limit allows; the tuner sets a buffer where that gives more.
    #[default]
    Auto,
    /// Buffers have the size that the link needs. The kernel tunes them only where the size that may be set is
    /// too small, and the kernel's tuning allows more.
    Static,
    /// The kernel tunes all buffers.
    Autotune,
    /// The recommended scheme of Y. Zhang and M. H. MacGregor, "Tuning Open-iSCSI for Operation over
    /// WAN Links" (2011): by round-trip time, its stability, and memory.
    Thesis,
    /// Only `TCP_NODELAY` is set on the socket.
    Off,
}

/// How much data is passed in one system call.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Sends {
    /// At most one page of 4096 bytes.
    OnePage,
    /// As many pages and PDUs as the kernel accepts.
    #[default]
    ManyPages,
}

/// Text that is not the name of a [`Policy`].
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{0:?} is no way to tune; there are auto, static, autotune, thesis and off")]
pub struct UnknownPolicy(String);

impl Policy {
    /// All policies.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Static, Self::Autotune, Self::Thesis, Self::Off];

    /// Returns the policy's name, as users write it.
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
