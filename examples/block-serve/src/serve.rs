//! Runs the server, from the command line to the end of the last client.

use std::io;
use std::time::Duration;

use iscsi_examples_common::boxed::{BoxFuture, boxed};
use iscsi_examples_common::metrics::MetricsServer;
use iscsi_examples_common::place::{Opened, Place, initiator, portals};
use iscsi_examples_common::program::ProgramError;
use iscsi_initiator::{OnRetryTimeout, Options};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::args::Args;
use crate::error::Error;
use crate::export::describe;
use crate::layers::Layers;
use crate::listen::{Address, Listener};
use crate::metrics::collect;
use crate::resizes;
use crate::server::Server;
use crate::stop::Stop;
use crate::tls::ClientTls;

/// Interval at which an idle unit is polled for changes, unless the URL sets another interval.
const POLL: Duration = Duration::from_secs(30);
/// Number of files that are kept free for sessions, which must be able to reconnect, and for everything else.
const OTHERS: usize = 96;

/// A server that is ready for clients.
#[derive(Debug)]
pub struct Ready {
    server: std::sync::Arc<Server>,
    listeners: Vec<Listener>,
    /// Number of listeners that this process has created. They are first in the list; the others were handed
    /// over by the parent process.
    own: usize,
    ends_with_last: bool,
    metrics: Option<MetricsServer>,
}

impl Ready {
    /// Opens the listening sockets and the unit.
    ///
    /// # Errors
    /// If the program cannot listen, or the unit cannot be opened.
    pub fn prepare<'a>(args: &'a Args, stop: &'a Stop) -> BoxFuture<'a, Result<Self, Error>> {
        boxed(async move {
            args.tls.check().map_err(ProgramError::usage)?;
            let tls = ClientTls::new(&args.tls)?;
            let metrics = MetricsServer::bind(&args.metrics).await?;
            // The sockets come first: early clients then wait, and a second server fails immediately.
            let listeners = listen(args).await?;
            let opened = stop.unless(open(args)).await.ok_or(ProgramError::Interrupted)??;
            let (window, cache) = args.buffers();
            let export = describe(&*opened.handle(), &args.clients.export, args.clients.read_only);
            let layers = Layers::new(opened, window, cache);
            let memory = u32::try_from(args.buffers.memory.0).unwrap_or(u32::MAX);
            let server = Server::new(layers, export, tls, memory, max_clients(args));
            let (own, ends_with_last) = (args.clients.listen.len(), args.clients.until_last);
            Ok(Self { server, listeners, own, ends_with_last, metrics })
        })
    }

    /// Returns what is served, and at which addresses, as JSON.
    #[must_use]
    pub fn to_json(&self, args: &Args) -> Value {
        let opened = self.server.layers().opened();
        let device = opened.handle();
        let portals: Vec<_> = opened.disks().into_iter().flat_map(portals).collect();
        json!({
            "ready": true,
            "capacity_bytes": device.capacity(),
            "block_size_bytes": device.limits().block_size,
            "addresses": self.addresses(args),
            "portals": portals,
        })
    }

    /// Returns what is served, and at which addresses, as a line of text.
    #[must_use]
    pub fn line(&self, args: &Args) -> String {
        let opened = self.server.layers().opened();
        let size = iscsi_tuner::Size(opened.handle().capacity());
        let addresses = self.addresses(args);
        let at = if addresses.is_empty() {
            "the sockets that were handed over".to_owned()
        } else {
            addresses.join(" and ")
        };
        let over: Vec<_> = opened.disks().iter().map(|disk| disk.status().to_string()).collect();
        format!("block-serve: {size} at {at}, over {}\n", over.join(" and "))
    }

    fn addresses(&self, args: &Args) -> Vec<String> {
        let actual = args.clients.listen.iter().zip(&self.listeners).map(|(address, listener)| {
            let tcp = listener.tcp_address();
            tcp.map_or_else(|| address.to_string(), |address| format!("tcp:{address}"))
        });
        actual.collect()
    }

