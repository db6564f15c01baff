//! Checks whether a path carries full segments, by pings over separate sessions.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use iscsi_session::SessionKind;
use iscsi_tuner::{PathTrial, SegmentLimit, TcpInfo, TrialVerdict, Way};
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::boxed::{BoxFuture, boxed};
use crate::driver::connector::{Reach, Segments};
use crate::driver::referral::portal_at;
use crate::error::{CallerCause, Error};
use crate::session::Session;
use crate::session::node::Node;
use crate::state::budget::Budget;
use crate::state::segment_limits::{StartTrial, TrialTurn};
use crate::url::{Url, UrlError};

/// Time limit of a ping in the sessions of a trial. It is longer than any wait of the trial, which has shorter
/// time limits of its own.
const LIMIT: Duration = Duration::from_secs(600);
/// Time limit of a short ping: a target that does not respond within this time is gone.
const SHORT: Duration = Duration::from_secs(30);

/// Whether the network path to a portal carries the largest packets that initiator and target send: see
/// [`Initiator::check_path`](crate::Initiator::check_path).
#[doc(alias("MTU", "PMTU"))]
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum PathCheck {
    /// Carries packets of this many bytes, in both directions if the target returns the data of a
    /// ping.
    Passes(u32),
    /// Drops large packets and carries shorter ones, up to this limit.
    Swallows(SegmentLimit),
    /// Could not be checked: shorter packets do not arrive either, or the login led to another
    /// portal.
    Unclear,
}

/// A session for the trial of a path.
struct Probe {
    session: Session,
    address: SocketAddr,
}

impl Node {
    /// Returns the function that starts trials of the path, for the connections of a session with this URL.
    pub(crate) fn trial_starter(&self, url: &Url) -> StartTrial {
        let (node, url) = (self.for_disks_that_are_there(), url.clone());
        Box::new(move |turn| {
            let (node, url) = (node.clone(), url.clone());
            drop(tokio::spawn(node.try_path(turn, url).in_current_span()));
        })
    }

    fn try_path(self, mut turn: TrialTurn, mut url: Url) -> BoxFuture<'static, ()> {
        boxed(async move {
            // The trial must use the portal to which the session is connected, which its URL need not name.
            url.keep_certificate_name();
            url.portal = portal_at(turn.address());
            match self.check_path(&url).await {
                Ok(PathCheck::Passes(_)) => turn.has_passed(),
                Ok(PathCheck::Swallows(_) | PathCheck::Unclear) => {}
                Err(error) => tracing::info!(%error, "the path was not tried"),
            }
        })
    }

    /// Checks whether the path to the portal of a URL carries full segments, and stores the limit of their
    /// length if it does not.
    pub(crate) fn check_path<'a>(
        &'a self,
        url: &'a Url,
    ) -> BoxFuture<'a, Result<PathCheck, Error>> {
        boxed(async move {
            let Some(full) = self.probe(url, None).await? else { return Ok(PathCheck::Unclear) };
            let Ok(short) = timeout(SHORT, full.session.ping()).await else {
                return Ok(PathCheck::Unclear);
            };
            let mut trial = PathTrial::default();
            trial.short = Some(short?);
            let check = self.try_full(&full, trial, url).await?;
            if let PathCheck::Swallows(limit) = check {
                tracing::info!("{}", limit.explain(&full.address.to_string()));
                self.segment_limits().set_limit(full.address.ip(), limit);
            } else {
                // The result of the logout does not change the result of the check.
                drop(full.session.logout().await);
            }
            Ok(check)
        })
    }

    /// Sends a long ping over the session with full segments; without a response, also over sessions with
    /// shorter segments.
    async fn try_full(
        &self,
        full: &Probe,
        mut trial: PathTrial,
        url: &Url,
    ) -> Result<PathCheck, Error> {
        let info = *full.session.reading().await?.tcp_info();
        let (mss, packet) = (info.send_mss.unwrap_or_default(), packet_of(&info, full.address));
        let data = self.filling(mss)?;
        let patience = PathTrial::patience(trial.short.unwrap_or_default());
        let mut long = pin!(full.session.ping_with(data.clone()));
        let begun = Instant::now();
        trial.long = timeout(patience, &mut long).await.ok().transpose()?;
        if trial.long.is_some() {
            return Ok(PathCheck::Passes(packet));
        }
        for segment in SegmentLimit::SEGMENTS.into_iter().filter(|segment| *segment < mss) {
            let limit = SegmentLimit::new(segment, packet, None);
            let Some(probe) = self.probe(url, Some(limit)).await? else { break };
            let in_short = timeout(patience, probe.session.ping_with(data.clone())).await;
            trial.in_short_segments = in_short.ok().transpose()?;
            let longer = trial.short.max(trial.in_short_segments).map(PathTrial::patience);
            let rest = longer.unwrap_or_default().saturating_sub(begun.elapsed());
            trial.long = timeout(rest, &mut long).await.ok().transpose()?;
            trial.waited = begun.elapsed();
            match trial.verdict() {
                TrialVerdict::Passes => return Ok(PathCheck::Passes(packet)),
                TrialVerdict::Swallowed => {
                    let now = full.session.reading().await;
                    let way = now.ok().and_then(|now| way_of(now.tcp_info()));
                    return Ok(PathCheck::Swallows(SegmentLimit::new(segment, packet, way)));
                }
                TrialVerdict::Unclear => {}
            }
        }
        Ok(PathCheck::Unclear)
    }

    /// Opens a session with segments of at most that length, or full ones, and waits for its login; returns
    /// `None` if the login led to another portal.
    async fn probe(&self, url: &Url, limit: Option<SegmentLimit>) -> Result<Option<Probe>, Error> {
        let Some(target_name) = url.target.clone() else { return Err(UrlError::PortalOnly.into()) };
        let connector = self.connector(url, Segments::Fixed(limit));
        let reached = connector.open(url.portal.clone(), None).await?;
        let address = reached.1.address();
        let key = self.next_key()?;
        let mut config = self.config(url, SessionKind::Normal { target_name }, key.key.isid)?;
        config.offer = config.offer.with_max_connections(1);
        config.timeouts = config.timeouts.with_nop_interval(None).with_nop_response(LIMIT);
        let reach = Reach {
            connector,
            reached: Some(Box::new(reached)),
            connections: 1,
            start_trial: None,
        };
        let session = self.start_over(reach, config, url, key, Budget::of(self.options()));
        session.logged_in().await?;
        let is_there = session.portal() == Some(&url.portal);
        Ok(is_there.then_some(Probe { session, address }))
    }

    /// Returns data for a ping of two full segments. The data are random, so that a link that compresses data
    /// cannot shorten them.
    fn filling(&self, full: u32) -> Result<Bytes, Error> {
        let mut data = vec![0; 2 * full as usize];
        self.random(&mut data).map_err(|error| CallerCause::Entropy(error.to_string()))?;
        Ok(data.into())
    }
}

/// Returns the length of the packets of full segments, in bytes.
fn packet_of(info: &TcpInfo, address: SocketAddr) -> u32 {
    const TCP: u32 = 20;
    const TIMESTAMPS: u32 = 12;
    let ip = if address.is_ipv4() { 20 } else { 40 };
    let options = if info.timestamps == Some(true) { TIMESTAMPS } else { 0 };
    info.send_mss.unwrap_or_default() + options + TCP + ip
}

/// Returns the direction in which packets get lost: towards the peer if sent data is not acknowledged, otherwise
/// from the peer.
fn way_of(info: &TcpInfo) -> Option<Way> {
    Some(if info.segments_in_flight? > 0 { Way::ToPeer } else { Way::FromPeer })
}
