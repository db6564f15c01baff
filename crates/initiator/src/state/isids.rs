//! The ISIDs of an initiator's sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iscsi_pdu::Isid;

use crate::state::session_key::SessionKey;

/// The ISIDs of an initiator's sessions: of the random type, told apart by the qualifier (RFC 7143
/// §11.12.5).
///
/// One that is given again while its session lives would have the target end that session (RFC 7143
/// §6.3.5). So it is not, as long as anything holds the session, or opens it anew.
#[derive(Debug)]
pub(crate) struct Isids {
    random: [u8; 3],
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// The qualifier that is tried next.
    next: u16,
    /// How many hold each: for a while two, when a session is opened anew.
    holders: HashMap<Isid, u32>,
}

/// The key of a session, whose ISID no other session gets until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldKey {
    pub(crate) key: SessionKey,
    isids: Arc<Isids>,
}

impl Isids {
    pub(crate) fn new(random: [u8; 3]) -> Arc<Self> {
        Arc::new(Self { random, used: Mutex::default() })
    }

    /// The key of a session that was not there before; `None` if every ISID is in use.
    pub(crate) fn hold_next(self: &Arc<Self>) -> Option<HeldKey> {
        let mut used = self.lock();
        for _ in 0..=u16::MAX {
            let isid = Isid::random(self.random, used.next);
            used.next = used.next.wrapping_add(1);
            if !used.holders.contains_key(&isid) {
                return Some(self.held(&mut used, SessionKey::first(isid)));
            }
        }
        None
    }

    /// That key, for a session that is opened anew.
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
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 §6.3.5: a login with the ISID of a live session ends it. The qualifiers wrap.
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

    #[test]
    fn there_are_no_more_than_the_qualifiers_tell_apart() {
        let isids = Isids::new([1, 2, 3]);
        let mut held: Vec<_> = (0..=u16::MAX).map(|_| isids.hold_next().unwrap()).collect();
        assert!(isids.hold_next().is_none());
        let free = held.swap_remove(4711).key.isid;
        assert_eq!(isids.hold_next().unwrap().key.isid, free);
    }
}
