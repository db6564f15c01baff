//! Serves a unit to many clients.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iscsi_initiator::ErrorKind;
use iscsi_initiator::device::DeviceResult;
use iscsi_nbd::Export;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connection::Client;
use crate::error::Error;
use crate::full_house::{FullHouse, Seldom};
use crate::layers::Layers;
use crate::listen::{Entrance, Visitor};
use crate::losses::{self, Losses};
use crate::memory::{MAX_CLIENTS, Memory};
use crate::requests::{Counters, Requests};
use crate::stop::Stop;
use crate::tls::ClientTls;

/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// A unit that is served to clients.
#[derive(Debug)]
pub struct Server {
    layers: Layers,
    export: Arc<Export>,
    tls: Arc<ClientTls>,
    memory: Memory,
    losses: Losses,
    has_cache: bool,
    max_clients: usize,
    counters: Arc<Counters>,
    /// Limits the number of log lines about connections that fail during their handshake.
    strangers: Mutex<Seldom>,
}

/// Counters of a server, since its start.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Clients that completed the handshake.
    pub clients: u64,
    /// Clients that are connected, after the handshake.
    pub clients_connected: u64,
    /// Requests of these clients.
    pub requests: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Bytes read by clients.
    pub bytes_read: u64,
    /// Bytes of data written by clients.
    pub bytes_written: u64,
}

impl Server {
    /// Creates a server of a unit as an export. The requests of all clients hold at most `memory` bytes; less
    /// than 128 MiB counts as 128 MiB. If `max_clients` clients are connected (at most 4096), further clients
    /// are refused.
    #[must_use]
    pub fn new(
        layers: Layers,
        export: Export,
        tls: ClientTls,
        memory: u32,
        max_clients: usize,
    ) -> Arc<Self> {
        let has_cache = layers.cache_stats().is_some();
        let counters = Arc::default();
        let max_clients = max_clients.clamp(1, MAX_CLIENTS);
        let (export, memory) = (Arc::new(export), Memory::new(memory, max_clients));
        let (losses, strangers) = (Losses::default(), Mutex::default());
        Arc::new(Self {
            layers,
            export,
            tls: Arc::new(tls),
            memory,
            losses,
            has_cache,
            max_clients,
            counters,
            strangers,
        })
    }

