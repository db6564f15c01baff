//! Lists the portals that lead to the unit: the portals of the URL, and those that the target names in
//! discovery.

pub(crate) mod race;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_pdu::{IscsiName, TargetAddress};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::driver::referral::Referral;
use crate::session::node::Discovered;
use crate::url::portal_name;

/// Maximum number of portals of a disk. All portals of the URL are used; portals that the target names are
/// used as long as there is room.
pub(crate) const MAX_PORTALS: usize = 64;
/// Limit of concurrent first logins at portals that the target names. A single discovery result must not make
/// this host connect to many other hosts at the same time. Discovery sessions have the same limit.
pub(crate) const FIRST_LOGINS: usize = 4;

/// A list of portals, each identified by its index. Portals are only added.
#[derive(Debug)]
pub(crate) struct Portals {
    all: Mutex<Vec<Portal>>,
    /// Number of portals of the URL, which come first.
    of_url: usize,
    /// Whether discovery runs, for all portals of the target.
    are_asked_for: bool,
    /// Whether the target has named its portals in discovery.
    are_named: AtomicBool,
    /// Portals at which a login has succeeded.
    proven: Mutex<BTreeSet<usize>>,
    first_logins: Semaphore,
}

/// New portals that one discovery result names.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct NewPortals {
    /// New portals.
    pub(crate) new: Vec<TargetAddress>,
    /// Number of further new portals, for which there was no room.
    pub(crate) dropped: usize,
}

/// A portal, and the peer that has named it; `None` for the URL.
#[derive(Clone, Debug)]
struct Portal {
    address: TargetAddress,
    referral: Option<Referral>,
}

impl Portals {
    /// Creates the list from the portals of the URL.
    pub(crate) fn new(named: Vec<TargetAddress>, are_asked_for: bool) -> Self {
        let named = named.into_iter().map(|address| Portal { address, referral: None });
        let all: Vec<_> = named.collect();
        Self {
            of_url: all.len(),
            all: Mutex::new(all),
            are_asked_for,
            are_named: AtomicBool::new(false),
            proven: Mutex::new(BTreeSet::new()),
            first_logins: Semaphore::const_new(FIRST_LOGINS),
        }
    }

    /// Returns whether discovery runs (`portals=auto`).
    pub(crate) const fn are_asked_for(&self) -> bool {
        self.are_asked_for
    }

    /// Returns whether the target has named its portals in discovery.
    pub(crate) fn are_named(&self) -> bool {
        self.are_named.load(Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn get(&self, portal: usize) -> Option<TargetAddress> {
        self.lock().get(portal).map(|portal| portal.address.clone())
    }

    /// Returns the peer that has named a portal; `None` for the URL.
    pub(crate) fn referral(&self, portal: usize) -> Option<Referral> {
        self.lock().get(portal).and_then(|portal| portal.referral)
    }

    pub(crate) fn all(&self) -> Vec<TargetAddress> {
        self.lock().iter().map(|portal| portal.address.clone()).collect()
    }

    /// Waits until a login at this portal may begin. The caller keeps the permit until the login has ended. A
    /// portal that the target has named requires a permit until a login there has succeeded
    /// ([`prove`](Self::prove)).
    pub(crate) async fn turn(&self, portal: usize) -> Option<SemaphorePermit<'_>> {
        if self.is_proven(portal) {
            return None;
        }
        let turn = self.first_logins.acquire().await.ok()?;
        // Another session may have logged in meanwhile.
        (!self.is_proven(portal)).then_some(turn)
    }

    /// Records that a login at a portal has succeeded.
    pub(crate) fn prove(&self, portal: usize) {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner).insert(portal);
    }

    fn is_proven(&self, portal: usize) -> bool {
        let proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        portal < self.of_url || proven.contains(&portal)
    }

