//! Stores the initiator's name, the target's name and the portal of a session, so that errors can name them.

use std::net::{IpAddr, Ipv4Addr};

use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_session::{SessionError, TaskError, Timer, TransportError};

use crate::driver::referral::Referral;
use crate::error::{Error, LinkCause, LoginFailure, SessionCause, SessionFailure};
use crate::options::redirects::Redirects;
use crate::url::portal_name;

/// The initiator, the target and the portal of a session, and whether a connection to the portal was made.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The portal in the URL.
    home: TargetAddress,
    /// The portal in use, which differs from `home` after a redirection.
    portal: TargetAddress,
    /// The redirection that led to the portal in use; `None` if that is the portal in the URL.
    referral: Option<Referral>,
    /// Which redirections of a login are followed.
    redirects: Redirects,
    /// Address of the connection that was closed last; `None` before the first one.
    left: Option<IpAddr>,
    target: Option<IscsiName>,
    initiator: IscsiName,
    user: Option<String>,
    reached: bool,
    connect_error: Option<LinkCause>,
}

impl Peer {
    pub(crate) fn new(
        portal: TargetAddress,
        target: Option<IscsiName>,
        initiator: IscsiName,
        user: Option<String>,
        redirects: Redirects,
    ) -> Self {
        let home = portal.clone();
        Self {
            home,
            portal,
            referral: None,
            redirects,
            left: None,
            target,
            initiator,
            user,
            reached: false,
            connect_error: None,
        }
    }

    pub(crate) const fn portal(&self) -> &TargetAddress {
        &self.portal
    }

    /// Returns the redirection that led to the portal in use.
    pub(crate) const fn referral(&self) -> Option<Referral> {
        self.referral
    }

    /// Stores the address of a connection that is closed, because the peer there may have redirected the login.
    pub(crate) const fn left(&mut self, address: IpAddr) {
        self.left = Some(address);
    }

    /// Returns a redirection by the peer of the connection that was closed last.
    pub(crate) fn redirection(&self) -> Referral {
        // An unknown address counts as the broadcast address: no peer has it, and it may not redirect to an
        // address of this host or link.
        let by = self.left.unwrap_or(IpAddr::V4(Ipv4Addr::BROADCAST));
        Referral::redirection(by, self.redirects)
    }

    /// Chooses the portal for the next connection, after a redirection; `None` is the portal in the URL.
    pub(crate) fn turn_to(&mut self, address: Option<TargetAddress>) {
        self.referral = address.is_some().then(|| self.redirection());
        self.portal = address.unwrap_or_else(|| self.home.clone());
        self.reached = false;
    }

    /// Records that a TCP connection to the portal is open.
    pub(crate) const fn reached(&mut self) {
        self.reached = true;
    }

    /// Stores why no TCP connection to the portal could be made.
    pub(crate) fn not_reached(&mut self, why: LinkCause) {
        self.connect_error = Some(why);
    }

    /// Returns the error for the end of a request.
    pub(crate) fn explain_task(&self, request: &'static str, why: TaskError) -> Error {
        if let TaskError::Session { cause, sent } = why {
            return self.explain(cause, sent);
        }
        if why == TaskError::Closed {
            Error::closed()
        } else {
            Error::from(SessionCause::Task { request, cause: why })
        }
    }

    /// Returns the error for the end of the session.
    pub(crate) fn explain(&self, cause: SessionError, may_have_executed: bool) -> Error {
        let portal = portal_name(&self.portal);
        match (cause, &self.connect_error) {
            (SessionError::Login(cause), _) => Error::from(SessionCause::Login(LoginFailure {
                portal,
                target: self.target.as_ref().map(ToString::to_string),
                initiator: self.initiator.to_string(),
                user: self.user.clone(),
                cause,
            })),
            (SessionError::Transport(TransportError::Connect(_)), Some(error)) => {
                Error::from(error.clone())
            }
            (SessionError::TimedOut(Timer::Login), _) if !self.reached => {
                Error::from(LinkCause::TimedOut { portal })
            }
            (cause, _) => Error::from(SessionCause::Ended(SessionFailure::new(
                portal,
                cause,
                may_have_executed,
            ))),
        }
    }
}
