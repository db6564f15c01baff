//! Sessions, opened and closed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_examples_common::credentials::PasswordFiles;
use iscsi_examples_common::{place, unit};
use iscsi_initiator::{Disk, Initiator, LogicalUnit, Options, Session, Url};
use tokio::time::timeout;

use crate::error::Error;
use crate::stop::Stop;
use crate::unit::named;

/// How long the end of a session may take where there is nothing to lose.
const LOGOUT: Duration = Duration::from_secs(3);

/// Opens sessions.
#[derive(Clone, Debug)]
pub struct Connector {
    /// The initiator's name; `None` for the one that is made from this host's.
    pub initiator_name: Option<String>,
    /// Where the passwords are.
    pub passwords: PasswordFiles,
    /// How long to wait for a target that is not up yet.
    pub wait: Duration,
    /// The portals that there were sessions with.
    pub portals: Portals,
    /// The wish to stop.
    pub stop: Stop,
}

/// Portals that there were sessions with: not those of the URLs where logins were redirected. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Portals(Arc<Mutex<BTreeSet<String>>>);

impl Portals {
    /// All so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// There is a session with this one.
    pub fn add(&self, portal: String) {
        self.lock().insert(portal);
    }

    /// A disk has sessions with these.
    pub fn of(&self, disk: &Disk) {
        place::portals(disk).into_iter().for_each(|portal| self.add(portal));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector {
    /// The initiator.
    ///
    /// # Errors
    /// When the name is none.
    pub fn initiator(&self, options: Options) -> Result<Initiator, Error> {
        let options = options.with_open_timeout(self.wait);
        Ok(unit::initiator(self.initiator_name.as_deref(), options)?)
    }

    /// Reads a URL, and gives it its passwords.
    ///
    /// # Errors
    /// What is wrong with it, or with a file of a password; [`Error::Interrupted`] while one is read.
    pub async fn url(&self, url: &str) -> Result<Url, Error> {
        let mut url = parse(url)?;
        self.give_passwords(vec![&mut url]).await?;
        Ok(url)
    }

    /// Gives URLs of one target, or of one volume, their passwords.
    ///
    /// # Errors
    /// As [`url`](Self::url).
    pub async fn give_passwords(&self, urls: Vec<&mut Url>) -> Result<(), Error> {
        // A file may be a pipe that nothing comes of.
        Ok(self.unless(self.passwords.apply(urls)).await??)
    }

    /// Works on a session with the target of a URL, and logs out.
    ///
    /// # Errors
    /// When there is no session, or as the work.
    pub async fn session<T>(
        &self,
        url: &str,
        work: impl AsyncFnOnce(&Session, &Url) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.session_with(url, Options::default(), work).await
    }

    /// Works on the unit that a URL names, over a session of its own.
    ///
    /// # Errors
    /// As [`named`] and [`session`](Self::session).
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

    /// Opens a session like [`session`](Self::session), with other options.
    ///
    /// # Errors
    /// As [`session`](Self::session).
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
        // Whatever was asked is answered; how the goodbye goes changes nothing.
        drop(self.stop.hurry(timeout(LOGOUT, session.logout())).await);
        result
    }

    /// Waits for a future, unless the program shall stop before.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if it shall.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.stop.unless(work).await.ok_or(Error::Interrupted)
    }
}

/// Reads a URL.
///
/// # Errors
/// What is wrong with it; a password in it is not repeated.
pub fn parse(url: &str) -> Result<Url, Error> {
    Ok(Url::parse(url).map_err(iscsi_initiator::Error::from)?)
}
