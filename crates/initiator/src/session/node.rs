//! Starts the sessions of an iSCSI initiator node under its name.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use iscsi_pdu::{CmdSn, IscsiName, Isid, TargetAddress};
use iscsi_session::{
    Chap, Config, DiscoveredTarget, Entropy, IssuedChallenges, SessionKind, decode_send_targets,
};

use crate::boxed::{BoxFuture, boxed};
use crate::driver::connector::{Connected, Connector, Opening, Reach, Segments};
use crate::driver::measure::offer::planned_offer;
use crate::driver::referral::Referral;
use crate::error::{CallerCause, Cause, Error};
use crate::options::Options;
use crate::runtime;
use crate::session::{Common, Session};
use crate::state::budget::Budget;
use crate::state::isids::{HeldKey, Isids};
use crate::state::segment_limits::SegmentLimits;
use crate::state::session_key::SessionKey;
use crate::transport::Network;
#[cfg(target_os = "linux")]
use crate::transport::tcp::Tcp;
use crate::url::{Url, UrlError};

/// Number of sessions that a disk may have besides those that carry its data: sessions that check other portals,
/// and sessions that are closing.
const SPARE_ISIDS: u32 = 16;

/// An iSCSI initiator node (RFC 7143 §4.1), with the state that its sessions share. Clones are the same node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    inner: Arc<Inner>,
    /// Set in the handles with which a caller can open further disks.
    user: Option<Arc<()>>,
}

#[derive(Debug)]
struct Inner {
    /// Alive as long as a caller may open further disks.
    users: Weak<()>,
    name: IscsiName,
    isids: Arc<Isids>,
    /// Number of disks that were opened.
    disks: AtomicU32,
    challenges: IssuedChallenges,
    common: Common,
}

/// The result of SendTargets.
#[derive(Debug)]
pub(crate) struct Discovered {
    pub(crate) targets: Vec<DiscoveredTarget>,
    /// Address of the portal that sent the response.
    pub(crate) by: Option<IpAddr>,
}

impl Node {
    /// Creates a node with that name, over the network of the options, or else the kernel's TCP.
    pub(crate) fn new(name: IscsiName, options: Options) -> Result<Self, Error> {
        if let Some(network) = options.network.clone() {
            return Self::over(network, name, options);
        }
        let mut socket = options.advanced.sockets.clone();
        if options.use_environment {
            socket = socket.with_environment(|name| std::env::var(name).ok());
        }
        #[cfg(target_os = "linux")]
        let network = Arc::new(Tcp(socket));
        // Other systems define `network` too, so that the message of `compile_error!` is the only error of the
        // compiler.
        #[cfg(not(target_os = "linux"))]
        let network = compile_error!(
            "iscsi-initiator works on Linux only: it needs TCP_INFO and socket options of its kernel"
        );
        Self::over(network, name, options)
    }

    /// Creates a node with that name, over any network.
    pub(crate) fn over(
        network: Arc<dyn Network>,
        name: IscsiName,
        options: Options,
    ) -> Result<Self, Error> {
        let mut drawn = [0; 3];
        network.random(&mut drawn).map_err(|error| CallerCause::Entropy(error.to_string()))?;
        let isid = options.advanced.isid.unwrap_or(drawn);
        let user = Arc::new(());
        let inner = Inner {
            users: Arc::downgrade(&user),
            name,
            isids: Isids::new(isid),
            disks: AtomicU32::new(0),
            challenges: IssuedChallenges::default(),
            common: Common {
                clear_text: options.network.is_none().then(Arc::default),
                options,
                network,
                unit_registry: Arc::default(),
                segment_limits: Arc::default(),
            },
        };
        Ok(Self { inner: Arc::new(inner), user: Some(user) })
    }

