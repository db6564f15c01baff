//! Why no TCP connection came about.

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::error::advice::Advice;
use crate::error::kind::ErrorKind;

/// Why no TCP connection came about.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host's name has no address.
    #[error("the host {host:?} is not known ({reason})")]
    HostUnknown {
        /// The name.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// The name service says that it cannot tell now, or does not answer.
    #[error("the name service does not say now where the host {host:?} is ({reason})")]
    NameService {
        /// The name.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// The host is there, but nothing listens.
    #[error("nothing listens at {address}")]
    Refused {
        /// The address and port.
        address: SocketAddr,
    },
    /// No answer.
    #[error("no connection to {portal} in time")]
    TimedOut {
        /// The portal, `host:port`.
        portal: String,
    },
    /// The target sends the login on to where it is not followed, or names a portal that is not used; see
    /// [`Redirects`](crate::Redirects).
    #[error("the target at {by} names {portal}, {reason}")]
    NotFollowed {
        /// The address of the portal that says so.
        by: IpAddr,
        /// The portal that it names, `host:port`.
        portal: String,
        /// Why.
        reason: &'static str,
        /// What can be done.
        advice: Advice,
    },
    /// Anything else.
    #[error("cannot connect to {address}: {reason}")]
    Failed {
        /// The address and port.
        address: SocketAddr,
        /// What the system says.
        reason: String,
    },
}

impl ConnectError {
    /// What can be done about it.
    pub const fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::HostUnknown { .. } => Advice::CheckHostName,
            Self::NameService { .. } => Advice::WaitForTarget,
            Self::Refused { .. } => Advice::CheckPort,
            Self::TimedOut { .. } => Advice::CheckFirewall,
            Self::NotFollowed { advice, .. } => *advice,
            Self::Failed { .. } => Advice::CheckRoute,
        })
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        match self {
            Self::HostUnknown { .. } => ErrorKind::NotFound,
            Self::NotFollowed { .. } => ErrorKind::Authentication,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::NameService { .. } | Self::Failed { .. } => ErrorKind::Unreachable,
        }
    }
}
