//! Tests of networks that others bring ([`Network`](iscsi_initiator::transport::Network)).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::layer::Layered;
use crate::support::{Rig, initiator, pattern, soon};
use iscsi_initiator::Options;

#[tokio::test]
async fn a_transport_may_keep_bytes_in_both_directions() {
    let rig = Rig::start(512, 8192, |_| {}).await;
    let (portal, writes) = ("no-such-host.example", Arc::new(AtomicUsize::new(0)));
    let network = Layered { portal, to: rig.server.address(), writes: Arc::clone(&writes) };
    let options = Options::default().with_network(Arc::new(network));
    let url = rig.unit_url(0, "").replace("127.0.0.1", portal);
    let disk = soon(initiator(options).disk(url)).await.unwrap();
    let data = pattern(1_000_003, 7);
    soon(disk.write_at(513, data.clone())).await.unwrap();
    assert!(rig.disk.holds(513, &data));
    assert_eq!(soon(disk.read_at(513, data.len())).await.unwrap(), data);
    soon(disk.flush()).await.unwrap();
    assert!(writes.load(Ordering::Relaxed) > 100);
    soon(disk.logout()).await.unwrap();
    rig.assert_clean();
}
