//! Defines the errors of the network: no TCP connection was opened.

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::error::advice::Advice;
use crate::error::fault::Fault;
use crate::error::kind::ErrorKind;

/// Reason that lies with the network: no TCP connection was opened.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub(crate) enum LinkCause {
    /// The host's name has no address.
    #[error("the host {host:?} is not known ({reason})")]
    HostUnknown {
        /// Name of the host.
        host: String,
        /// Reason, in the words of the system.
        reason: String,
    },
    /// The name service reports a temporary failure, or does not answer.
    #[error("the name service does not say now where the host {host:?} is ({reason})")]
    NameService {
        /// Name of the host.
        host: String,
        /// Reason, in the words of the system.
        reason: String,
    },
    /// Nothing listens at the port of the host.
    #[error("nothing listens at {address}")]
    Refused {
        /// Address and port.
        address: SocketAddr,
    },
    /// The portal did not answer within the time limit.
    #[error("no connection to {portal} in time")]
    TimedOut {
        /// Portal, `host:port`.
        portal: String,
    },
    /// The target names another portal, for example in a redirection of the login, and the options or the
    /// address of that portal do not permit its use. See [`Redirects`](crate::Redirects).
    #[error("the target at {by} names {portal}, {reason}")]
    NotFollowed {
        /// Address of the portal that sent the redirection.
        by: IpAddr,
        /// Portal to which the login was redirected, or that the target names, `host:port`.
        portal: String,
        /// Reason, as a part of the message.
        reason: &'static str,
        /// The remedy.
        advice: Advice,
    },
    /// The connection is not secured: the peer does not prove who it is, or does not speak TLS as it must.
    #[error("the peer at {address} is not trusted: {reason}")]
    NotTrusted {
        /// Address and port.
        address: SocketAddr,
        /// Reason, in the words of the TLS library.
        reason: String,
    },
    /// The connection is open, but the peer does not answer the handshake of TLS.
    #[error("the peer at {address} does not answer the handshake of TLS in time")]
    NoHandshake {
        /// Address and port.
        address: SocketAddr,
    },
    /// The files or the name that the URL gives for TLS cannot be used.
    #[error("TLS cannot be used: {reason}")]
    TlsOptions {
        /// Reason, in the words of the TLS library or of the system.
        reason: String,
    },
    /// The URL asks for TLS, and the options of the initiator provide none.
    #[error("the URL asks for TLS, but this program provides none")]
    NoTls,
    /// The connection failed for another reason.
    #[error("cannot connect to {address}: {reason}")]
    Failed {
        /// Address and port.
        address: SocketAddr,
        /// Reason, in the words of the system.
        reason: String,
    },
}

impl LinkCause {
    pub(super) const fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::HostUnknown { .. } => Advice::CheckHostName,
            Self::NameService { .. } => Advice::WaitForTarget,
            Self::Refused { .. } => Advice::CheckPort,
            Self::TimedOut { .. } => Advice::CheckFirewall,
            Self::NotFollowed { advice, .. } => *advice,
            Self::NotTrusted { .. } => Advice::CheckCertificate,
            Self::NoHandshake { .. } => Advice::CheckTlsPort,
            Self::TlsOptions { .. } => Advice::CheckTlsFiles,
            Self::NoTls => Advice::ProvideTls,
            Self::Failed { .. } => Advice::CheckRoute,
        })
    }

    pub(super) const fn kind(&self) -> ErrorKind {
        match self {
            Self::HostUnknown { .. } => ErrorKind::NotFound,
            Self::NotFollowed { .. } | Self::NotTrusted { .. } => ErrorKind::Authentication,
            Self::TlsOptions { .. } => ErrorKind::InvalidInput,
            Self::NoTls => ErrorKind::Unsupported,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::TimedOut { .. } | Self::NoHandshake { .. } => ErrorKind::TimedOut,
            Self::NameService { .. } | Self::Failed { .. } => ErrorKind::Unreachable,
        }
    }

    pub(super) const fn fault(&self) -> Fault {
        match self {
            Self::NotFollowed { .. } | Self::NotTrusted { .. } => Fault::Target,
            Self::TlsOptions { .. } | Self::NoTls => Fault::Caller,
            Self::HostUnknown { .. }
            | Self::NameService { .. }
            | Self::Refused { .. }
            | Self::TimedOut { .. }
            | Self::NoHandshake { .. }
            | Self::Failed { .. } => Fault::Network,
        }
    }

    /// Returns the portal that was not reached; `None` if no address of its host was found.
    pub(super) fn portal(&self) -> Option<String> {
        match self {
            Self::Refused { address }
            | Self::NotTrusted { address, .. }
            | Self::NoHandshake { address }
            | Self::Failed { address, .. } => Some(address.to_string()),
            Self::TimedOut { portal } | Self::NotFollowed { portal, .. } => Some(portal.clone()),
            Self::HostUnknown { .. }
            | Self::NameService { .. }
            | Self::TlsOptions { .. }
            | Self::NoTls => None,
        }
    }
}
