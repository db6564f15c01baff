//! Decides which addresses of a portal may be used, if a peer has named the portal in a redirection or in a
//! SendTargets response.
//!
//! Design: `docs/design/credentials.md`.

use std::net::{IpAddr, SocketAddr};

use iscsi_pdu::TargetAddress;

use crate::error::LinkCause;
use crate::error::advice::Advice;
use crate::events::disk_event::DiskEvent;
use crate::options::redirects::Redirects;
use crate::url::portal_name;

/// The peer that has named a portal, and which addresses the peer may name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Referral {
    by: IpAddr,
    redirects: Redirects,
}

/// The hosts from which an address can be reached.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Scope {
    /// The address can be reached only from this host.
    Host,
    /// The address can be reached only from the hosts of one link.
    Link,
    Global,
}

impl Scope {
    pub(super) fn of(address: IpAddr) -> Self {
        // A connection to the unspecified address leads to this host.
        if address.is_loopback() || address.is_unspecified() {
            return Self::Host;
        }
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if is_link_local { Self::Link } else { Self::Global }
    }
}

impl Referral {
    /// Creates a redirection by the peer at this address; `redirects` applies to the login ([`Redirects::of_login`]).
    pub(crate) const fn redirection(by: IpAddr, redirects: Redirects) -> Self {
        Self { by, redirects }
    }

    /// Creates a record of SendTargets by the peer at this address. The record may name any host, since
    /// SendTargets asks for the portals of other hosts too.
    pub(crate) const fn record(by: IpAddr) -> Self {
        Self { by, redirects: Redirects::Any }
    }

    /// Returns the reason why the initiator must not connect to an address; `None` if it may.
    pub(crate) fn refusal(&self, address: IpAddr) -> Option<(&'static str, Advice)> {
        // An IPv4 address may be written as an IPv6 one.
        let (by, to) = (self.by.to_canonical(), address.to_canonical());
        match self.redirects {
            Redirects::Never => {
                Some(("and no redirection is followed (redirects=never)", Advice::NamePortal))
            }
            Redirects::Proven | Redirects::SameHost if by != to => Some((
                "another host, which need not prove that it is the target",
                Advice::AllowRedirect,
            )),
            Redirects::Proven | Redirects::SameHost | Redirects::Any => {
                (Scope::of(to) < Scope::of(by)).then_some((
                    "an address of this host or its link alone, where the target is not",
                    Advice::CorrectPortal,
                ))
            }
        }
    }

    /// Returns those addresses of a portal to which the initiator may connect.
    ///
    /// # Errors
    /// The reason, if no address is permitted.
    pub(crate) fn permitted(
        &self,
        portal: &TargetAddress,
        mut addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, LinkCause> {
        let refusal = addresses.iter().find_map(|address| self.refusal(address.ip()));
        addresses.retain(|address| self.refusal(address.ip()).is_none());
        match refusal {
            Some((reason, advice)) if addresses.is_empty() => {
                let (by, portal) = (self.by, portal_name(portal));
                Err(LinkCause::NotFollowed { by, portal, reason, advice })
            }
            _ => Ok(addresses),
        }
    }

    /// Returns the event to report for a connection that a redirection has led to another host; `None` if it
    /// has led to the same host.
    pub(crate) fn redirect_event(
        &self,
        portal: &TargetAddress,
        address: SocketAddr,
    ) -> Option<DiskEvent> {
        let is_other = self.by.to_canonical() != address.ip().to_canonical();
        is_other.then(|| DiskEvent::Redirected { from: self.by, to: portal.clone() })
    }
}

/// Returns the portal at a numeric address, which no name service can change.
pub(crate) fn portal_at(address: SocketAddr) -> TargetAddress {
    let host = match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => {
            format!("{}%{}", address.ip(), address.scope_id())
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => address.ip().to_string(),
    };
    TargetAddress { host, port: address.port(), portal_group_tag: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_followed(redirects: Redirects, by: &str, to: &str) -> bool {
        let referral = Referral::redirection(by.parse().unwrap(), redirects);
        referral.refusal(to.parse().unwrap()).is_none()
    }

    #[test]
    fn a_host_that_need_not_prove_itself_may_name_only_itself() {
        let (here, there) = ("192.0.2.1", "192.0.2.2");
        for (redirects, same, other) in [
            (Redirects::Never, false, false),
            (Redirects::SameHost, true, false),
            (Redirects::Any, true, true),
            (Redirects::Proven.of_login(false), true, false),
            (Redirects::Proven.of_login(true), true, true),
            (Redirects::Never.of_login(true), false, false),
        ] {
            assert_eq!(is_followed(redirects, here, here), same, "{redirects:?}");
            assert_eq!(is_followed(redirects, here, there), other, "{redirects:?}");
        }
        assert!(is_followed(Redirects::SameHost, here, "::ffff:192.0.2.1"));
    }

    /// Even a target that has authenticated itself cannot redirect the initiator to services of the initiator's
    /// own host or link.
    #[test]
    fn addresses_of_this_host_or_link_are_gone_to_only_from_such() {
        let (global, link, host) = ("192.0.2.1", "169.254.1.1", "127.0.0.1");
        for (by, to, expected) in [
            (global, host, false),
            (global, "::1", false),
            (global, "0.0.0.0", false),
            (global, "::", false),
            (global, "127.8.8.8", false),
            (global, "::ffff:127.0.0.1", false),
            (global, link, false),
            (global, "169.254.169.254", false),
            (global, "fe80::1", false),
            ("2001:db8::1", "fe80::1", false),
            (link, host, false),
            (link, "fe80::1", true),
            (link, global, true),
            (host, "::1", true),
            (host, link, true),
            (host, global, true),
            (global, "198.51.100.1", true),
            (global, "10.0.0.1", true),
        ] {
            assert_eq!(is_followed(Redirects::Any, by, to), expected, "{by} to {to}");
            let record = Referral::record(by.parse().unwrap());
            assert_eq!(record.refusal(to.parse().unwrap()).is_none(), expected, "{by} to {to}");
        }
    }

    /// A host name may resolve to permitted and refused addresses; only the permitted ones are used.
    #[test]
    fn of_a_name_the_permitted_addresses_are_used() {
        let referral = Referral::redirection("192.0.2.1".parse().unwrap(), Redirects::Any);
        let portal = TargetAddress::parse("san.example").unwrap();
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let permitted = |texts| referral.permitted(&portal, addresses(texts));
        let all = permitted(&["127.0.0.1:3260", "192.0.2.9:3260"]).unwrap();
        assert_eq!(all, addresses(&["192.0.2.9:3260"]));
        let error = permitted(&["127.0.0.1:3260", "[::1]:3260"]).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1") && error.contains("san.example:3260"), "{error}");
    }

    #[test]
    fn an_address_is_a_portal_that_keeps_its_zone() {
        for (text, host) in [("192.0.2.1:860", "192.0.2.1"), ("[fe80::1%3]:860", "fe80::1%3")] {
            let portal = portal_at(text.parse().unwrap());
            assert_eq!((portal.host.as_str(), portal.port), (host, 860));
        }
    }
}
