//! Counts the bytes per port that the target's host has received, or that were acknowledged to it.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::process::tool;
use crate::scenario::Direction;
use crate::testbed::far;

/// Counts the bytes of flows. A closed connection keeps its last count.
#[derive(Debug)]
pub(super) struct Counters {
    ports: Vec<u16>,
    word: &'static str,
    /// Last count of each connection, by its port at the target's host and its remote address.
    connections: BTreeMap<(u16, String), u64>,
}

impl Counters {
    pub(super) fn new(ports: Vec<u16>, direction: Direction) -> Self {
        let word = match direction {
            Direction::Write => "bytes_received:",
            Direction::Read => "bytes_acked:",
        };
        Self { ports, word, connections: BTreeMap::new() }
    }

    /// Returns the bytes of each port so far.
    pub(super) async fn read_bytes(&mut self) -> Result<Vec<u64>, Error> {
        let told = tool(far("ss").args(["-tinHO", "state", "connected"])).await?;
        Ok(self.take(&told))
    }

    fn take(&mut self, told: &str) -> Vec<u64> {
        self.connections.extend(told.lines().filter_map(|line| connection(line, self.word)));
        let sum = |port: &u16| {
            let own = self.connections.iter().filter(|((at, _), _)| at == port);
            own.map(|(_, bytes)| bytes).sum()
        };
        self.ports.iter().map(sum).collect()
    }
}

/// Parses a connection: the port at the target's host, the remote address, and the count.
fn connection(line: &str, word: &str) -> Option<((u16, String), u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let ends: Vec<_> = words.iter().filter(|word| word.matches('.').count() == 3).take(2).collect();
    let [here, there] = ends[..] else { return None };
    let (_, port) = here.rsplit_once(':')?;
    let bytes = words.iter().find_map(|told| told.strip_prefix(word))?;
    Some(((port.parse().ok()?, (*there).to_owned()), bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_by_port_also_when_they_are_gone() {
        let line = |port, peer, bytes| {
            format!(
                "ESTAB 0 0 10.99.0.2:{port} 10.99.0.1:{peer} cubic wscale:7,7 rto:204 rtt:0.1/0.05 \
                 bytes_sent:96 bytes_acked:96 bytes_received:{bytes} segs_out:3 \n"
            )
        };
        let mut counters = Counters::new(vec![3260, 3261], Direction::Write);
        let both = line(3260, 40000, 1000) + &line(3261, 40001, 500) + &line(3261, 40002, 50);
        assert_eq!(counters.take(&both), [1000, 550]);
        assert_eq!(counters.take(&line(3261, 40002, 60)), [1000, 560]);
        assert_eq!(counters.take("no connection\n"), [1000, 560]);
    }
}
