//! Opens the connections to a portal.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_pdu::keys::printable;
use iscsi_tuner::{SegmentLimit, Tuning};
use tokio::time::{Instant, timeout_at};

use crate::driver::clear_text::ClearText;
use crate::driver::measure::tuner::Tuner;
use crate::driver::referral::Referral;
use crate::error::LinkCause;
use crate::state::segment_limits::{SegmentLimits, StartTrial};
use crate::transport::{Network, Socket, Tls};
use crate::url::{TlsOptions, portal_name};

/// An open connection, and the tuner that has set it up.
pub(crate) type Connected = (Box<dyn Socket>, Tuner);

/// A connection that is being opened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Connected, LinkCause>> + Send>>;

/// How connections are opened.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// Time limit for opening one connection; all addresses of its portal share it.
    pub(crate) limit: Duration,
    pub(crate) network: Arc<dyn Network>,
    pub(crate) tuning: Tuning,
    pub(crate) segments: Segments,
    pub(crate) encryption: Encryption,
}

/// Encryption of the connections.
#[derive(Clone, Debug)]
pub(crate) enum Encryption {
    /// Clear text; `None` if another network than TCP carries it, which may encrypt it.
    Clear(Option<Arc<ClearText>>),
    Tls(Arc<dyn Tls>, TlsOptions),
    /// The URL asks for TLS, but the options of the initiator provide none: no connection is opened.
    Missing,
}

/// Limit of the length of a connection's TCP segments.
#[derive(Clone, Debug)]
pub(crate) enum Segments {
    /// The limit that earlier trials of the path to the address have found.
    AsKnown(Arc<SegmentLimits>),
    /// The limit that a trial tests; `None` for full segments.
    Fixed(Option<SegmentLimit>),
}

/// Source of the connections of a session.
pub(crate) struct Reach {
    pub(crate) connector: Connector,
    /// A connection to the portal that is open already; `None` if one must be opened.
    pub(crate) reached: Option<Box<Connected>>,
    /// Number of connections to open.
    pub(crate) connections: u16,
    /// Starts a trial of the path of a connection that stands still: whether the path drops long packets.
    /// `None` for discovery, and for the sessions of a trial.
    pub(crate) start_trial: Option<StartTrial>,
}

impl Segments {
    fn limit_to(&self, address: SocketAddr) -> Option<SegmentLimit> {
        match self {
            Self::AsKnown(limits) => limits.get(address.ip()),
            Self::Fixed(limit) => *limit,
        }
    }
}

impl Connector {
    /// Opens a connection to a portal. Tries the portal's addresses one after the other; each gets an equal
    /// share of the time that is left. If a peer has named the portal (`referral`), tries only the addresses
    /// that this peer may name.
    pub(crate) fn open(&self, portal: TargetAddress, referral: Option<Referral>) -> Opening {
        Box::pin(self.clone().connect(portal, referral))
    }

    /// Returns the addresses of a portal; an empty list if they are not resolved in time.
    pub(crate) async fn addresses_of(&self, portal: &TargetAddress) -> Vec<SocketAddr> {
        self.resolve(portal, Instant::now() + self.limit).await.unwrap_or_default()
    }

