//! Allocates the ISIDs of an initiator's sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_pdu::Isid;

use crate::state::session_key::SessionKey;

/// Number of qualifiers, and so of ISIDs.
const ALL: u32 = 1 << 16;

/// The ISIDs of an initiator's sessions. They are of the random type, and differ in the qualifier (RFC 7143
/// §11.12.5).
///
/// A login with the ISID of a live session would make the target end that session (RFC 7143 §6.3.5). So an
/// ISID is not used again while anything holds its session or reconnects it. The lowest free qualifier is
/// used. So after this process is gone, another process can end all its sessions, if it knows the maximum
/// number of sessions.
#[derive(Debug)]
pub(crate) struct Isids {
    random: [u8; 3],
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Lower bound of the free qualifiers.
    lowest: u16,
    /// Number of ISIDs that were used at least once. Their qualifiers are 0 to `given` - 1.
    given: u32,
    /// Limit of the number of ISIDs; `None` until it is set.
    bound: Option<u32>,
    /// Number of holders of each ISID. While a session reconnects, there may be two.
    holders: HashMap<Isid, u32>,
}

/// The key of a session. No other session receives its ISID until this value is dropped.
#[derive(Debug)]
pub(crate) struct HeldKey {
    pub(crate) key: SessionKey,
    isids: Arc<Isids>,
}

impl Isids {
    pub(crate) fn new(random: [u8; 3]) -> Arc<Self> {
        Arc::new(Self { random, used: Mutex::default() })
    }

    /// Returns the key of a new session; `None` if every ISID is in use.
    pub(crate) fn hold_next(self: &Arc<Self>) -> Option<HeldKey> {
        let mut used = self.lock();
        let bound = used.bound.unwrap_or(ALL);
        for qualifier in used.lowest..=u16::MAX {
            let isid = Isid::random(self.random, qualifier);
            if u32::from(qualifier) < bound && !used.holders.contains_key(&isid) {
                used.lowest = qualifier;
                used.given = used.given.max(u32::from(qualifier) + 1);
                return Some(self.held(&mut used, SessionKey::first(isid)));
            }
        }
        None
    }

    /// Sets the limit of the number of ISIDs. Returns their random part and the limit, so that another
    /// process can end all sessions. The limit is `wanted`, or the number of ISIDs used so far if that is
    /// higher. Once set, the limit does not change.
    pub(crate) fn bound(&self, wanted: u32) -> ([u8; 3], u32) {
        let mut used = self.lock();
        let least = used.given.max(wanted).min(ALL);
        (self.random, *used.bound.get_or_insert(least))
    }

    /// Returns the ISIDs of a process whose [`bound`](Self::bound) has returned these values.
    pub(crate) fn all(random: [u8; 3], bound: u32) -> impl Iterator<Item = Isid> {
        let qualifiers = (0..bound.min(ALL)).filter_map(|qualifier| u16::try_from(qualifier).ok());
        qualifiers.map(move |qualifier| Isid::random(random, qualifier))
    }

    /// Returns whether a session of this process holds the ISID.
    pub(crate) fn is_held(&self, isid: Isid) -> bool {
        self.lock().holders.contains_key(&isid)
    }

    /// Holds a key for a session that reconnects.
    pub(crate) fn hold(self: &Arc<Self>, key: SessionKey) -> HeldKey {
        self.held(&mut self.lock(), key)
    }

    fn held(self: &Arc<Self>, used: &mut Used, key: SessionKey) -> HeldKey {
        *used.holders.entry(key.isid).or_default() += 1;
        HeldKey { key, isids: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        let mut used = self.isids.lock();
        if let Some(holders) = used.holders.get_mut(&self.key.isid) {
            *holders -= 1;
            if *holders == 0 {
                used.holders.remove(&self.key.isid);
                used.lowest = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §6.3.5: a login with the ISID of a live session ends that session, so the ISID is not used
    /// while anything holds it.
    #[test]
    fn an_isid_is_given_again_only_when_nothing_holds_it() {
        let isids = Isids::new([1, 2, 3]);
        let lost = isids.hold_next().unwrap();
        let taken = lost.key.isid;
        let reopened = isids.hold(lost.key.next());
        drop(lost);
        for _ in 0..=u16::MAX {
            assert_ne!(isids.hold_next().unwrap().key.isid, taken);
        }
        drop(reopened);
        assert!((0..=u16::MAX).any(|_| isids.hold_next().unwrap().key.isid == taken));
    }

    /// After the limit of ISIDs was reported for another process, this process uses no ISID beyond the
    /// limit.
    #[test]
    fn once_another_process_was_told_there_are_no_others() {
        let isids = Isids::new([1, 2, 3]);
        let first: Vec<_> = (0..5).map(|_| isids.hold_next().unwrap()).collect();
        drop(first);
        let told = isids.bound(3);
        assert_eq!((told, isids.bound(9)), (([1, 2, 3], 5), told), "they were given");
        let all: Vec<_> = Isids::all(told.0, told.1).collect();
        let held: Vec<_> = std::iter::from_fn(|| isids.hold_next()).collect();
        assert_eq!(held.iter().map(|held| held.key.isid).collect::<Vec<_>>(), all);
        assert!(all.iter().all(|isid| isids.is_held(*isid)));
    }

    #[test]
    fn there_are_no_more_than_the_qualifiers_tell_apart() {
        let isids = Isids::new([1, 2, 3]);
        let mut held: Vec<_> = (0..=u16::MAX).map(|_| isids.hold_next().unwrap()).collect();
        assert!(isids.hold_next().is_none());
        let free = held.swap_remove(4711).key.isid;
        assert_eq!(isids.hold_next().unwrap().key.isid, free);
    }
}
