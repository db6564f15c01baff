//! The portals that lead to the unit: those that were named, and those that the target names when it is asked.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iscsi_pdu::{IscsiName, TargetAddress};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::driver::referral::Referral;
use crate::session::node::Discovered;
use crate::url::portal_name;

/// The most portals of a disk. Those of the URL are used in any case; of those that the target names, as many as there is
/// room for.
pub(crate) const MAX_PORTALS: usize = 64;
/// Portals that are logged in to for the first time at once, of those that the target names: an answer to one question must not
/// make this host call many others at the same time. Discovery sessions are limited in the same way.
pub(crate) const FIRST_LOGINS: usize = 4;

/// A list of portals, each known by its place in it; they are only added.
#[derive(Debug)]
pub(crate) struct Portals {
    all: Mutex<Vec<Portal>>,
    /// How many of them, the first ones, are those of the URL.
    of_url: usize,
    /// Whether the target is asked for all that it has.
    are_asked_for: bool,
    /// Whether it has answered.
    are_named: AtomicBool,
    /// Those that a login has succeeded at.
    proven: Mutex<BTreeSet<usize>>,
    first_logins: Semaphore,
}

/// What a target has named.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Learnt {
    /// The portals that are new.
    pub(crate) new: Vec<TargetAddress>,
    /// How many further ones there is no room for.
    pub(crate) dropped: usize,
}

/// A portal, and who has named it; `None` is the URL.
#[derive(Clone, Debug)]
struct Portal {
    address: TargetAddress,
    referral: Option<Referral>,
}

impl Portals {
    /// These, which were named by the URL.
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

    /// Waits until a login at this portal may begin. What is returned is kept until the login has ended. A portal that
    /// the target has named needs it until a login there has succeeded ([`prove`](Self::prove)).
    pub(crate) async fn turn(&self, portal: usize) -> Option<SemaphorePermit<'_>> {
        if self.is_proven(portal) {
            return None;
        }
        let turn = self.first_logins.acquire().await.ok()?;
        // Another session may have logged in meanwhile.
        (!self.is_proven(portal)).then_some(turn)
    }

    /// A login has succeeded.
    pub(crate) fn prove(&self, portal: usize) {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner).insert(portal);
    }

    fn is_proven(&self, portal: usize) -> bool {
        let proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        portal < self.of_url || proven.contains(&portal)
    }

    /// Takes in what SendTargets names for a target. The aliases are known already, under other names. An address that the
    /// peer may not name is left out; that of a name is found out later.
    pub(crate) fn learn(
        &self,
        target: &IscsiName,
        answer: &Discovered,
        aliases: &[TargetAddress],
    ) -> Learnt {
        self.are_named.store(true, Ordering::Relaxed);
        let referral = answer.by.map(Referral::record);
        let mut all = self.lock();
        let known: Vec<_> = all.iter().map(|portal| portal.address.clone()).collect();
        let mut seen: HashSet<_> = known.iter().chain(aliases).map(place).collect();
        let named = answer.targets.iter().filter(|found| found.name == *target);
        let (mut learnt, mut refused) = (Learnt::default(), None);
        for address in named.flat_map(|found| &found.addresses) {
            if !seen.insert(place(address)) {
                continue;
            }
            if let Some(why) = referral.and_then(|referral| referral.refusal(ip_of(address)?)) {
                refused.get_or_insert((address, why));
            } else if all.len() < MAX_PORTALS {
                all.push(Portal { address: address.clone(), referral });
                learnt.new.push(address.clone());
            } else {
                learnt.dropped += 1;
            }
        }
        if let Some((address, (why, advice))) = refused {
            tracing::warn!("the target names the portal {}, {why}; {advice}", portal_name(address));
        }
        learnt
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Portal>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a host that is not a name. A zone says on which link it is, which changes nothing.
fn ip_of(address: &TargetAddress) -> Option<IpAddr> {
    address.host.split('%').next()?.parse().ok()
}

/// What makes a portal: the group that an address names does not.
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
            let learnt = portals.learn(url.target.as_ref().unwrap(), &answer, &[]);
            assert_eq!(learnt, Learnt::default());
        }
    }

    /// Each of many addresses twice.
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
            let learnt = portals.learn(url.target.as_ref().unwrap(), &answer, &[]);
            assert_eq!((learnt.new.len(), portals.len()), (new, MAX_PORTALS));
            assert_eq!(learnt.dropped, NAMED - (MAX_PORTALS - 1));
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
            let Learnt { new, .. } = portals.learn(&target, &answer, &[]);
            assert!((0..new.len()).all(|portal| portals.referral(portal).is_some()));
            new.into_iter().map(|address| address.host).collect::<Vec<_>>()
        };
        assert_eq!(learnt_from("192.0.2.1"), ["198.51.100.1", "san.example"]);
        assert_eq!(learnt_from("fe80::2"), ["fe80::1%eth0", "198.51.100.1", "san.example"]);
        assert_eq!(learnt_from("127.0.0.2").len(), 4);
    }
}
