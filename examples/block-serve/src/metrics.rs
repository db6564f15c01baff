//! The page of metrics of the server.

use std::sync::Arc;

use iscsi_examples_common::boxed::boxed;
use iscsi_examples_common::metrics::page::{Labels, retransmitted_segments};
use iscsi_examples_common::metrics::{Collect, MetricFamily, MetricType, Page};

use crate::server::{Server, ServerStats};

/// A quantity of the server: its name, what kind of number it is, its description, and its value.
type Quantity = (&'static str, MetricType, &'static str, fn(&ServerStats) -> u64);

const QUANTITIES: [Quantity; 6] = [
    ("clients_connected", MetricType::Gauge, "Clients that are connected.", |it| {
        it.clients_connected
    }),
    ("clients", MetricType::Counter, "Clients that completed the handshake.", |it| it.clients),
    ("requests", MetricType::Counter, "Requests of clients.", |it| it.requests),
    ("requests_failed", MetricType::Counter, "Requests that failed.", |it| it.failed),
    ("read_bytes", MetricType::Counter, "Bytes that clients have read.", |it| it.bytes_read),
    ("written_bytes", MetricType::Counter, "Bytes that clients have written.", |it| {
        it.bytes_written
    }),
];

/// Returns the function that collects the metrics of a page.
pub(crate) fn collect(server: &Arc<Server>) -> Collect {
    let server = Arc::clone(server);
    Arc::new(move || {
        let server = Arc::clone(&server);
        boxed(async move { page(&server).await })
    })
}

async fn page(server: &Server) -> Page {
    let (stats, layers, none) = (server.stats(), server.layers(), Labels::new());
    let named =
        |name: &str, kind, help| MetricFamily::new(format!("block_serve_{name}"), kind, help);
    let of_clients = QUANTITIES
        .map(|(name, kind, help, value)| named(name, kind, help).with(&none, value(&stats) as f64));
    let help = "Bytes of writes that were answered and are not on the unit yet.";
    let pending = named("pending_bytes", MetricType::Gauge, help);
    let mut families = Vec::from(of_clients);
    families.push(pending.with(&none, layers.pending_bytes() as f64));
    if let Some(cache) = layers.cache_stats() {
        let asked =
            named("cache_asked_bytes", MetricType::Counter, "Bytes of reads that asked the cache.");
        let found = named("cache_found_bytes", MetricType::Counter, "Bytes of these that it had.");
        families.push(asked.with(&none, cache.asked as f64));
        families.push(found.with(&none, cache.found as f64));
    }
    let help = "TCP segments that were sent again, over the open sessions.";
    let mut retransmitted = named("retransmitted_segments", MetricType::Gauge, help);
    let mut disks = Vec::new();
    for disk in layers.opened().disks() {
        let stats = disk.stats();
        let labels = vec![("target", stats.target.clone()), ("lun", stats.lun.to_string())];
        retransmitted = retransmitted.with(&labels, retransmitted_segments(disk).await as f64);
        disks.push(stats);
    }
    families.push(retransmitted);
    Page { families, disks }
}
