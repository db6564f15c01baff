//! Opens and closes sessions, and finds the units that URLs name.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::place;
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{Disk, ErrorKind, Initiator, LogicalUnit, Options, Session, Url, UrlError};
use tokio::time::timeout;

use crate::error::Error;
use crate::stop::Stop;

/// Time limit of a logout if no data can be lost.
const LOGOUT: Duration = Duration::from_secs(3);

/// Opens sessions.
#[derive(Clone, Debug)]
pub struct Connector {
    /// Name of the initiator; `None` uses a name made from this host.
    pub initiator_name: Option<String>,
    /// The files of the passwords.
    pub passwords: PasswordFiles,
    /// Time to wait for a target that is not ready yet.
    pub wait: Duration,
    /// The portals of the sessions opened so far.
    pub portals: Portals,
    /// The request to stop.
    pub stop: Stop,
}

/// The portals of the sessions opened so far. If a target has redirected logins, they differ from those of the
/// URLs. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Portals(Arc<Mutex<BTreeSet<String>>>);

impl Portals {
    /// Returns the portals so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// Adds the portal of a session.
    pub fn add(&self, portal: String) {
        self.lock().insert(portal);
    }

    /// Adds the portals of a disk's sessions.
    pub fn of(&self, disk: &Disk) {
        place::portals(disk).into_iter().for_each(|portal| self.add(portal));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector {
    /// Returns an initiator with these options, and with `wait` as its time limit for opening.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn initiator(&self, options: Options) -> Result<Initiator, Error> {
        let options = options.with_open_timeout(self.wait);
        Ok(place::initiator(self.initiator_name.as_deref(), options)?)
    }

    /// Parses a URL, and adds its passwords.
    ///
    /// # Errors
    /// The URL or a password file is wrong, or a stop is requested while a file is read
    /// ([`ProgramError::Interrupted`]).
    pub async fn url(&self, url: &str) -> Result<Url, Error> {
        let mut url = parse(url)?;
        self.give_passwords(vec![&mut url]).await?;
        Ok(url)
    }

    /// Adds the passwords to the URLs of one target or one volume.
    ///
    /// # Errors
    /// The errors of [`url`](Self::url).
    pub async fn give_passwords(&self, urls: Vec<&mut Url>) -> Result<(), Error> {
        // A password file may be a pipe to which nothing is written.
        Ok(self.unless(self.passwords.apply(urls)).await?.map_err(ProgramError::from)?)
    }

    /// Opens a session with the target of a URL, runs `work` with it, and logs out.
    ///
    /// # Errors
    /// If there is no session, or the error of `work`.
    pub async fn session<T>(
        &self,
        url: &str,
        work: impl AsyncFnOnce(&Session, &Url) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.session_with(url, Options::default(), work).await
    }

    /// Opens a session, runs `work` with the unit that a URL names, and logs out.
    ///
    /// # Errors
    /// The errors of [`named`] and [`session`](Self::session).
    pub async fn unit<T>(
        &self,
        url: &str,
        work: impl AsyncFnOnce(&LogicalUnit) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let of_unit = async |session: &Session, url: &Url| {
            let unit = self.unless(named(session, url)).await??;
            work(&unit).await
        };
        self.session(url, of_unit).await
    }

    /// Opens a session like [`session`](Self::session), with the given options.
    ///
    /// # Errors
    /// The errors of [`session`](Self::session).
    pub async fn session_with<T>(
        &self,
        url: &str,
        options: Options,
        work: impl AsyncFnOnce(&Session, &Url) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let url = self.url(url).await?;
        let initiator = self.initiator(options)?;
        let session = self.unless(initiator.connect(&url)).await??;
        session.portal().into_iter().for_each(|portal| self.portals.add(portal.to_string()));
        let result = work(&session, &url).await;
        // All requests were answered, so a failed logout does no harm.
        drop(self.stop.hurry(timeout(LOGOUT, session.logout())).await);
        result
    }

    /// Waits for a future, or returns an error if a stop is requested first.
    ///
    /// # Errors
    /// [`ProgramError::Interrupted`] if a stop is requested.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.stop.unless(work).await.ok_or_else(|| ProgramError::Interrupted.into())
    }
}

/// Parses a URL.
///
/// # Errors
/// The URL is wrong. The message does not contain its password.
pub fn parse(url: &str) -> Result<Url, Error> {
    Ok(Url::parse(url).map_err(iscsi_initiator::Error::from)?)
}

/// Returns the unit that a URL names. It may be of any type, and the target may use any format of LUNs.
///
/// # Errors
/// [`UrlError::NoUnit`], or the errors of [`LogicalUnit::check_present`].
pub async fn named(session: &Session, url: &Url) -> Result<LogicalUnit, iscsi_initiator::Error> {
    let lun = url.lun.ok_or(UrlError::NoUnit)?;
    let unit = session.logical_unit(lun);
    match unit.check_present().await {
        Err(error) if error.kind() == ErrorKind::NotFound => session.listed_unit(lun).await,
        result => result.map(|_| unit),
    }
}
