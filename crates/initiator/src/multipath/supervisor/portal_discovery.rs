//! Discovers the portals of a target (SendTargets, RFC 7143 appendix C).
//!
//! The discovery runs when the disk is opened, concurrently with the first session, and again while sessions
//! are lost, because an array may have other portals by then. If the discovery fails, the disk continues with
//! the known portals.

use std::net::IpAddr;

use iscsi_pdu::{IscsiName, TargetAddress};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::Error;
use crate::events::disk_event::DiskEvent;
use crate::multipath::paths::{Paths, now};
use crate::multipath::portals::{FIRST_LOGINS, MAX_PORTALS, NewPortals};
use crate::multipath::supervisor::Supervisor;
use crate::multipath::supervisor::event::Event;
use crate::multipath::supervisor::reopen::Opener;
use crate::session::node::Discovered;

impl Opener {
    /// Queries the target for its portals, in discovery sessions at all known portals, a few at a time. The
    /// first result counts. Returns the new portals.
    ///
    /// Sessions of the disk do not carry the query, because tgt drops a normal session that sends
    /// SendTargets.
    ///
    /// # Errors
    /// The error, if no portal has sent a result.
    pub(crate) async fn discover(&self) -> Result<Vec<TargetAddress>, Error> {
        let Some(target) = &self.url.target else { return Ok(Vec::new()) };
        let mut failure = Error::closed();
        let mut questions = JoinSet::new();
        let mut portals = 0..self.portals.len();
        loop {
            for portal in portals.by_ref().take(FIRST_LOGINS.saturating_sub(questions.len())) {
                // If the target has moved for good, the query goes to its new address.
                let (node, (url, referral)) = (self.node.clone(), self.way_to(portal));
                let answer =
                    async move { (url.portal.clone(), node.discover(url, referral).await) };
                questions.spawn(answer.in_current_span());
            }
            match questions.join_next().await {
                Some(Ok((portal, Ok(answer)))) => {
                    let aliases = self.aliases(Some(portal)).await;
                    return Ok(self.record_portals(target, answer, &aliases));
                }
                Some(Ok((_, Err(error)))) => failure = error,
                Some(Err(_)) => {}
                None => return Err(failure),
            }
        }
    }

    fn record_portals(
        &self,
        target: &IscsiName,
        mut answer: Discovered,
        aliases: &[TargetAddress],
    ) -> Vec<TargetAddress> {
        // A target that is listed without an address is at the queried portal, which is known.
        answer.targets.retain(|found| !found.addresses.is_empty());
        let NewPortals { new, dropped } = self.portals.add_discovered(target, &answer, aliases);
        if dropped > 0 {
            let note = DiskEvent::TooManyPortals { unused: dropped, max: MAX_PORTALS };
            self.report.add_note_once(note);
        }
        new
    }

    /// Returns the addresses of the portals that have host names, and `here`.
    async fn aliases(&self, here: Option<TargetAddress>) -> Vec<TargetAddress> {
        let mut aliases: Vec<_> = here.into_iter().collect();
        for portal in self.portals.all() {
            if portal.host.parse::<IpAddr>().is_ok() {
                continue;
            }
            for address in self.node.addresses_of(&self.url, &portal).await {
                let host = address.ip().to_string();
                aliases.push(TargetAddress { host, ..portal.clone() });
            }
        }
        aliases
    }
}

impl Supervisor {
    /// Starts a discovery if the disk's options ask for it, and either a session is lost or the target has
    /// not named any portals yet.
    pub(super) fn discover_portals(&mut self) {
        let is_unanswered = !self.opener.portals.are_named();
        let is_wanted = self.opener.portals.are_asked_for()
            && (self.topology.reconnecting() > 0 || is_unanswered);
        if !is_wanted || !self.topology.begin_discovery(now()) {
            return;
        }
        let opener = self.opener.clone();
        self.start(async move { opener.discover().await }, Event::Portals);
    }

    /// Handles the portals that the target has named.
    pub(super) fn found_portals(
        &mut self,
        paths: &Paths,
        found: Result<Vec<TargetAddress>, Error>,
    ) {
        self.topology.end_discovery(now());
        match found {
            Ok(new) => {
                for portal in new {
                    self.report().add_note(DiskEvent::PortalFound { portal });
                }
                self.use_all_ports(paths);
            }
            Err(error) => tracing::debug!(%error, "the target has not reported its portals"),
        }
    }
}
