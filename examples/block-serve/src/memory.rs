//! The memory that requests of clients may hold.

use std::sync::Arc;

use iscsi_nbd::MAX_PAYLOAD;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a request without data counts as, bytes.
const MIN_LEN: u32 = 4096;

/// Bytes of all clients, and of one.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    /// The most of one client, bytes.
    max_own: usize,
}

/// Bytes that a request holds until its reply is sent.
#[derive(Debug)]
pub(crate) struct Held(
    #[expect(dead_code, reason = "they are given back when it is dropped")]
    [OwnedSemaphorePermit; 2],
);

impl Memory {
    /// So many bytes for all, of which one client has a quarter, but as much as the longest request in
    /// any case: 32 MiB.
    #[must_use]
    pub(crate) fn new(bytes: u32) -> Self {
        let max_own = bytes.max(MAX_PAYLOAD) / 4;
        let max_own = max_own.max(MAX_PAYLOAD) as usize;
        let all = Arc::new(Semaphore::new(bytes.max(MAX_PAYLOAD) as usize));
        Self { all, own: Arc::new(Semaphore::new(max_own)), max_own }
    }

    /// The same memory for another client.
    #[must_use]
    pub(crate) fn for_client(&self) -> Self {
        let own = Arc::new(Semaphore::new(self.max_own));
        Self { all: Arc::clone(&self.all), own, max_own: self.max_own }
    }

    /// Waits until so many bytes are free.
    pub(crate) async fn hold(&self, bytes: u32) -> Option<Held> {
        let bytes = bytes.clamp(MIN_LEN, MAX_PAYLOAD);
        // Its own first: who waits for that keeps nothing from others.
        let own = Arc::clone(&self.own).acquire_many_owned(bytes).await.ok()?;
        let all = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok()?;
        Some(Held([own, all]))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_room_for_others() {
        let memory = Memory::new(256 << 20);
        let (greedy, other) = (memory.for_client(), memory.for_client());
        let first = [greedy.hold(MAX_PAYLOAD).await, greedy.hold(u32::MAX).await];
        let waits = |memory: Memory| async move {
            timeout(Duration::from_secs(1), memory.hold(1)).await.is_err()
        };
        assert!(waits(greedy.clone()).await);
        assert!(!waits(other).await);
        drop(first);
        assert!(!waits(greedy).await);
    }
}
