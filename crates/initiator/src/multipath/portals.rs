//! The portals that lead to the unit: those that were named, and those that the target names when it is asked.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_pdu::{IscsiName, TargetAddress};

use crate::driver::referral::Referral;
use crate::session::node::Discovered;
use crate::url::portal_name;

/// A list of portals, each known by its place in it; they are only added.
#[derive(Debug)]
pub(crate) struct Portals {
    all: Mutex<Vec<Portal>>,
    /// Whether the target is asked for all that it has.
    are_asked_for: bool,
    /// Whether it has answered.
    are_named: AtomicBool,
}

/// A portal, and who has named it; `None` is the URL.
#[derive(Clone, Debug)]
struct Portal {
    address: TargetAddress,
    referral: Option<Referral>,
}

impl Portals {
    /// These, which were named.
    pub(crate) fn new(named: Vec<TargetAddress>, are_asked_for: bool) -> Self {
        let named = named.into_iter().map(|address| Portal { address, referral: None });
        let all = Mutex::new(named.collect());
        Self { all, are_asked_for, are_named: AtomicBool::new(false) }
    }

    /// Whether the target is asked for all that it has (`portals=auto`).
    pub(crate) const fn are_asked_for(&self) -> bool {
        self.are_asked_for
    }

    /// Whether the target has named its portals.
    pub(crate) fn are_named(&self) -> bool {
        self.are_named.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn get(&self, portal: usize) -> Option<TargetAddress> {
        self.lock().get(portal).map(|portal| portal.address.clone())
    }

    /// Who has named a portal, unless the URL does.
    pub(crate) fn referral(&self, portal: usize) -> Option<Referral> {
        self.lock().get(portal).and_then(|portal| portal.referral)
    }

    pub(crate) fn all(&self) -> Vec<TargetAddress> {
        self.lock().iter().map(|portal| portal.address.clone()).collect()
    }

    /// Takes in what SendTargets names for a target; gives back the portals that are new. The aliases are known already,
    /// under other names. An address that the peer may not name is left out; that of a name is found out later.
    pub(crate) fn learn(
        &self,
        target: &IscsiName,
        answer: &Discovered,
        aliases: &[TargetAddress],
    ) -> Vec<TargetAddress> {
        self.are_named.store(true, Ordering::Relaxed);
        let referral = answer.by.map(Referral::record);
        let mut all = self.lock();
        let named = answer.targets.iter().filter(|found| found.name == *target);
        let mut new = Vec::new();
        for address in named.flat_map(|found| &found.addresses) {
            let mut known = all.iter().map(|portal| &portal.address).chain(aliases);
            if known.any(|known| is_same(known, address)) {
                continue;
            }
            if let Some(why) = referral.and_then(|referral| referral.refusal(ip_of(address)?)) {
                tracing::warn!("the target names the portal {}, {why}", portal_name(address));
                continue;
            }
            all.push(Portal { address: address.clone(), referral });
            new.push(address.clone());
        }
        new
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Portal>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a host that is not a name. A zone says on which link it is, which changes nothing.
fn ip_of(address: &TargetAddress) -> Option<IpAddr> {
    address.host.split('%').next()?.parse().ok()
}

/// Whether two addresses are one portal, whatever group they name.
fn is_same(one: &TargetAddress, other: &TargetAddress) -> bool {
    (&one.host, one.port) == (&other.host, other.port)
}

#[cfg(test)]
mod tests {
    use iscsi_session::decode_send_targets;

    use super::*;
    use crate::url::Url;

    /// Another spelling, or the group of a portal, makes no other portal of it.
    #[test]
    fn a_portal_that_is_known_is_not_learnt_again() {
        let target = "iqn.2026-01.org.example:disk";
        for (url, address) in
            [("[FD00:0::5]", "[fd00::5]:3260,1"), ("san.example", "SAN.example:3260,2")]
        {
            let url = Url::parse(&format!("iscsi://{url}/{target}/0?portals=auto")).unwrap();
            let portals = Portals::new(vec![url.portal.clone()], url.all_portals);
            let answer = format!("TargetName={target}\0TargetAddress={address}\0");
            let targets = decode_send_targets(answer.as_bytes()).unwrap();
            let answer = Discovered { targets, by: None };
            assert_eq!(portals.learn(url.target.as_ref().unwrap(), &answer, &[]), []);
        }
    }

    /// A target elsewhere does not lead the initiator to services of its own host or link.
    #[test]
    fn dsc_05_portals_of_this_host_are_learnt_only_from_it() {
        let target = IscsiName::parse("iqn.2026-01.org.example:disk").unwrap();
        let learnt_from = |by: &str| {
            let text = format!(
                "TargetName={target}\0TargetAddress=127.0.0.1:22\0TargetAddress=[fe80::1%eth0]:3260\0\
                 TargetAddress=198.51.100.1:3260,1\0TargetAddress=san.example:3260\0"
            );
            let targets = decode_send_targets(text.as_bytes()).unwrap();
            let portals = Portals::new(Vec::new(), true);
            let answer = Discovered { targets, by: Some(by.parse().unwrap()) };
            let new = portals.learn(&target, &answer, &[]);
            assert!((0..new.len()).all(|portal| portals.referral(portal).is_some()));
            new.into_iter().map(|address| address.host).collect::<Vec<_>>()
        };
        assert_eq!(learnt_from("192.0.2.1"), ["198.51.100.1", "san.example"]);
        assert_eq!(learnt_from("fe80::2"), ["fe80::1%eth0", "198.51.100.1", "san.example"]);
        assert_eq!(learnt_from("127.0.0.2").len(), 4);
    }
}
