//! The runtime that a caller is in.

use tokio::runtime::Handle;

use crate::error::Error;

/// Refuses what spawns tasks or waits for a time where no runtime would run it.
pub(crate) fn require() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| Error::NoRuntime)
}
