//! The portals that lead to the unit: those that were named, and those that the target names when it is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_pdu::{IscsiName, TargetAddress};
use iscsi_session::DiscoveredTarget;

/// A list of portals, each known by its place in it; they are only added.
#[derive(Debug)]
pub(crate) struct Portals {
    all: Mutex<Vec<TargetAddress>>,
    /// Whether the target is asked for all that it has.
    are_asked_for: bool,
    /// Whether it has answered.
    are_named: AtomicBool,
}

impl Portals {
    /// These, which were named.
    pub(crate) const fn new(named: Vec<TargetAddress>, are_asked_for: bool) -> Self {
        Self { all: Mutex::new(named), are_asked_for, are_named: AtomicBool::new(false) }
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
        self.lock().get(portal).cloned()
    }

    pub(crate) fn all(&self) -> Vec<TargetAddress> {
        self.lock().clone()
    }

    /// Takes in what SendTargets names for a target; gives back the portals that are new. The aliases are known already,
    /// under other names.
    pub(crate) fn learn(
        &self,
        target: &IscsiName,
        answer: &[DiscoveredTarget],
        aliases: &[TargetAddress],
    ) -> Vec<TargetAddress> {
        self.are_named.store(true, Ordering::Relaxed);
        let mut all = self.lock();
        let named = answer.iter().filter(|found| found.name == *target);
        let mut new = Vec::new();
        for address in named.flat_map(|found| &found.addresses) {
            if !all.iter().chain(aliases).any(|known| is_same(known, address)) {
                all.push(address.clone());
                new.push(address.clone());
            }
        }
        new
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TargetAddress>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            let answer = decode_send_targets(answer.as_bytes()).unwrap();
            assert_eq!(portals.learn(url.target.as_ref().unwrap(), &answer, &[]), []);
        }
    }
}
