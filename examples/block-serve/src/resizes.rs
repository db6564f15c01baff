//! Watches for changes of a unit's size. NBD cannot report them to clients, so the log says what to do.

use iscsi_initiator::{Disk, DiskEvent};
use iscsi_tuner::Size;
use tokio::task::JoinSet;

/// Watches the units as long as the returned tasks exist.
pub(crate) fn watch<'a>(disks: impl IntoIterator<Item = &'a Disk>) -> JoinSet<()> {
    disks
        .into_iter()
        .map(|disk| {
            let (disk, mut events) = (disk.clone(), disk.events());
            let mut known = disk.profile().capacity.bytes();
            async move {
                while let Some(event) = events.next().await {
                    let now = if let DiskEvent::CapacityChanged { now, .. } = event {
                        now
                    } else if let DiskEvent::Missed { .. } = event {
                        disk.capacity()
                    } else {
                        continue;
                    };
                    let before = std::mem::replace(&mut known, now);
                    if before != now {
                        tracing::warn!("{}", sentence(before, now));
                    }
                }
            }
        })
        .collect()
}

fn sentence(before: u64, now: u64) -> String {
    let what_to_do = if now < before {
        "clients see the old size, and what lies beyond the new end is refused: end what uses it, and start block-serve again"
    } else {
        "clients see the old size until block-serve is started again"
    };
    format!("a unit had {} and has {} now; {what_to_do}", Size(before), Size(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_clients_see_and_what_is_refused() {
        let grown = sentence(4 << 20, 8 << 20);
        assert!(grown.starts_with("a unit had 4 MiB and has 8 MiB now; clients see"), "{grown}");
        let shrunk = sentence(8 << 20, 4 << 20);
        assert!(shrunk.contains("beyond the new end is refused"), "{shrunk}");
    }
}
