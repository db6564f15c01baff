//! Ends sessions that an earlier process has left at the target because it was killed.
//!
//! The target may execute commands that it received over such sessions, however late, until it ends the
//! sessions. A login with the ISID of such a session makes the target end it (RFC 7143 §6.3.5). Any process
//! with the same initiator name can log in this way.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use iscsi_pdu::scsi::reservation::{PersistentReserveOut, ReservationKey};
use iscsi_pdu::{IscsiName, Isid, TargetAddress};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::{Error, UnitCause};
use crate::multipath::supervisor::reopen::Opener;
use crate::state::budget::Budget;
use crate::state::isids::Isids;
use crate::state::session_key::SessionKey;
use crate::url::{Url, portal_name};

/// Limit of concurrent logins. Most of the ISIDs have no session left, so most logins open a further session
/// for a moment, and some targets accept few sessions.
const AT_ONCE: usize = 16;

/// Description of the sessions of an initiator, which a later process uses to end them.
#[derive(Clone, Debug, Eq, PartialEq)]
struct LeftSessions<'a> {
    initiator: &'a str,
    random: [u8; 3],
    count: u32,
    /// Target of the sessions; `None` in descriptions of earlier versions.
    at: Option<LeftTarget>,
}

/// Target of the described sessions, and the portals of the target with their groups, where known.
#[derive(Clone, Debug, Eq, PartialEq)]
struct LeftTarget {
    name: IscsiName,
    portals: Vec<TargetAddress>,
}

impl<'a> LeftSessions<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let (initiator, random, count) = (words.next()?, words.next()?, words.next()?);
        let [0, random @ ..] = u32::from_str_radix(random, 16).ok()?.to_be_bytes() else {
            return None;
        };
        let count = count.parse().ok()?;
        let at = words.next().map(|name| LeftTarget::parse(name, words));
        let at = if let Some(at) = at { Some(at?) } else { None };
        Some(Self { initiator, random, count, at })
    }
}

impl LeftTarget {
    fn parse<'a>(name: &str, portals: impl Iterator<Item = &'a str>) -> Option<Self> {
        let portals: Result<Vec<_>, _> = portals.map(TargetAddress::parse).collect();
        let portals = portals.ok().filter(|portals| !portals.is_empty())?;
        Some(Self { name: IscsiName::parse(name).ok()?, portals })
    }
}

/// A portal at which sessions may have been left.
struct Way {
    url: Url,
    /// Index of the portal among the disk's portals; `None` if it is not one of them.
    portal: Option<usize>,
    /// Portal group of the portal, if known.
    group: Option<u16>,
}

impl Opener {
    /// Describes the sessions of this process for a later process: initiator name, ISIDs, and the portals of
    /// the target. A login at another target of the same unit would not end the sessions (RFC 7143 §4.4.3).
    pub(crate) fn leaves(&self) -> String {
        let ([first, second, third], count) = self.node.isids();
        let mut left = format!("{} {first:02x}{second:02x}{third:02x} {count}", self.node.name());
        if let Some(target) = &self.url.target {
            left += &format!(" {target}");
            for portal in 0..self.portals.len() {
                let portal_group_tag = self.group_of(portal);
                let address = TargetAddress { portal_group_tag, ..self.url_at(portal).portal };
                left += &format!(" {address}");
            }
        }
        left
    }

    pub(crate) fn initiator_name(&self) -> &str {
        self.node.name().as_str()
    }

