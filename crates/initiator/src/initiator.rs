//! The initiator: a name, and the sessions opened under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use iscsi_pdu::{IscsiName, Isid};
use iscsi_session::{
    Chap, Config, DiscoveredTarget, Entropy, IssuedChallenges, SessionKind, decode_send_targets,
};

use crate::budget::Budget;
use crate::disk::Disk;
use crate::error::Error;
use crate::name::default_name;
use crate::options::Options;
use crate::paths::opening;
use crate::session::Session;
use crate::tuner::planned_offer;
use crate::url::{Url, UrlError};

/// An iSCSI initiator: a node name, and what its sessions have in common (RFC 7143 §4.1).
///
/// Clones are the same initiator: all its sessions share the random part of their ISIDs, and each
/// has a qualifier of its own, so that no session takes another one's place.
#[derive(Clone, Debug)]
pub struct Initiator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: IscsiName,
    options: Options,
    isid: [u8; 3],
    qualifier: AtomicU16,
    challenges: IssuedChallenges,
}

impl Initiator {
    /// An initiator of that name with the default [`Options`].
    ///
    /// # Errors
    /// When the name is not an iSCSI name (RFC 7143 §4.2.7).
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::with_options(name, Options::default())
    }

    /// An initiator under this host's [default name](default_name).
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn with_default_name(options: Options) -> Result<Self, Error> {
        Self::build(default_name()?, options)
    }

    /// An initiator of that name.
    ///
    /// # Errors
    /// When the name is not an iSCSI name (RFC 7143 §4.2.7), or the system gives no random bytes.
    pub fn with_options(name: &str, options: Options) -> Result<Self, Error> {
        Self::build(IscsiName::parse(name)?, options)
    }

    fn build(name: IscsiName, options: Options) -> Result<Self, Error> {
        let mut drawn = [0; 3];
        getrandom::fill(&mut drawn).map_err(|error| Error::Entropy(error.to_string()))?;
        let isid = options.isid.unwrap_or(drawn);
        Ok(Self(Arc::new(Inner {
            name,
            options,
            isid,
            qualifier: AtomicU16::new(0),
            challenges: IssuedChallenges::default(),
        })))
    }

    /// The initiator's name.
    pub fn name(&self) -> &IscsiName {
        &self.0.name
    }

    /// What the initiator asks of its sessions.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Logs in to the target of a URL, given as text or as a [`Url`]. If it names a logical unit,
    /// the questions that [`Session::disk`] needs answered are sent right behind the login.
    ///
    /// Dropping the future gives the login up.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Connect`], [`Error::Login`], or [`Error::Session`] when the target
    /// breaks the protocol or stays silent.
    pub async fn connect<U>(&self, url: U) -> Result<Session, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        let url = self.complete(url.try_into()?);
        let session = self.start_at(&url, None, &self.0.options.budget())?;
        session.log_in().await?;
        Ok(session)
    }

    /// Opens the disk that a URL names, over as many sessions as [`Options::sessions`] says. It is
    /// there as soon as the first session has logged in and the unit has said what it is; further
    /// sessions log in meanwhile, and join when they have been found to lead to the same unit.
    ///
    /// With [`Sessions::Fixed`](crate::Sessions) or several portals in the URL it waits a little for
    /// the others, too. One that is refused is no error: [`Disk::spread`] tells.
    ///
    /// # Errors
    /// As [`connect`](Self::connect) and [`Session::disk`]; [`Error::DifferentUnits`] when the
    /// portals lead to different units.
    pub async fn disk<U>(&self, url: U) -> Result<Disk, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::open(self, self.complete(url.try_into()?)).await
    }

    /// Asks the portal of a URL for the targets behind it (RFC 7143 appendix C). A target and a
    /// unit in the URL do not matter. A target that is listed without an address is reached at
    /// that same portal.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn discover<U>(&self, url: U) -> Result<Vec<DiscoveredTarget>, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        let mut url = self.complete(url.try_into()?);
        (url.target, url.lun) = (None, None);
        let budget = self.0.options.budget();
        let session = self.start(&url, SessionKind::Discovery, self.next_isid(), budget)?;
        session.log_in().await?;
        let text = session.send_targets_text().await?;
        // The answer counts, also when the target closes the connection without a goodbye.
        if let Err(error) = session.logout().await {
            tracing::debug!(%error, "the logout after discovery failed");
        }
        Ok(decode_send_targets(&text)?)
    }

    fn complete(&self, url: Url) -> Url {
        if !self.0.options.use_environment {
            return url;
        }
        url.with_environment(|name| std::env::var(name).ok())
    }

    /// A session with the target of a URL: under a name of its own, or under that of one that was
    /// lost.
    pub(crate) fn start_at(
        &self,
        url: &Url,
        isid: Option<Isid>,
        budget: &Budget,
    ) -> Result<Session, Error> {
        let Some(target_name) = url.target.clone() else {
            return Err(UrlError::PortalOnly.into());
        };
        let isid = isid.unwrap_or_else(|| self.next_isid());
        self.start(url, SessionKind::Normal { target_name }, isid, budget.clone())
    }

    fn start(
        &self,
        url: &Url,
        kind: SessionKind,
        isid: Isid,
        budget: Budget,
    ) -> Result<Session, Error> {
        let config = self.config(url, kind, isid)?;
        let options = &self.0.options;
        let mut socket = options.socket.clone();
        if options.use_environment {
            socket = socket.with_environment(|name| std::env::var(name).ok());
        }
        Ok(Session::start(url, config, SystemEntropy, options, socket, budget))
    }

    fn next_isid(&self) -> Isid {
        Isid::random(self.0.isid, self.0.qualifier.fetch_add(1, Ordering::Relaxed))
    }

    fn config(&self, url: &Url, kind: SessionKind, isid: Isid) -> Result<Config, Error> {
        let Inner { name, options, challenges, .. } = &*self.0;
        let mut config = Config::new(name.clone(), isid, kind);
        config.offer = planned_offer(&options.offer, &options.tuning);
        let connections = options.connections_of(&config.kind);
        config.offer.max_connections = config.offer.max_connections.max(connections);
        config.timeouts = options.timeouts.clone();
        url.parameters.apply(&mut config.offer, &mut config.timeouts);
        config.chap = self.chap(url)?;
        config.max_tasks = options.tasks();
        config.issued_challenges = challenges.clone();
        Ok(config)
    }

    /// The URL's credentials, or else the initiator's own.
    fn chap(&self, url: &Url) -> Result<Option<Chap>, Error> {
        let mut chap = url.chap()?.or_else(|| self.0.options.chap.clone());
        if let (Some(chap), Some(algorithm)) = (&mut chap, url.parameters.chap_algorithm) {
            chap.algorithms = vec![algorithm];
        }
        Ok(chap)
    }
}