    /// Returns a handle of the same node for reconnecting sessions of existing disks. It does not count as a
    /// handle with which further disks can be opened.
    pub(crate) fn for_disks_that_are_there(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), user: None }
    }

    /// Opens a session over which disks may be opened.
    pub(crate) fn connect<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Session, Error>> {
        boxed(async move {
            let session = self.start_at(url, None, &Budget::of(self.options()), None)?;
            if let Some(user) = &self.user {
                session.shared.user.get_or_init(|| Arc::clone(user));
            }
            session.log_in().await?;
            Ok(session)
        })
    }

    /// Returns whether a caller may open further disks, with the node or over one of its sessions.
    pub(crate) fn may_open_disks(&self) -> bool {
        self.inner.users.strong_count() > 0
    }

    pub(crate) fn name(&self) -> &IscsiName {
        &self.inner.name
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.common.options
    }

    /// Returns a URL with the values that the environment adds to it, if the options permit.
    pub(crate) fn complete(&self, url: Url) -> Result<Url, UrlError> {
        if !self.inner.common.options.use_environment {
            return Ok(url);
        }
        url.with_environment(|name| std::env::var_os(name))
    }

    /// Opens a TCP connection to the portal of a URL, as the leading connection of a session. `referral` names
    /// the peer that has named the portal, if one has.
    pub(crate) fn reach(&self, url: &Url, referral: Option<Referral>) -> Opening {
        self.connector_as_known(url).open(url.portal.clone(), referral)
    }

    /// Returns the addresses of a portal; an empty list if they cannot be resolved.
    pub(crate) async fn addresses_of(&self, url: &Url, portal: &TargetAddress) -> Vec<SocketAddr> {
        self.connector_as_known(url).addresses_of(portal).await
    }

    /// Starts a session with the target of a URL. Its ISID is a new one, or the ISID of a lost session. Its
    /// leading connection is one that is open already, or a new one.
    pub(crate) fn start_at(
        &self,
        url: &Url,
        key: Option<SessionKey>,
        budget: &Budget,
        reached: Option<Connected>,
    ) -> Result<Session, Error> {
        let Some(target_name) = url.target.clone() else {
            return Err(UrlError::PortalOnly.into());
        };
        let key = match key {
            Some(key) => self.inner.isids.hold(key),
            None => self.next_key()?,
        };
        runtime::require()?;
        let config = self.config(url, SessionKind::Normal { target_name }, key.key.isid)?;
        Ok(self.start_with(config, url, key, budget.clone(), reached))
    }

    /// Starts a session under the name of a lost session, to replace the lost session at the target. If the
    /// target states its portal group, the login must lead to the group of the lost session: in another group, a
    /// session of that name may be alive.
    pub(crate) fn reinstate_at(
        &self,
        url: &Url,
        key: SessionKey,
        portal_group: Option<u16>,
        budget: &Budget,
        reached: Connected,
    ) -> Result<Session, Error> {
        let Some(target_name) = url.target.clone() else {
            return Err(UrlError::PortalOnly.into());
        };
        runtime::require()?;
        let mut config = self.config(url, SessionKind::Normal { target_name }, key.isid)?;
        config.expected_portal_group_tag = portal_group;
        Ok(self.start_with(config, url, self.inner.isids.hold(key), budget.clone(), Some(reached)))
    }

    /// Returns the targets that the portal of a URL reports over a separate session.
    ///
    /// Many targets have other accounts for discovery than for their units, or none. So if the credentials are
    /// refused, discovery is retried once without them, unless the options require the target to authenticate
    /// itself.
    pub(crate) fn discover(
        &self,
        url: Url,
        referral: Option<Referral>,
    ) -> BoxFuture<'_, Result<Discovered, Error>> {
        boxed(async move {
            let url = Url { target: None, lun: None, ..url };
            let chap = self.chap(&url)?;
            let may_do_without = chap.as_ref().is_some_and(|chap| chap.target.is_none());
            match self.discover_with(&url, referral, chap).await {
                Err(error) if may_do_without && error.is_of_credentials() => {
                    tracing::debug!(%error, "discovery is tried without credentials");
                    // If discovery without credentials is refused as well, the first error is returned: the
                    // credentials are the cause.
                    self.discover_with(&url, referral, None).await.map_err(|_| error)
                }
                result => result,
            }
        })
    }

    async fn discover_with(
        &self,
        url: &Url,
        referral: Option<Referral>,
        chap: Option<Chap>,
    ) -> Result<Discovered, Error> {
        runtime::require()?;
        let (key, budget) = (self.next_key()?, Budget::of(self.options()));
        let mut config = self.config(url, SessionKind::Discovery, key.key.isid)?;
        config.chap = chap;
        let reached = match referral {
            Some(_) => Some(self.reach(url, referral).await?),
            None => None,
        };
        let session = self.start_with(config, url, key, budget, reached);
        session.log_in().await?;
        let text = session.send_targets_text().await?;
        // The list counts even if the target closes the connection without a logout response.
        if let Err(error) = session.logout().await {
            tracing::debug!(%error, "the logout after discovery failed");
        }
        Ok(Discovered {
            targets: decode_send_targets(&text).map_err(Cause::from)?,
            by: session.address(),
        })
    }

    fn start_with(
        &self,
        config: Config,
        url: &Url,
        key: HeldKey,
        budget: Budget,
        reached: Option<Connected>,
    ) -> Session {
        let is_normal = matches!(config.kind, SessionKind::Normal { .. });
        let reach = Reach {
            connector: self.connector_as_known(url),
            reached: reached.map(Box::new),
            connections: self.options().connections_of(&config.kind),
            start_trial: is_normal.then(|| self.trial_starter(url)),
        };
        self.start_over(reach, config, url, key, budget)
    }

    /// Starts a session over connections that are opened by `reach`.
    pub(crate) fn start_over(
        &self,
        reach: Reach,
        config: Config,
        url: &Url,
        key: HeldKey,
        budget: Budget,
    ) -> Session {
        Session::start(url, key, config, self.entropy(), &self.inner.common, budget, reach)
    }

    /// Returns how to open the connections of a URL, with these limits of the segment length.
    pub(crate) fn connector(&self, url: &Url, segments: Segments) -> Connector {
        self.inner.common.connector(url, segments)
    }

    fn connector_as_known(&self, url: &Url) -> Connector {
        self.connector(url, Segments::AsKnown(Arc::clone(self.segment_limits())))
    }

    /// Returns the limits of the segment length, by address.
    pub(crate) fn segment_limits(&self) -> &Arc<SegmentLimits> {
        &self.inner.common.segment_limits
    }

    /// Fills a buffer with random bytes of this host.
    pub(crate) fn random(&self, bytes: &mut [u8]) -> std::io::Result<()> {
        self.inner.common.network.random(bytes)
    }

    /// Returns the source of random bytes of this host.
    pub(crate) fn entropy(&self) -> HostEntropy {
        HostEntropy(Arc::clone(&self.inner.common.network))
    }

    /// Counts a disk that is being opened.
    pub(crate) fn count_disk(&self) {
        self.inner.disks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the random part of all ISIDs of this node, and the number of ISIDs that may exist at the same
    /// time from this call on: those of the disks' sessions, and those of the sessions that check portals.
    pub(crate) fn isids(&self) -> ([u8; 3], u32) {
        let disks = self.inner.disks.load(Ordering::Relaxed);
        let each = self.options().sessions.max().saturating_add(SPARE_ISIDS);
        self.inner.isids.bound(disks.max(1).saturating_mul(each))
    }

    /// Returns whether a session of this node has that ISID.
    pub(crate) fn has(&self, isid: Isid) -> bool {
        self.inner.isids.is_held(isid)
    }

    /// Returns the key of the next session, with an ISID that no other session has.
    pub(crate) fn next_key(&self) -> Result<HeldKey, Error> {
        self.inner.isids.hold_next().ok_or_else(|| CallerCause::TooManySessions.into())
    }

    pub(crate) fn config(&self, url: &Url, kind: SessionKind, isid: Isid) -> Result<Config, Error> {
        let Inner { name, challenges, common: Common { options, network, .. }, .. } = &*self.inner;
        let mut config = Config::new(name.clone(), isid, kind);
        let (cmd_sn, generation) = network.first_numbers();
        (config.first_cmd_sn, config.first_tag_generation) = (CmdSn::new(cmd_sn), generation);
        config.offer = planned_offer(&options.advanced.offer, &options.tuning);
        let connections = options.connections_of(&config.kind);
        let connections = config.offer.max_connections().max(connections);
        config.offer = config.offer.with_max_connections(connections);
        config.timeouts = options.timeouts;
        config.offer = url.parameters.apply_to_offer(config.offer);
        config.timeouts = url.parameters.apply_to_timeouts(config.timeouts);
        config.chap = self.chap(url)?;
        config.max_tasks = options.tasks();
        config.issued_challenges = challenges.clone();
        Ok(config)
    }

    /// Returns the credentials of the URL, or those of the options if the URL has none.
    fn chap(&self, url: &Url) -> Result<Option<Chap>, Error> {
        let mut chap = url.chap()?.or_else(|| self.inner.common.options.trust.chap.clone());
        if let Some(chap) = &mut chap {
            url.parameters.apply_to_chap(chap);
        }
        Ok(chap)
    }
}