    /// Adds the portals that SendTargets names for a target. `aliases` are other names of known portals.
    /// Addresses that the peer may not name are omitted. A host name is checked when it is resolved.
    pub(crate) fn add_discovered(
        &self,
        target: &IscsiName,
        answer: &Discovered,
        aliases: &[TargetAddress],
    ) -> NewPortals {
        self.are_named.store(true, Ordering::Relaxed);
        let referral = answer.by.map(Referral::record);
        let mut all = self.lock();
        let known: Vec<_> = all.iter().map(|portal| portal.address.clone()).collect();
        let mut seen: HashSet<_> = known.iter().chain(aliases).map(place).collect();
        let named = answer.targets.iter().filter(|found| found.name == *target);
        let (mut found, mut refused) = (NewPortals::default(), None);
        for address in named.flat_map(|found| &found.addresses) {
            if !seen.insert(place(address)) {
                continue;
            }
            if let Some(why) = referral.and_then(|referral| referral.refusal(ip_of(address)?)) {
                refused.get_or_insert((address, why));
            } else if all.len() < MAX_PORTALS {
                all.push(Portal { address: address.clone(), referral });
                found.new.push(address.clone());
            } else {
                found.dropped += 1;
            }
        }
        if let Some((address, (why, advice))) = refused {
            tracing::warn!("the target names the portal {}, {why}; {advice}", portal_name(address));
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Portal>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the address if the host is not a name. The zone is removed, because it only names the link.
fn ip_of(address: &TargetAddress) -> Option<IpAddr> {
    address.host.split('%').next()?.parse().ok()
}

/// Returns the host and port that identify a portal. The portal group is not part of the identity.
fn place(address: &TargetAddress) -> (&str, u16) {
    (&address.host, address.port)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iscsi_session::decode_send_targets;
    use tokio::time::timeout;

    use super::*;
    use crate::url::Url;

    /// A portal is not added again under another spelling of its address, or with another portal group.
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
            let found = portals.add_discovered(url.target.as_ref().unwrap(), &answer, &[]);
            assert_eq!(found, NewPortals::default());
        }
    }

    /// A target that names 200,000 addresses, each twice, gives the disk no more than 64 portals.
    #[test]
    fn a_target_may_name_any_number_of_portals_and_64_are_used() {
        const NAMED: usize = 200_000;
        let target = "iqn.2026-01.org.example:disk";
        let url = Url::parse(&format!("iscsi://10.0.0.1/{target}/0?portals=auto")).unwrap();
        let mut answer = format!("TargetName={target}\0");
        for number in 0..NAMED * 2 {
            let [_, first, second, third] = u32::try_from(number / 2).unwrap().to_be_bytes();
            answer += &format!("TargetAddress=11.{first}.{second}.{third}:3260,1\0");
        }
        let targets = decode_send_targets(answer.as_bytes()).unwrap();
        let answer = Discovered { targets, by: None };
        let portals = Portals::new(vec![url.portal.clone()], url.all_portals);
        for new in [MAX_PORTALS - 1, 0] {
            let found = portals.add_discovered(url.target.as_ref().unwrap(), &answer, &[]);
            assert_eq!((found.new.len(), portals.len()), (new, MAX_PORTALS));
            assert_eq!(found.dropped, NAMED - (MAX_PORTALS - 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn portals_that_the_target_names_are_logged_in_to_four_at_a_time() {
        let url = Url::parse("iscsi://10.0.0.1/iqn.2026-01.org.example:disk/0").unwrap();
        let portals = Portals::new(vec![url.portal.clone(); 2], true);
        let waits =
            async |portal| timeout(Duration::from_secs(1), portals.turn(portal)).await.is_err();
        let turns = [2, 3, 4, 5].map(|portal| portals.turn(portal));
        let mut turns = futures_of(turns).await;
        assert!(turns.iter().all(Option::is_some));
        assert!(waits(6).await);
        for of_url in [0, 1] {
            assert!(!waits(of_url).await, "whoever has written the URL wants them");
        }
        portals.prove(6);
        assert!(!waits(6).await, "it is no stranger any more");
        assert!(waits(7).await);
        turns.pop();
        assert!(!waits(7).await);
    }

    async fn futures_of<T, const N: usize>(futures: [impl Future<Output = T>; N]) -> Vec<T> {
        let mut all = Vec::new();
        for future in futures {
            all.push(future.await);
        }
        all
    }

    /// A target on another host does not lead the initiator to services of its own host or link.
    #[test]
    fn dsc_05_portals_of_this_host_are_learnt_only_from_it() {
        let target = IscsiName::parse("iqn.2026-01.org.example:disk").unwrap();
        let found_from = |by: &str| {
            let text = format!(
                "TargetName={target}\0TargetAddress=127.0.0.1:22\0TargetAddress=[fe80::1%eth0]:3260\0\
                 TargetAddress=198.51.100.1:3260,1\0TargetAddress=san.example:3260\0"
            );
            let targets = decode_send_targets(text.as_bytes()).unwrap();
            let portals = Portals::new(Vec::new(), true);
            let answer = Discovered { targets, by: Some(by.parse().unwrap()) };
            let NewPortals { new, .. } = portals.add_discovered(&target, &answer, &[]);
            assert!((0..new.len()).all(|portal| portals.referral(portal).is_some()));
            new.into_iter().map(|address| address.host).collect::<Vec<_>>()
        };
        assert_eq!(found_from("192.0.2.1"), ["198.51.100.1", "san.example"]);
        assert_eq!(found_from("fe80::2"), ["fe80::1%eth0", "198.51.100.1", "san.example"]);
        assert_eq!(found_from("127.0.0.2").len(), 4);
    }
}