    /// Serves clients until a stop is requested, then flushes everything to the medium. Returns the
    /// statistics.
    ///
    /// # Errors
    /// If a write was lost.
    pub fn run<'a>(self, stop: &'a Stop) -> BoxFuture<'a, Result<Value, Error>> {
        boxed(async move {
            let watch = resizes::watch(self.server.layers().opened().disks());
            let serving =
                self.server.run_to_end(&self.listeners, self.own, stop, self.ends_with_last);
            match &self.metrics {
                None => serving.await?,
                Some(metrics) => tokio::select! {
                    biased;
                    ended = serving => ended?,
                    never = metrics.serve(collect(&self.server)) => match never {},
                },
            }
            drop(watch);
            let (stats, cache) = (self.server.stats(), self.server.layers().cache_stats());
            let cache = cache.map(|cache| {
                json!({
                    "bytes_asked": cache.asked,
                    "bytes_found": cache.found,
                    "bytes_read_ahead": cache.read_ahead,
                    "bytes_passed_by": cache.passed_by,
                    "hit_rate": cache.hit_rate(),
                })
            });
            Ok(json!({
                "complete": true,
                "clients": stats.clients,
                "requests": stats.requests,
                "requests_failed": stats.failed,
                "bytes_read": stats.bytes_read,
                "bytes_written": stats.bytes_written,
                "cache": cache,
            }))
        })
    }
}

/// Returns the number of places for clients. The limit of open files may reduce it.
fn max_clients(args: &Args) -> usize {
    let (wanted, room) = (usize::from(args.clients.max_clients), room_for_clients());
    if room < wanted {
        tracing::warn!(
            "the limit of open files leaves room for {room} clients, and --max-clients is {wanted}; raise the limit (ulimit -n, or LimitNOFILE= in a unit of systemd)"
        );
    }
    wanted.min(room)
}

/// Raises the limit of open files as far as possible. Returns the number of clients that it has room for, at
/// least 1: each client and each session is an open file.
#[must_use]
fn room_for_clients() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    // The soft limit protects programs that use select(2). This program does not, so it raises the limit.
    let limit = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(OTHERS).max(1)
}

async fn listen(args: &Args) -> Result<Vec<Listener>, Error> {
    let inherited = Listener::inherited().map_err(Error::Inherited)?;
    if args.clients.listen.is_empty() && inherited.is_empty() {
        return Err(ProgramError::usage(
            "nothing to listen at; write --listen unix:/PATH or --listen tcp:HOST:PORT",
        )
        .into());
    }
    let mut listeners = Vec::new();
    for address in &args.clients.listen {
        let listener =
            Listener::bind_for(address, args.socket_access()).await.map_err(|cause| {
                match (cause.kind(), address) {
                    (io::ErrorKind::AddrInUse, Address::Unix(_) | Address::Tcp(_)) => {
                        Error::Taken(address.clone())
                    }
                    _ => Error::Listen { address: address.clone(), cause },
                }
            })?;
        listeners.push(listener);
    }
    listeners.extend(inherited);
    Ok(listeners)
}

async fn open(args: &Args) -> Result<Opened, Error> {
    let mut place = Place::parse(&args.unit).await?;
    args.passwords.apply(place.urls_mut()).await.map_err(ProgramError::from)?;
    let mut options = Options::default()
        .with_sessions(args.link.sessions.into())
        // After the time limit the requests fail, and the unit stays open: clients may wait longer for the
        // target.
        .with_on_retry_timeout(OnRetryTimeout::FailRequests)
        .with_open_timeout(args.link.wait.unwrap_or_default())
        // Clients may be idle for days, and without commands the unit reports nothing. The poll finds changes
        // of the unit.
        .with_poll(Some(POLL));
    if let Some(seconds) = args.link.retry_timeout {
        options = options.with_retry_timeout(Duration::from_secs(seconds.into()));
    }
    let initiator = initiator(args.link.initiator_name.as_deref(), options)?;
    Ok(place.open(&initiator).await?)
}
