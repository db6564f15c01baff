//! Portals that the target names when it is asked (SendTargets, RFC 7143 appendix C).
//!
//! It is asked when the disk is opened, beside the first session, and again while sessions are lost: an array may have
//! other portals by then. Whatever becomes of the question, the disk goes on with the portals that are known.

use std::net::IpAddr;

use iscsi_pdu::{IscsiName, TargetAddress};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::event::Event;
use crate::multipath::paths::{Paths, now};
use crate::multipath::portals::{FIRST_LOGINS, Learnt, MAX_PORTALS};
use crate::multipath::reopen::Opener;
use crate::multipath::supervisor::Supervisor;
use crate::session::node::Discovered;

impl Opener {
    /// Asks the target for its portals, in discovery sessions at all portals that are known, a few at a time. The first answer
    /// counts. Gives back the portals that are new.
    ///
    /// A session of the disk is not asked: tgt drops a normal session that sends SendTargets.
    ///
    /// # Errors
    /// Why the portals are not known.
    pub(crate) async fn discover(&self) -> Result<Vec<TargetAddress>, Error> {
        let Some(target) = &self.url.target else { return Ok(Vec::new()) };
        let mut failure = Error::closed();
        let mut questions = JoinSet::new();
        let mut portals = 0..self.portals.len();
        loop {
            for portal in portals.by_ref().take(FIRST_LOGINS.saturating_sub(questions.len())) {
                // Where the target has moved for good, it is asked there.
                let (node, (url, referral)) = (self.node.clone(), self.way_to(portal));
                let answer =
                    async move { (url.portal.clone(), node.discover(url, referral).await) };
                questions.spawn(answer.in_current_span());
            }
            match questions.join_next().await {
                Some(Ok((portal, Ok(answer)))) => {
                    let aliases = self.aliases(Some(portal)).await;
                    return Ok(self.learn(target, answer, &aliases));
                }
                Some(Ok((_, Err(error)))) => failure = error,
                Some(Err(_)) => {}
                None => return Err(failure),
            }
        }
    }

    fn learn(
        &self,
        target: &IscsiName,
        mut answer: Discovered,
        aliases: &[TargetAddress],
    ) -> Vec<TargetAddress> {
        // A target that is listed without an address is at the portal that was asked, which is known.
        answer.targets.retain(|found| !found.addresses.is_empty());
        let Learnt { new, dropped } = self.portals.learn(target, &answer, aliases);
        if dropped > 0 {
            let note = DiskEvent::TooManyPortals { unused: dropped, max: MAX_PORTALS };
            self.report.note_once(note);
        }
        new
    }

    /// The addresses that portals named by names have.
    async fn aliases(&self, here: Option<TargetAddress>) -> Vec<TargetAddress> {
        let mut aliases: Vec<_> = here.into_iter().collect();
        for portal in self.portals.all() {
            if portal.host.parse::<IpAddr>().is_ok() {
                continue;
            }
            for address in self.node.addresses_of(&portal).await {
                let host = address.ip().to_string();
                aliases.push(TargetAddress { host, ..portal.clone() });
            }
        }
        aliases
    }
}

impl Supervisor {
    /// Asks for other portals while a session is lost, or the target has not named any yet, where it is asked at all.
    pub(super) fn look_for_portals(&mut self) {
        let is_unanswered = !self.opener.portals.are_named();
        let is_wanted = self.opener.portals.are_asked_for()
            && (self.topology.reconnecting() > 0 || is_unanswered);
        if !is_wanted || !self.topology.begin_discovery(now()) {
            return;
        }
        let opener = self.opener.clone();
        self.start(async move { opener.discover().await }, Event::Portals);
    }

    /// The target has named its portals.
    pub(super) fn found_portals(
        &mut self,
        paths: &Paths,
        found: Result<Vec<TargetAddress>, Error>,
    ) {
        self.topology.end_discovery(now());
        match found {
            Ok(new) => {
                for portal in new {
                    self.report().note(DiskEvent::PortalFound { portal });
                }
                self.use_all_ports(paths);
            }
            Err(error) => tracing::debug!(%error, "the target has not reported its portals"),
        }
    }
}