/// The system's random bytes.
#[derive(Debug)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        // The system gave random bytes when the initiator was made. A challenge that can be
        // guessed would be worse than a wait.
        while let Err(error) = getrandom::fill(bytes) {
            tracing::error!(%error, "the system gives no random bytes");
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isids(options: Options) -> [Isid; 2] {
        let initiator = Initiator::with_options("iqn.2026-01.org.example:host", options).unwrap();
        let url = Url::parse("iscsi://127.0.0.1").unwrap();
        [(); 2].map(|()| {
            let isid = initiator.next_isid();
            initiator.config(&url, SessionKind::Discovery, isid).unwrap().isid
        })
    }

    /// ISI-01, ISI-02, ISI-03: each session has an ISID of its own, of the random type, and a fixed
    /// one is the same after a restart.
    #[test]
    fn isi_02_each_session_has_its_own_isid() {
        let options = Options { isid: Some([1, 2, 3]), ..Options::default() };
        let fixed = isids(options.clone());
        assert_eq!(fixed.map(Isid::to_bytes), [[0x80, 1, 2, 3, 0, 0], [0x80, 1, 2, 3, 0, 1]]);
        assert_eq!(isids(options), fixed);
        let [first, second] = isids(Options::default());
        assert_ne!(first, second);
    }
}
