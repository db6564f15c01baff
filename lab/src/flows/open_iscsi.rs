//! Runs the flows of the kernel's initiator: a session and a disk for each, with `dd` to move the bytes,
//! limited by `tc htb` before the link.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::Command;

use super::portals::{port, portal};
use crate::error::Error;
use crate::peers::{Bench, open_iscsi};
use crate::process::{Group, tool};
use crate::result::Outcome;
use crate::scenario::{Deed, Direction, Flows, Point};

/// Network device of this host at the link.
const DEVICE: &str = "near0";
/// A rate above the rate of any link of the lab.
const UNLIMITED: &str = "10gbit";

/// The disks, and the running programs that use them.
pub(super) struct Disks {
    /// The `dd` of each flow, by the flow's name.
    moving: Vec<(String, Group)>,
    daemon: Group,
    has_one_flow: bool,
    /// Rate of the link, used where no rate is set.
    link_rate: String,
}

impl Disks {
    pub(super) async fn start(
        point: &Point,
        flows: &Flows,
        bench: &Bench,
    ) -> Result<Self, Outcome> {
        let failed = |error: Error| Outcome::Failed(error.to_string());
        let daemon = open_iscsi::daemon(bench).await?;
        let link_rate = point
            .link
            .rate_mbit_per_s
            .map_or_else(|| UNLIMITED.into(), |rate| format!("{rate}mbit"));
        let disks = async {
            let mut disks = Vec::new();
            for index in 0..flows.flows.len() {
                let lun = u16::try_from(index).unwrap_or_default();
                disks.push(open_iscsi::log_in_at(&portal(index), lun).await?);
            }
            rule(point, flows, &link_rate).await?;
            flows
                .flows
                .iter()
                .zip(disks)
                .map(|(flow, disk)| {
                    Ok((flow.name.clone(), Group::start(&mut mover(flows.direction, &disk))?))
                })
                .collect()
        };
        match disks.await {
            Ok(moving) => {
                Ok(Self { moving, daemon, has_one_flow: flows.flows.len() == 1, link_rate })
            }
            Err(error) => {
                open_iscsi::log_out_quietly().await;
                Err(failed(error))
            }
        }
    }

    pub(super) async fn obey(&self, deed: &Deed) -> Result<(), Error> {
        match deed {
            Deed::Rate(rate) => {
                let rate = known(rate, &self.link_rate);
                change("change", "1:", "1:1", rate, rate).await?;
                if self.has_one_flow {
                    change("change", "1:1", "1:10", rate, rate).await?;
                }
                Ok(())
            }
            Deed::Pause(flow) => self.signal(flow, Signal::SIGSTOP),
            Deed::Resume(flow) => self.signal(flow, Signal::SIGCONT),
        }
    }

    fn signal(&self, flow: &str, signal: Signal) -> Result<(), Error> {
        let found = self.moving.iter().find(|(name, _)| name == flow);
        let id = found.and_then(|(_, group)| i32::try_from(group.child.id()?).ok());
        let gone =
            || Error::Tool { program: format!("dd of {flow}"), message: "it is gone".into() };
        killpg(Pid::from_raw(id.ok_or_else(gone)?), signal)
            .map_err(|errno| Error::System(errno.into()))
    }

    pub(super) async fn end(self) {
        drop(self.moving);
        open_iscsi::log_out_quietly().await;
        drop(self.daemon);
    }
}

/// Returns the command of four concurrent `dd` that bypass the page cache, which would take all data
/// immediately and write it later.
fn mover(direction: Direction, disk: &Path) -> Command {
    let disk = disk.display();
    let dd = match direction {
        Direction::Write => format!("dd if=/dev/zero of={disk} oflag=direct seek=$((part << 9))"),
        Direction::Read => format!("dd if={disk} of=/dev/null iflag=direct skip=$((part << 9))"),
    };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("for part in 0 1 2 3; do {dd} bs=1M & done; wait")]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Puts `htb` before the link: a root class, and under it a class for each flow. The queue of each class
/// simulates the link.
async fn rule(point: &Point, flows: &Flows, link_rate: &str) -> Result<(), Error> {
    for module in ["sch_htb", "cls_u32"] {
        tool(Command::new("modprobe").arg(module)).await?;
    }
    tc(&format!("qdisc replace dev {DEVICE} root handle 1: htb default 99")).await?;
    let all = known(&flows.rate, link_rate);
    change("add", "1:", "1:1", all, all).await?;
    // Other traffic has a class of its own, so that it does not wait for the flows.
    change("add", "1:", "1:99", link_rate, link_rate).await?;
    let delay = point.link.rtt_ms / 2.0;
    for (index, flow) in flows.flows.iter().enumerate() {
        let class = format!("1:1{index}");
        let (rate, ceil) = match &flow.share {
            Some(share) => (&share.rate, &share.ceil),
            None => (&flows.rate, &flows.rate),
        };
        let (rate, ceil) = (known(rate, link_rate), known(ceil, link_rate));
        change("add", "1:1", &class, rate, ceil).await?;
        tc(&format!("qdisc add dev {DEVICE} parent {class} netem delay {delay}ms limit 10000"))
            .await?;
        tc(&format!(
            "filter add dev {DEVICE} parent 1: protocol ip u32 match ip dport {} 0xffff flowid {class}",
            port(index)
        ))
        .await?;
    }
    tc(&format!("qdisc add dev {DEVICE} parent 1:99 netem delay {delay}ms limit 10000")).await
}

/// Returns a rate for tc. Since tc has no word for an unlimited rate, `off` becomes the rate of the link.
fn known<'a>(rate: &'a str, link_rate: &'a str) -> &'a str {
    if rate == "off" { link_rate } else { rate }
}

async fn change(
    action: &str,
    parent: &str,
    class: &str,
    rate: &str,
    ceil: &str,
) -> Result<(), Error> {
    tc(&format!(
        "class {action} dev {DEVICE} parent {parent} classid {class} htb rate {rate} ceil {ceil}"
    ))
    .await
}

async fn tc(words: &str) -> Result<(), Error> {
    tool(Command::new("tc").args(words.split_whitespace())).await.map(drop)
}