/// The source of random bytes of this host.
#[derive(Debug)]
pub(crate) struct HostEntropy(Arc<dyn Network>);

impl Entropy for HostEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        // The system had random bytes when the initiator was created, so they should be available again soon. A
        // challenge that can be guessed would be worse than a wait.
        while let Err(error) = self.0.random(bytes) {
            tracing::error!(%error, "the system gives no random bytes");
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::advanced::Advanced;

    fn isids(options: Options) -> [Isid; 2] {
        let name = IscsiName::parse("iqn.2026-01.org.example:host").unwrap();
        let node = Node::new(name, options).unwrap();
        let url = Url::parse("iscsi://127.0.0.1").unwrap();
        let keys = [(); 2].map(|()| node.next_key().unwrap());
        keys.each_ref()
            .map(|key| node.config(&url, SessionKind::Discovery, key.key.isid).unwrap().isid)
    }

    /// ISI-01, ISI-02, ISI-03: each session has its own ISID, of the random type, and a fixed
    /// one is the same after a restart.
    #[test]
    fn isi_02_each_session_has_its_own_isid() {
        let advanced = Advanced::default().with_isid(Some([1, 2, 3]));
        let options = Options::default().with_advanced(advanced);
        let fixed = isids(options.clone());
        assert_eq!(fixed.map(Isid::to_bytes), [[0x80, 1, 2, 3, 0, 0], [0x80, 1, 2, 3, 0, 1]]);
        assert_eq!(isids(options), fixed);
        let [first, second] = isids(Options::default());
        assert_ne!(first, second);
    }
}
