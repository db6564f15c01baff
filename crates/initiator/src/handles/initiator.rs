//! Opens sessions and disks under the name of an initiator.

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

/// An iSCSI initiator: a node name, and the state that its sessions share (RFC 7143 §4.1).
///
/// Clones are the same initiator. All its sessions share the random part of their ISIDs, and each
/// session has its own qualifier, so that no session takes another one's place.
#[doc(alias("iscsiadm", "open-iscsi", "libiscsi"))]
#[derive(Clone, Debug)]
pub struct Initiator(Node);

impl Initiator {
    /// Makes an initiator with this name and the default [`Options`].
    ///
    /// # Errors
    /// When the name is not an iSCSI name (RFC 7143 §4.2.7).
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::with_options(name, Options::default())
    }

    /// Makes an initiator with this host's [default name](default_name).
    ///
    /// # Errors
    /// When the system returns no random bytes.
    pub fn with_default_name(options: Options) -> Result<Self, Error> {
        Self::build(default_name()?, options)
    }

    /// Makes an initiator with this name and these options.
    ///
    /// # Errors
    /// When the name is not an iSCSI name (RFC 7143 §4.2.7), or the system returns no random bytes.
    pub fn with_options(name: &str, options: Options) -> Result<Self, Error> {
        Self::build(IscsiName::parse(name)?, options)
    }

    fn build(name: IscsiName, options: Options) -> Result<Self, Error> {
        Ok(Self(Node::new(name, options)?))
    }

    /// Returns the initiator's name.
    #[doc(alias = "IQN")]
    pub fn name(&self) -> &IscsiName {
        self.0.name()
    }

    /// Returns the options that apply to every session of this initiator.
    pub fn options(&self) -> &Options {
        self.0.options()
    }

    /// Logs in to the target of a URL, given as text or as a [`Url`]. If the URL names a logical unit, the
    /// commands that [`Session::disk_without_reconnect`] needs are sent immediately after the login.
    ///
    /// With [`Options::with_open_timeout`], this method retries while the target is not available yet.
    /// Dropping the future cancels the login.
    ///
    /// # Errors
    /// If the URL is wrong, no connection is made, or the target refuses the login, breaks the protocol or does
    /// not respond. A call outside of a tokio runtime fails as well.
    #[doc(alias = "login")]
    pub async fn connect<U>(&self, url: U) -> Result<Session, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::connect(&self.0, self.0.complete(url.try_into()?)?).await
    }

    /// Opens the disk that a URL names, with as many sessions as [`Options::with_sessions`] allows. The call
    /// returns as soon as the first session has logged in and the unit has reported its identity and capacity.
    /// Further sessions log in meanwhile; each joins the disk when it is known to lead to the same unit.
    ///
    /// With [`Sessions::Fixed`](crate::Sessions), or with several portals in the URL, the call also waits
    /// a short time for the other sessions. A session that is refused is no error: [`Disk::status`]
    /// reports it. With [`Options::with_open_timeout`], the call retries while the target is not available
    /// yet.
    ///
    /// A session of the disk that is lost is reconnected: see [Retry, reconnect and
    /// failover](crate#retry-reconnect-and-failover).
    ///
    /// # Errors
    /// As [`connect`](Self::connect) and [`Session::disk_without_reconnect`];
    /// [`UnitChanged`](crate::ErrorKind::UnitChanged) if the portals lead to different units.
    #[doc(alias("open", "LUN", "multipath"))]
    pub async fn disk<U>(&self, url: U) -> Result<Disk, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::disk(&self.0, self.0.complete(url.try_into()?)?).await
    }

    /// Checks whether the network path to the portal of a URL carries the largest packets that initiator and
    /// target send. The URL names a target. A path that drops large packets without an ICMP message lets a login
    /// pass and nothing else (a path-MTU black hole). The check sends pings with data (RFC 7143 §11.18) over
    /// separate sessions.
    ///
    /// If large packets are dropped, the initiator remembers it: its later connections to that
    /// address use shorter segments. Disks and sessions that stand still run this check by
    /// themselves.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[doc(alias("MTU", "PMTU"))]
    pub async fn check_path<U>(&self, url: U) -> Result<PathCheck, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        self.0.check_path(&self.0.complete(url.try_into()?)?).await
    }

    /// Lists the targets that the portal of a URL offers (SendTargets, RFC 7143 appendix C). A
    /// target and a unit in the URL are ignored. A target that is listed without an address is
    /// reached at that same portal.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    #[doc(alias("SendTargets", "sendtargets", "discovery"))]
    pub async fn discover<U>(&self, url: U) -> Result<Vec<DiscoveredTarget>, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        opening::discover(&self.0, self.0.complete(url.try_into()?)?).await
    }
}
