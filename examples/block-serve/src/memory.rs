//! Limits the memory for the requests of clients.
//!
//! The memory has three parts, so that no client blocks other clients, however slowly it sends data or takes
//! replies:
//!
//! | part | use |
//! |---|---|
//! | a quarter, divided evenly among all places for clients | short requests of that client, whatever other clients hold |
//! | 32 MiB, the longest request | one request at a time that found no room elsewhere, so that one always continues |
//! | the rest | all requests, first come, first served |
//!
//! Design: `docs/design/nbd-clients.md`.

use std::sync::Arc;

use iscsi_nbd::MAX_PAYLOAD;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Least memory for requests, in bytes. With it, a client that holds as much as the longest request leaves half
/// of the common part to other clients.
pub(crate) const MIN_MEMORY: u32 = 4 * MAX_PAYLOAD;
/// Maximum number of clients. With [`MIN_MEMORY`] each of them has a reserved share of [`MIN_LEN`] bytes.
pub(crate) const MAX_CLIENTS: usize = 4096;
/// Bytes that a request without data counts as.
const MIN_LEN: u32 = 4096;

/// The memory for the requests of all clients, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    common: Arc<Semaphore>,
    /// Size of the part `common` in bytes.
    max_common: u32,
    turn: Arc<Semaphore>,
    /// Maximum number of bytes for one client.
    max_own: usize,
    /// Bytes that are reserved for each client.
    reserved: usize,
}

/// The memory for the requests of one client, in bytes.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Memory,
    own: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

/// The bytes of memory that a request holds until its reply is sent.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permits: Vec<OwnedSemaphorePermit>,
    /// Whether the request has the turn: one request at a time may use the memory for the longest request.
    has_turn: bool,
}

impl Memory {
    /// Creates the memory for all clients, at least [`MIN_MEMORY`] bytes. One client may hold a quarter of it.
    /// If a quarter is less than the longest request, 32 MiB, one client may hold 32 MiB.
    #[must_use]
    pub(crate) fn new(bytes: u32, max_clients: usize) -> Self {
        let bytes = bytes.max(MIN_MEMORY);
        let quarter = bytes / 4;
        let max_common = bytes - quarter - MAX_PAYLOAD;
        Self {
            common: Arc::new(Semaphore::new(max_common as usize)),
            max_common,
            turn: Arc::new(Semaphore::new(1)),
            max_own: quarter.max(MAX_PAYLOAD) as usize,
            reserved: quarter as usize / max_clients.clamp(1, MAX_CLIENTS),
        }
    }

    /// Returns the share of one more client.
    #[must_use]
    pub(crate) fn for_client(&self) -> Share {
        let [own, reserved] =
            [self.max_own, self.reserved].map(|bytes| Arc::new(Semaphore::new(bytes)));
        Share { memory: self.clone(), own, reserved }
    }
}

impl Share {
    /// Waits until `bytes` bytes are free, and takes them.
    pub(crate) async fn hold(&self, bytes: u32) -> Held {
        let mut held = Held::default();
        self.extend(&mut held, bytes.max(MIN_LEN)).await;
        held
    }

    /// Waits until `bytes` more bytes are free, and takes them. No request takes more than the longest request,
    /// 32 MiB.
    pub(crate) async fn extend(&self, held: &mut Held, bytes: u32) {
        let bytes = bytes.min(MAX_PAYLOAD);
        // The request waits for the limit of its client first. During this wait it holds nothing that other
        // clients need.
        held.permits.extend(Arc::clone(&self.own).acquire_many_owned(bytes).await);
        if held.has_turn {
            return;
        }
        if let Ok(reserved) = Arc::clone(&self.reserved).try_acquire_many_owned(bytes) {
            held.permits.push(reserved);
            return;
        }
        let Memory { common, turn, max_common, .. } = &self.memory;
        let fits = bytes <= *max_common;
        // Many requests could each hold a part of the memory and wait for more, and so wait for each other
        // forever. The request with the turn has 32 MiB for itself, so it can always continue.
        tokio::select! {
            biased;
            common = Arc::clone(common).acquire_many_owned(bytes), if fits => {
                held.permits.extend(common);
            }
            turn = Arc::clone(turn).acquire_owned() => {
                held.permits.extend(turn);
                held.has_turn = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn waits(share: &Share, bytes: u32) -> bool {
        timeout(Duration::from_secs(1), share.hold(bytes)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_leaves_room_for_others() {
        let memory = Memory::new(256 << 20, 64);
        let (greedy, other) = (memory.for_client(), memory.for_client());
        let first = [greedy.hold(MAX_PAYLOAD).await, greedy.hold(u32::MAX).await];
        assert!(waits(&greedy, 1).await);
        assert!(!waits(&other, 1).await);
        drop(first);
        assert!(!waits(&greedy, 1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_request_does_not_wait_for_what_others_hold() {
        // The number of clients is one, or the number of places.
        for (bytes, clients) in [(MIN_MEMORY, 1), (MIN_MEMORY, 63), (256 << 20, 63), (3 << 30, 63)]
        {
            let memory = Memory::new(bytes, 64);
            let mut held = Vec::new();
            for _ in 0..clients {
                let greedy = memory.for_client();
                while let Ok(more) = timeout(Duration::from_secs(1), greedy.hold(1 << 20)).await {
                    held.push(more);
                }
            }
            let other = memory.for_client();
            assert_eq!(waits(&other, MAX_PAYLOAD).await, clients > 1, "{bytes} {clients}");
            assert!(!waits(&other, bytes / 4 / 64).await, "{bytes} {clients}");
        }
    }

    /// Each request holds a part and waits for more. All must end: they must not wait for each other.
    #[tokio::test(start_paused = true)]
    async fn requests_that_grow_all_end() {
        let memory = Memory::new(MIN_MEMORY, 64);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let share = memory.for_client();
            tasks.spawn(async move {
                let mut held = share.hold(1 << 20).await;
                for _ in 0..31 {
                    tokio::task::yield_now().await;
                    share.extend(&mut held, 1 << 20).await;
                }
            });
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        timeout(Duration::from_secs(60), all).await.expect("they wait for each other");
    }

    #[tokio::test(start_paused = true)]
    async fn the_parts_are_no_more_than_the_whole() {
        for (bytes, clients) in [(MIN_MEMORY, 1), (MIN_MEMORY, MAX_CLIENTS), (u32::MAX, 64)] {
            let memory = Memory::new(bytes, clients);
            let all = memory.reserved * clients + memory.max_common as usize;
            assert!(all + MAX_PAYLOAD as usize <= bytes as usize, "{bytes} {clients}");
            assert!(memory.reserved >= MIN_LEN as usize, "{bytes} {clients}");
        }
    }
}
