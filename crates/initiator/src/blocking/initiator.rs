//! The initiator of programs without async.

use std::sync::Arc;

use iscsi_pdu::IscsiName;

use crate::blocking::disk::Disk;
use crate::blocking::runtime::Runtime;
use crate::error::Error;
use crate::options::Options;
use crate::session::discovered_target::DiscoveredTarget;
use crate::url::Url;

/// A [`crate::Initiator`] whose methods block the calling thread. It owns the runtime that its
/// disks use.
#[derive(Clone, Debug)]
pub struct Initiator {
    initiator: crate::Initiator,
    runtime: Arc<Runtime>,
}

impl Initiator {
    /// Makes an initiator with this name and the default [`Options`].
    ///
    /// # Errors
    /// As [`crate::Initiator::new`]; if the system has no thread or file for the runtime.
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::over(crate::Initiator::new(name)?)
    }

    /// Makes an initiator with this host's [default name](crate::default_name).
    ///
    /// # Errors
    /// As [`crate::Initiator::with_default_name`], and [`new`](Self::new).
    pub fn with_default_name(options: Options) -> Result<Self, Error> {
        Self::over(crate::Initiator::with_default_name(options)?)
    }

    /// Makes an initiator with this name and these options.
    ///
    /// # Errors
    /// As [`crate::Initiator::with_options`], and [`new`](Self::new).
    pub fn with_options(name: &str, options: Options) -> Result<Self, Error> {
        Self::over(crate::Initiator::with_options(name, options)?)
    }

    fn over(initiator: crate::Initiator) -> Result<Self, Error> {
        Ok(Self { initiator, runtime: Arc::new(Runtime::start()?) })
    }

    /// Returns the initiator's name.
    pub fn name(&self) -> &IscsiName {
        self.initiator.name()
    }

    /// Returns the options that apply to every session of this initiator.
    pub fn options(&self) -> &Options {
        self.initiator.options()
    }

    /// Returns the async initiator, for [`block_on`](Self::block_on).
    pub const fn get_ref(&self) -> &crate::Initiator {
        &self.initiator
    }

    /// Opens the disk that a URL names, as [`crate::Initiator::disk`].
    ///
    /// # Errors
    /// As [`crate::Initiator::disk`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) in an async task.
    pub fn disk<U>(&self, url: U) -> Result<Disk, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        let disk = self.runtime.block_on(self.initiator.disk(url))??;
        Ok(Disk::new(disk, Arc::clone(&self.runtime)))
    }

    /// Lists the targets that the portal of a URL offers, as [`crate::Initiator::discover`].
    ///
    /// # Errors
    /// As [`crate::Initiator::discover`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) in an async task.
    #[doc(alias("SendTargets", "discovery", "sendtargets"))]
    pub fn discover<U>(&self, url: U) -> Result<Vec<DiscoveredTarget>, Error>
    where
        U: TryInto<Url>,
        Error: From<U::Error>,
    {
        self.runtime.block_on(self.initiator.discover(url))?
    }

    /// Runs a future to its end on this thread, within the initiator's runtime. Use it to call async methods
    /// that have no blocking form, and to send many concurrent requests from one thread.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) in an async task.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.runtime.block_on(future)
    }
}
