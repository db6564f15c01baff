//! What a request pays to its class before it is sent.

use crate::error::{CallerCause, Error};
use crate::multipath::paths::Paths;
use crate::scheduler::Charge;

impl Paths {
    /// Waits until the class lets so many bytes pass. Each attempt of a request pays, a second copy as well: their bytes are
    /// on the link.
    pub(super) async fn pass(&self, len: usize) -> Result<Charge, Error> {
        let class = self.policy().class.as_ref().ok_or(CallerCause::ClassClosed)?;
        let _waiting = self.in_class().join();
        class.pass(len as u64).await.ok_or_else(|| CallerCause::ClassClosed.into())
    }

    /// The longest that a request of the disk should be by its class, bytes, if that has a limit.
    pub(crate) fn max_shaped_len(&self) -> Option<u64> {
        self.policy().class.as_ref()?.max_request_len()
    }

    /// How many requests of so many bytes the class lets pass in a second, two at least, if it has a limit:
    /// more would only wait.
    pub(crate) fn shaped_depth(&self, io_size: usize) -> Option<usize> {
        let bytes = self.policy().class.as_ref()?.bytes_in_second()?;
        let depth = bytes.div_ceil((io_size as u64).max(1)).max(2);
        Some(usize::try_from(depth).unwrap_or(usize::MAX))
    }
}