    async fn connect(
        self,
        portal: TargetAddress,
        referral: Option<Referral>,
    ) -> Result<Connected, LinkCause> {
        let deadline = Instant::now() + self.limit;
        let mut addresses = self.resolve(&portal, deadline).await?;
        if let Some(referral) = referral {
            // The resolved addresses are checked, so that no name service can circumvent the check.
            addresses = referral.permitted(&portal, addresses)?;
        }
        let mut last = None;
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            match self.connect_to(&portal, *address, Instant::now() + share).await {
                Ok(connected) => return Ok(connected),
                // A peer that is not trusted is reported, even if another address fails for a reason that may pass.
                Err(_) if matches!(last, Some(LinkCause::NotTrusted { .. })) => {}
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| LinkCause::TimedOut { portal: portal_name(&portal) }))
    }

    /// Opens a connection to one address, and encrypts it if the URL asks for that.
    async fn connect_to(
        &self,
        portal: &TargetAddress,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<Connected, LinkCause> {
        match &self.encryption {
            Encryption::Clear(clear) => {
                let connected = self.set_up(portal, address, deadline).await?;
                clear.iter().for_each(|clear| clear.warn_once(address));
                Ok(connected)
            }
            Encryption::Tls(tls, options) => {
                let (socket, tuner) = self.set_up(portal, address, deadline).await?;
                match timeout_at(deadline, tls.secure(socket, portal, options)).await {
                    Ok(Ok(socket)) => Ok((socket, tuner)),
                    Ok(Err(error)) => Err(tls_cause(&error, address)),
                    Err(_) => Err(LinkCause::NoHandshake { address }),
                }
            }
            Encryption::Missing => Err(LinkCause::NoTls),
        }
    }

    /// Opens a connection and sets it up as the tuner plans. If the plan for the measured round-trip time has a
    /// value that takes effect only before connecting, connects again.
    async fn set_up(
        &self,
        portal: &TargetAddress,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<Connected, LinkCause> {
        let limit = self.segments.limit_to(address);
        let mut tuner = Tuner::within(self.network.limits(), self.tuning.clone(), address, limit);
        let opening = async {
            let mut socket = self.network.connect(portal, address, tuner.plan()).await?;
            if tuner.connected(&*socket) {
                drop(socket);
                socket = self.network.connect(portal, address, tuner.plan()).await?;
            }
            tuner.apply(&*socket);
            Ok(socket)
        };
        match timeout_at(deadline, opening).await {
            Ok(Ok(socket)) => Ok((socket, tuner)),
            Ok(Err(error)) => Err(link_cause(&error, address)),
            Err(_) => Err(LinkCause::TimedOut { portal: address.to_string() }),
        }
    }

    /// Resolves a portal to its addresses.
    async fn resolve(
        &self,
        portal: &TargetAddress,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, LinkCause> {
        let host = portal.host.clone();
        let reason = match timeout_at(deadline, self.network.resolve(portal)).await {
            Ok(Ok(addresses)) if addresses.is_empty() => "no address".to_owned(),
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                let reason = "no answer in time".to_owned();
                return Err(LinkCause::NameService { host, reason });
            }
        };
        Err(if is_try_again(&reason) {
            LinkCause::NameService { host, reason }
        } else {
            LinkCause::HostUnknown { host, reason }
        })
    }
}

/// Returns why a connection was not opened.
fn link_cause(error: &io::Error, address: SocketAddr) -> LinkCause {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        LinkCause::Refused { address }
    } else if error.kind() == io::ErrorKind::TimedOut {
        LinkCause::TimedOut { portal: address.to_string() }
    } else {
        LinkCause::Failed { address, reason: error.to_string() }
    }
}

/// Returns why an open connection was not encrypted.
fn tls_cause(error: &io::Error, address: SocketAddr) -> LinkCause {
    // The reason quotes the certificate, whose names the peer has chosen.
    let (kind, reason) = (error.kind(), printable(&error.to_string()));
    if matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied) {
        LinkCause::NotTrusted { address, reason }
    } else if kind == io::ErrorKind::InvalidInput {
        LinkCause::TlsOptions { reason }
    } else {
        link_cause(error, address)
    }
}

/// Returns whether getaddrinfo(3) has failed with EAI_AGAIN. The standard library passes on only the text of the
/// error, which differs between glibc and musl.
fn is_try_again(reason: &str) -> bool {
    ["Temporary failure in name resolution", "Try again"].iter().any(|text| reason.ends_with(text))
}

#[cfg(test)]
mod tests {
    use iscsi_tuner::{Limits, Plan};
    use tokio::time::Duration;

    use super::*;
    use crate::transport::Pending;

    /// A name service that fails with this text; with `None` it never responds.
    #[derive(Debug)]
    struct NameService(Option<&'static str>);

    impl Network for NameService {
        fn resolve<'a>(&'a self, _: &'a TargetAddress) -> Pending<'a, Vec<SocketAddr>> {
            match self.0 {
                Some(text) => Box::pin(async move { Err(io::Error::other(text)) }),
                None => Box::pin(std::future::pending()),
            }
        }

        fn connect<'a>(
            &'a self,
            _: &'a TargetAddress,
            _: SocketAddr,
            _: &'a Plan,
        ) -> Pending<'a, Box<dyn Socket>> {
            unreachable!("no address was given")
        }

        fn limits(&self) -> Limits {
            Limits::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_service_that_fails_for_a_while_is_told_from_a_host_that_is_not_known() {
        for (answer, passes) in [
            (None, true),
            (
                Some("failed to lookup address information: Temporary failure in name resolution"),
                true,
            ),
            (Some("failed to lookup address information: Name or service not known"), false),
        ] {
            let connector = Connector {
                limit: Duration::from_secs(1),
                network: Arc::new(NameService(answer)),
                tuning: Tuning::default(),
                segments: Segments::Fixed(None),
                encryption: Encryption::Clear(None),
            };
            let portal = TargetAddress::parse("disk.example").unwrap();
            let error = crate::Error::from(connector.open(portal, None).await.err().unwrap());
            assert_eq!(error.is_transient(), passes, "{error}");
        }
    }
}
