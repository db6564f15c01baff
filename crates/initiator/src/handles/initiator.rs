//! The initiator: a name, and the sessions opened under it.

use iscsi_pdu::IscsiName;

use crate::error::Error;
use crate::handles::disk::Disk;
use crate::handles::opening;
use crate::name::default_name;
use crate::options::Options;
use crate::session::Session;
use crate::session::discovered_target::DiscoveredTarget;
use crate::session::node::Node;
use crate::session::path_check::PathCheck;
use crate::url::Url;

/// An iSCSI initiator: a node name, and what its sessions have in common (RFC 7143 §4.1).
///
/// Clones are the same initiator: all its sessions share the random part of their ISIDs, and each
/// has a qualifier of its own, so that no session takes another one's place.
#[derive(Clone, Debug)]
pub struct Initiator(Node);

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
        Ok(Self(Node::new(name, options)?))
    }

    /// An initiator of that name whose connections and random bytes are those of `network`.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn over(
        network: std::sync::Arc<dyn crate::driver::io::Network>,
        name: &str,
        options: Options,
    ) -> Result<Self, Error> {
        Ok(Self(Node::over(network, IscsiName::parse(name)?, options)?))
    }

    /// The initiator's name.
    pub fn name(&self) -> &IscsiName {
        self.0.name()
    }

    /// What the initiator asks of its sessions.
    pub fn options(&self) -> &Options {
        self.0.options()
    }

    /// Logs in to the target of a URL, given as text or as a [`Url`]. If it names a logical unit,
    /// the questions that [`Session::disk`] needs answered are sent right behind the login.
    ///
    /// With an [opening patience](Options::open_patience) it waits for a target that is not there yet.
    ///
    /// Dropping the future gives the login up.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Connect`], [`Error::Login`], or [`Error::Session`] when the target
    /// breaks the protocol or stays silent; [`Error::NoRuntime`] outside of a tokio runtime.
    pub async fn connect<U>(&self, url: U) -> Result<Session, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::connect(&self.0, self.0.complete(url.try_into()?)?).await
    }

    /// Opens the disk that a URL names, over as many sessions as [`Options::sessions`] says. It is
    /// there as soon as the first session has logged in and the unit has said what it is; further
    /// sessions log in meanwhile, and join when they have been found to lead to the same unit.
    ///
    /// With [`Sessions::Fixed`](crate::Sessions) or several portals in the URL it waits a little for
    /// the others, too. One that is refused is no error: [`Disk::spread`] tells. With an
    /// [opening patience](Options::open_patience) it waits for a target that is not there yet.
    ///
    /// # Errors
    /// As [`connect`](Self::connect) and [`Session::disk`]; [`Error::DifferentUnits`] when the
    /// portals lead to different units.
    pub async fn disk<U>(&self, url: U) -> Result<Disk, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::disk(&self.0, self.0.complete(url.try_into()?)?).await
    }

    /// Finds out whether the path to the portal of a URL, which names a target, carries packets as long as both ends send
    /// them. A path that swallows them lets a login pass and nothing else, as long as no ICMP message tells either end (a
    /// path-MTU black hole). Pings with data (RFC 7143 §11.18) are sent over sessions of their own.
    ///
    /// A path that swallows them is remembered: further connections of the initiator to that address have shorter segments. Disks
    /// and sessions that stand still find it out by themselves.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn check_path<U>(&self, url: U) -> Result<PathCheck, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        self.0.check_path(&self.0.complete(url.try_into()?)?).await
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
        opening::discover(&self.0, self.0.complete(url.try_into()?)?).await
    }
}
