//! Portals that the target names when it is asked (SendTargets, RFC 7143 appendix C).
//!
//! It is asked when the disk is opened, beside the first session, and again while sessions are lost: an array may have
//! other portals by then. Whatever becomes of the question, the disk goes on with the portals that are known.

use std::net::IpAddr;

use iscsi_pdu::TargetAddress;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::error::Error;
use crate::multipath::discovery_pace::DiscoveryPace;
use crate::multipath::dispatch::Paths;
use crate::multipath::event::Event;
use crate::multipath::path::Path;
use crate::multipath::reopen::Opener;
use crate::multipath::supervisor::Supervisor;
use crate::session::node::Discovered;
use crate::url::portal_name;

impl Opener {
    /// Asks the target for its portals, in discovery sessions at all portals that are known, of which the first answer
    /// counts. Gives back those that are new.
    ///
    /// A session of the disk is not asked: tgt drops a normal session that sends SendTargets.
    ///
    /// # Errors
    /// Why nobody tells.
    pub(crate) async fn discover(&self) -> Result<Vec<TargetAddress>, Error> {
        let Some(target) = &self.url.target else { return Ok(Vec::new()) };
        let mut failure = Error::Closed;
        let mut questions = JoinSet::new();
        for portal in 0..self.portals.len() {
            // Where the target has moved for good, it is asked there.
            let (node, (url, referral)) = (self.node.clone(), self.way_to(portal));
            let answer = async move { (url.portal.clone(), node.discover(url, referral).await) };
            questions.spawn(answer.in_current_span());
        }
        while let Some(answer) = questions.join_next().await {
            match answer {
                Ok((portal, Ok(answer))) => {
                    let aliases = self.aliases(Some(portal)).await;
                    return Ok(self.portals.learn(target, &with_address(answer), &aliases));
                }
                Ok((_, Err(error))) => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
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

/// A target that is listed without an address is at the portal that was asked, which is known.
fn with_address(mut answer: Discovered) -> Discovered {
    answer.targets.retain(|found| !found.addresses.is_empty());
    answer
}

impl Supervisor {
    /// Asks for other portals while a session is lost, or the target has not named any yet, where it is asked at all.
    pub(super) fn look_for_portals(&mut self) {
        let is_unanswered = !self.opener.portals.are_named();
        let is_wanted =
            self.opener.portals.are_asked_for() && (self.reopening > 0 || is_unanswered);
        if !is_wanted || !self.discovery.begin() {
            return;
        }
        let opener = self.opener.clone();
        self.start(async move { opener.discover().await }, Event::Portals);
    }

    /// The target has named its portals.
    pub(super) fn found_portals(
        &mut self,
        paths: &Paths<Path>,
        found: Result<Vec<TargetAddress>, Error>,
    ) {
        self.discovery = DiscoveryPace::after_one();
        match found {
            Ok(new) => {
                for portal in &new {
                    self.report
                        .note(format!("the target names another portal: {}", portal_name(portal)));
                }
                self.use_all_ports(paths);
            }
            Err(error) => tracing::debug!(%error, "nobody tells the portals of the target"),
        }
    }
}
