//! Sessions that a process has left at the target when it was killed, and their end.
//!
//! The target may carry out what it was sent over them, however late, until it ends them. A login under the ISID of one has
//! it do so (RFC 7143 §6.3.5), whatever process logs in, as long as it has the same initiator name.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use iscsi_pdu::Isid;
use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::reopen::Opener;
use crate::state::budget::Budget;
use crate::state::isids::Isids;
use crate::state::session_key::SessionKey;

/// So many logins at once: few enough for a target that counts sessions, and most ISIDs have none.
const AT_ONCE: usize = 16;

/// What is told of the sessions of an initiator.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Told<'a> {
    initiator: &'a str,
    random: [u8; 3],
    count: u32,
}

impl<'a> Told<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (initiator, random, count) = (words.next()?, words.next()?, words.next()?);
        let [0, random @ ..] = u32::from_str_radix(random, 16).ok()?.to_be_bytes() else {
            return None;
        };
        let count = count.parse().ok()?;
        words.next().is_none().then_some(Self { initiator, random, count })
    }
}

impl Opener {
    /// What another process is to be told of the sessions of this one.
    pub(crate) fn leaves(&self) -> String {
        let ([first, second, third], count) = self.node.isids();
        format!("{} {first:02x}{second:02x}{third:02x} {count}", self.node.name())
    }

    pub(crate) fn initiator_name(&self) -> &str {
        self.node.name().as_str()
    }

    /// Ends the sessions that were told, at each portal group of the target.
    ///
    /// # Errors
    /// When nothing proves that they have ended.
    pub(crate) async fn end_left(self: &Arc<Self>, told: &str) -> io::Result<()> {
        let Some(Told { initiator, random, count }) = Told::parse(told) else {
            let why = format!("{told:?} names no sessions");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        };
        let own = self.node.name().to_string();
        if initiator != own {
            return Err(io::Error::other(format!(
                "its sessions were those of the initiator {initiator}, and only that one can end them: this is {own}"
            )));
        }
        let isids: Vec<_> =
            Isids::all(random, count).filter(|isid| !self.node.has(*isid)).collect();
        let mut groups = BTreeSet::new();
        for portal in 0..self.portals.len() {
            if self.group_of(portal).is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            self.end_left_at(portal, &isids).await?;
            groups.extend(self.group_of(portal));
        }
        Ok(())
    }

    /// Ends the registrations by this key that another process of this initiator has left, over sessions of their nexuses, at each
    /// portal group of the target. What cannot be ended so is left.
    pub(crate) async fn unregister_left(self: &Arc<Self>, key: ReservationKey, isids: &[Isid]) {
        let mut groups = BTreeSet::new();
        for portal in 0..self.portals.len() {
            if self.group_of(portal).is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            for isid in isids.iter().filter(|isid| !self.node.has(**isid)) {
                if let Err(error) = self.unregister_one(portal, *isid, key).await {
                    let span = self.report.span();
                    tracing::debug!(parent: span, %isid, %error, "the registration may be left");
                }
            }
            groups.extend(self.group_of(portal));
        }
    }

    async fn unregister_one(
        &self,
        portal: usize,
        isid: Isid,
        key: ReservationKey,
    ) -> Result<(), Error> {
        let (url, session_key) = (self.url_at(portal), SessionKey::first(isid));
        let questions = Budget::of(self.node.options());
        let session = self.node.start_at(&url, Some(session_key), &questions, None)?;
        session.logged_in().await?;
        self.remember(portal, &session);
        let unit = session.logical_unit(session.named_lun().unwrap_or_default());
        let end = PersistentReserveOut::Register {
            key,
            new_key: ReservationKey::NONE,
            persist_through_power_loss: false,
            all_target_ports: false,
        };
        let ended = unit.persistent_reserve_out(&end).await;
        drop(session.logout().await);
        ended
    }

    async fn end_left_at(self: &Arc<Self>, portal: usize, isids: &[Isid]) -> io::Result<()> {
        let (mut logins, mut left) = (JoinSet::new(), isids.iter());
        loop {
            while logins.len() < AT_ONCE
                && let Some(isid) = left.next()
            {
                let (opener, isid) = (Arc::clone(self), *isid);
                logins.spawn(async move { opener.end_one(portal, isid).await }.in_current_span());
            }
            match logins.join_next().await {
                Some(ended) => ended??,
                None => return Ok(()),
            }
        }
    }

    async fn end_one(&self, portal: usize, isid: Isid) -> io::Result<()> {
        let (url, key) = (self.url_at(portal), SessionKey::first(isid));
        let questions = Budget::of(self.node.options());
        let session = self.node.start_at(&url, Some(key), &questions, None)?;
        session.logged_in().await?;
        self.remember(portal, &session);
        let ends_others = session.is_reinstated_by_login();
        // That session has done what it was for.
        drop(session.logout().await);
        if ends_others {
            return Ok(());
        }
        let why = Error::Unsupported("ending sessions by a login (they have no TSIH)");
        Err(io::Error::new(ErrorKind::Unsupported, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let told = Told::parse("iqn.2026-01.a:b 01ff03 72");
        let random = [1, 0xff, 3];
        assert_eq!(told, Some(Told { initiator: "iqn.2026-01.a:b", random, count: 72 }));
        for nonsense in ["", "a 010203", "a 010203 x", "a 01020304 1", "a 010203 1 2", "a 0g0203 1"]
        {
            assert_eq!(Told::parse(nonsense), None, "{nonsense}");
        }
    }
}