    /// Ends the described sessions at each portal group of their target.
    ///
    /// # Errors
    /// The description is malformed, or names another initiator; or it could not be confirmed that the sessions
    /// have ended.
    pub(crate) async fn end_left(self: &Arc<Self>, left: &str) -> io::Result<()> {
        let Some(LeftSessions { initiator, random, count, at }) = LeftSessions::parse(left) else {
            let why = format!("{left:?} names no sessions");
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
        let (mut groups, mut failed) = (BTreeSet::new(), Vec::new());
        for way in self.ways(at) {
            if way.group.is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            match self.end_left_at(&way, &isids, &groups).await {
                Ok(group) => groups.extend(group),
                Err(error) => failed.push((way.group, error)),
            }
        }
        // A failed portal does not matter if another portal of its group was reached.
        failed.retain(|(group, _)| group.is_none_or(|group| !groups.contains(&group)));
        failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Returns the portals at which to log in: the portals of the description, and the portals of the disk if
    /// they belong to the same target.
    fn ways(&self, left: Option<LeftTarget>) -> Vec<Way> {
        let is_own = left.as_ref().is_none_or(|left| self.url.target.as_ref() == Some(&left.name));
        let own = if is_own { 0..self.portals.len() } else { 0..0 };
        let own = own.map(|portal| {
            let (url, group) = (self.url_at(portal), self.group_of(portal));
            Way { url, portal: Some(portal), group }
        });
        let mut ways: Vec<_> = own.collect();
        let Some(LeftTarget { name, portals }) = left else { return ways };
        for portal in portals {
            let is_known = |way: &Way| portal_name(&way.url.portal) == portal_name(&portal);
            if !ways.iter().any(is_known) {
                let group = portal.portal_group_tag;
                let url = Url { portal, target: Some(name.clone()), ..self.url.clone() };
                ways.push(Way { url, portal: None, group });
            }
        }
        ways
    }

    /// Unregisters `key` for each ISID at each portal group, over a session with that ISID. Errors are
    /// logged. After an error, the registration may still exist.
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

    /// Ends the sessions at the portal group of one portal, unless that group is in `done`. Returns the
    /// group, if the target states it.
    async fn end_left_at(
        self: &Arc<Self>,
        way: &Way,
        isids: &[Isid],
        done: &BTreeSet<u16>,
    ) -> io::Result<Option<u16>> {
        let (mut logins, mut left) = (JoinSet::new(), isids.iter());
        let mut group = way.group;
        // The first login shows the group of the portal.
        if group.is_none()
            && let Some(isid) = left.next()
        {
            group = self.end_one(way.url.clone(), way.portal, *isid).await?;
            if group.is_some_and(|group| done.contains(&group)) {
                return Ok(group);
            }
        }
        loop {
            while logins.len() < AT_ONCE
                && let Some(isid) = left.next()
            {
                let (opener, isid) = (Arc::clone(self), *isid);
                let (url, portal) = (way.url.clone(), way.portal);
                logins.spawn(
                    async move { opener.end_one(url, portal, isid).await }.in_current_span(),
                );
            }
            match logins.join_next().await {
                // The portal may have joined another group after the previous login, so the group of each login
                // is stored.
                Some(ended) => group = ended??,
                None => return Ok(group),
            }
        }
    }

    /// Ends the session with this ISID, if there is one. Returns the portal group.
    async fn end_one(
        &self,
        url: Url,
        portal: Option<usize>,
        isid: Isid,
    ) -> io::Result<Option<u16>> {
        let key = SessionKey::first(isid);
        let questions = Budget::of(self.node.options());
        let session = self.node.start_at(&url, Some(key), &questions, None)?;
        session.logged_in().await?;
        if let Some(portal) = portal {
            self.remember(portal, &session);
        }
        let (ends_others, group) = (session.is_reinstated_by_login(), session.portal_group());
        // The login has already ended the old session, so an error of the logout does not matter.
        drop(session.logout().await);
        if ends_others {
            return Ok(group);
        }
        let why =
            Error::from(UnitCause::Unsupported("ending sessions by a login (they have no TSIH)"));
        Err(io::Error::new(ErrorKind::Unsupported, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptions of left sessions are parsed with and without their target, and malformed descriptions are
    /// refused.
    #[test]
    fn what_is_told_is_understood() {
        let random = [1, 0xff, 3];
        let left = LeftSessions { initiator: "iqn.2026-01.a:b", random, count: 72, at: None };
        assert_eq!(LeftSessions::parse("iqn.2026-01.a:b 01ff03 72"), Some(left.clone()));
        let text = "iqn.2026-01.a:b 01ff03 72 iqn.2026-01.a:disk [fe80::1]:3260 10.0.0.1:860,7";
        let name = IscsiName::parse("iqn.2026-01.a:disk").unwrap();
        let portals = ["[fe80::1]:3260", "10.0.0.1:860,7"];
        let portals = portals.map(|portal| TargetAddress::parse(portal).unwrap()).to_vec();
        let at = Some(LeftTarget { name, portals });
        assert_eq!(LeftSessions::parse(text), Some(LeftSessions { at, ..left }));
        let nonsense = ["", "a 010203", "a 010203 x", "a 01020304 1", "a 010203 1 2", "a 0g0203 1"];
        let no_portal = ["a 010203 1 iqn.2026-01.a:b", "a 010203 1 iqn.2026-01.a:b :3260"];
        for nonsense in nonsense.into_iter().chain(no_portal) {
            assert_eq!(LeftSessions::parse(nonsense), None, "{nonsense}");
        }
    }
}