    /// Serves clients until a stop is requested, or with `ends_with_last` until the last client has
    /// disconnected. Requests in flight are answered before it returns.
    pub async fn run(
        self: &Arc<Self>,
        entrances: &[impl Entrance],
        stop: &Stop,
        ends_with_last: bool,
    ) {
        let mut clients = JoinSet::new();
        let mut full_house = FullHouse::new(self.max_clients, Arc::clone(&self.tls));
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => break,
                Some(_) = clients.join_next() => {
                    if ends_with_last && clients.is_empty() && self.stats().clients > 0 {
                        return;
                    }
                }
                visitor = next_visitor(entrances) => match visitor {
                    Ok(visitor) if clients.len() >= self.max_clients => full_house.refuse(visitor),
                    Ok(visitor) => drop(clients.spawn(Arc::clone(self).serve(visitor, stop.clone()))),
                    Err(error) => {
                        tracing::warn!(%error, "a client could not be had");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
        while clients.join_next().await.is_some() {}
    }

    /// Serves clients as [`run`](Self::run) does, then flushes everything to the medium and logs out of the
    /// unit. During the flush and the logout, new clients at the first `own` entrances are refused.
    ///
    /// # Errors
    /// If a write was lost and no client has received a report, or the target may still execute a write.
    pub async fn run_to_end(
        self: &Arc<Self>,
        entrances: &[impl Entrance],
        own: usize,
        stop: &Stop,
        ends_with_last: bool,
    ) -> Result<(), Error> {
        self.run(entrances, stop, ends_with_last).await;
        // No other server may listen at these sockets until all data are on the unit: otherwise a write that
        // this server has answered could reach the unit after writes through the other server. At a socket that
        // was handed over, clients wait for the next server.
        let own = entrances.get(..own).unwrap_or(entrances);
        let (flushed, ended) = tokio::select! {
            biased;
            ended = self.let_go() => ended,
            never = turn_away(own) => match never {},
        };
        flushed.map_err(Error::Flush)?;
        match ended {
            Err(error) if error.kind() == ErrorKind::Unsettled => Err(error.into()),
            Err(error) => {
                tracing::debug!(%error, "the sessions did not end in order");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Flushes, then logs out even if the flush failed.
    async fn let_go(&self) -> (DeviceResult<()>, Result<(), iscsi_initiator::Error>) {
        let flushed = self.flush().await;
        (flushed, self.layers.opened().logout().await)
    }

    /// Flushes everything to the medium.
    ///
    /// # Errors
    /// If a write was lost, and no client is known to have received a report of it.
    pub async fn flush(&self) -> DeviceResult<()> {
        self.layers.client().flush().await?;
        if self.losses.may_be_unreceived() { Err(losses::unreceived_loss()) } else { Ok(()) }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let [clients, gone, requests, failed, bytes_read, bytes_written] = [
            &self.counters.clients,
            &self.counters.clients_gone,
            &self.counters.requests,
            &self.counters.failed,
            &self.counters.bytes_read,
            &self.counters.bytes_written,
        ]
        .map(|counter| counter.load(Ordering::Relaxed));
        let clients_connected = clients.saturating_sub(gone);
        ServerStats { clients, clients_connected, requests, failed, bytes_read, bytes_written }
    }

    /// Returns the layers between clients and unit.
    #[must_use]
    pub const fn layers(&self) -> &Layers {
        &self.layers
    }

    async fn serve(self: Arc<Self>, visitor: Visitor, stop: Stop) {
        let (stream, who) = visitor.into_parts();
        let (export, tls) = (Arc::clone(&self.export), Arc::clone(&self.tls));
        let client = Client { export, tls, memory: self.memory.clone(), stop };
        let mut is_stranger = true;
        let served = client.serve(stream, |negotiated, transmission| {
            is_stranger = false;
            self.counters.clients.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(client = %who, "a client has come");
            Requests {
                device: self.layers.client(),
                replies: transmission.replies(),
                contexts: negotiated.contexts.clone(),
                has_cache: self.has_cache,
                losses: self.losses.connection(),
                counters: Arc::clone(&self.counters),
            }
        });
        let ended = served.await;
        if !is_stranger {
            self.counters.clients_gone.fetch_add(1, Ordering::Relaxed);
        }
        match ended {
            Ok(()) => tracing::debug!(client = %who, "a client has gone"),
            // There may be thousands of such connections, so not each is logged.
            Err(error) if is_stranger => {
                let count = self.strangers.lock().unwrap_or_else(PoisonError::into_inner).count();
                if let Some(count) = count {
                    tracing::warn!(client = %who, %error, connections = count, "a connection was closed within its handshake");
                }
            }
            Err(error) => tracing::warn!(client = %who, %error, "a client was let go"),
        }
    }
}

/// Closes the connections of new clients: otherwise they would wait for a server that takes no more clients.
async fn turn_away(entrances: &[impl Entrance]) -> Infallible {
    loop {
        match next_visitor(entrances).await {
            Ok(visitor) => drop(visitor),
            Err(error) => {
                tracing::debug!(%error, "a client could not be turned away");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn next_visitor(entrances: &[impl Entrance]) -> io::Result<Visitor> {
    let mut waiting: Vec<_> = entrances.iter().map(Entrance::accept).collect();
    std::future::poll_fn(|context| {
        for entrance in &mut waiting {
            if let ready @ std::task::Poll::Ready(_) = entrance.as_mut().poll(context) {
                return ready;
            }
        }
        std::task::Poll::Pending
    })
    .await
}
