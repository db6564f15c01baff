//! The initiator of programs without async.

use std::sync::Arc;

use iscsi_pdu::IscsiName;

use crate::blocking::disk::Disk;
use crate::blocking::runtime::Runtime;
use crate::error::Error;
use crate::options::Options;
use crate::session::discovered_target::DiscoveredTarget;
use crate::url::Url;

/// An iSCSI initiator whose calls wait: [`crate::Initiator`] with a runtime of its own.
#[derive(Clone, Debug)]
pub struct Initiator {
    initiator: crate::Initiator,
    runtime: Arc<Runtime>,
}

impl Initiator {
    /// An initiator of that name with the default [`Options`].
    ///
    /// # Errors
    /// As [`crate::Initiator::new`]; [`Error::RuntimeNotStarted`] when the system has no thread or
    /// file for the runtime.
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::over(crate::Initiator::new(name)?)
    }

    /// An initiator under this host's [default name](crate::default_name).
    ///
    /// # Errors
    /// As [`crate::Initiator::with_default_name`], and [`new`](Self::new).
    pub fn with_default_name(options: Options) -> Result<Self, Error> {
        Self::over(crate::Initiator::with_default_name(options)?)
    }

    /// An initiator of that name.
    ///
    /// # Errors
    /// As [`crate::Initiator::with_options`], and [`new`](Self::new).
    pub fn with_options(name: &str, options: Options) -> Result<Self, Error> {
        Self::over(crate::Initiator::with_options(name, options)?)
    }

    fn over(initiator: crate::Initiator) -> Result<Self, Error> {
        Ok(Self { initiator, runtime: Arc::new(Runtime::start()?) })
    }

    /// The initiator's name.
    pub fn name(&self) -> &IscsiName {
        self.initiator.name()
    }

    /// What the initiator asks of its sessions.
    pub fn options(&self) -> &Options {
        self.initiator.options()
    }

    /// The async initiator, for [`block_on`](Self::block_on).
    pub const fn get_ref(&self) -> &crate::Initiator {
        &self.initiator
    }

    /// Opens the disk that a URL names, as [`crate::Initiator::disk`].
    ///
    /// # Errors
    /// As [`crate::Initiator::disk`]; [`Error::InsideRuntime`] in an async task.
    pub fn disk<U>(&self, url: U) -> Result<Disk, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        let disk = self.runtime.block_on(self.initiator.disk(url))??;
        Ok(Disk::new(disk, Arc::clone(&self.runtime)))
    }

    /// Asks the portal of a URL for the targets behind it, as [`crate::Initiator::discover`].
    ///
    /// # Errors
    /// As [`crate::Initiator::discover`]; [`Error::InsideRuntime`] in an async task.
    pub fn discover<U>(&self, url: U) -> Result<Vec<DiscoveredTarget>, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        self.runtime.block_on(self.initiator.discover(url))?
    }

    /// Waits for a future, which is polled on this thread within the initiator's runtime: for what has
    /// no blocking form, and for many requests at once.
    ///
    /// # Errors
    /// [`Error::InsideRuntime`] in an async task.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtime.block_on(future)
    }
}
