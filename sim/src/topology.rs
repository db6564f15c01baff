//! The paths to the unit: targets, their portal groups, and the portals of these.

use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::{PortGroup, PortGroups, TargetPort, Unit, UnitBehavior};
use iscsi_testkit::target::Target;

use crate::network::address;
use crate::rng::Rng;
use crate::tunnel::{self, Tunnels};
use crate::units::Units;

/// The portal groups of all targets. Each group is a [`Target`] of its own, since a login to another group
/// makes another I_T nexus (RFC 7143 §4.4.3). The groups of one target share its name, and all groups share
/// the unit.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    groups: Vec<PortalGroup>,
    /// Index of the portal group of each portal.
    portals: Vec<usize>,
    /// Whether each target serves a unit of its own.
    is_of_volume: bool,
    /// The TLS tunnels before the targets; `None` if connections are in clear text.
    tunnels: Option<Tunnels>,
}

#[derive(Clone, Debug)]
struct PortalGroup {
    target: usize,
    tag: u16,
}

/// Numbers that separate the random draws for different purposes.
const PROVISIONING: u64 = 1;
const EARLY_TASKS: u64 = 2;
const PORT_GROUPS: u64 = 3;
const NUMBERS: u64 = 4;
const TLS: u64 = 7;
/// Percentage of the topologies with tunnels.
const ENCRYPTED: u64 = 8;

/// Makes a fifth of the units deallocate blocks by UNMAP only (LBPU and LBPRZ, without LBPWS), in granules of 1
/// to 8 blocks. Some of these units leave blocks unchanged.
fn provision(behavior: &mut UnitBehavior, blocks: u64, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    behavior.provisioning = Some(0x84);
    let granularity = 1 << rng.index(0..4);
    behavior.unmap_granularity = Some((granularity, rng.pick(&[0, 1, 3]).copied().unwrap_or(0)));
    behavior.max_unmap_blocks = Some(1 << rng.index(2..10));
    if rng.percent(50) {
        let kept = rng.within(0..blocks);
        behavior.kept_by_unmap = kept..kept + rng.within(1..blocks);
    }
}

/// Starts the sequence numbers of half of the targets shortly before they wrap.
fn number(config: &mut TargetConfig, rng: &mut Rng) {
    if rng.percent(50) {
        return;
    }
    let mut near_end = || u32::MAX - u32::try_from(rng.within(0..200)).unwrap_or(0);
    (config.first_stat_sn, config.r2t.first_tag) = (near_end(), near_end());
    config.first_tsih = u16::MAX - u16::try_from(rng.within(0..8)).unwrap_or(0);
}

fn drawn_tunnels(rng: &Rng) -> Option<Tunnels> {
    rng.beside(TLS).percent(ENCRYPTED).then(Tunnels::new)
}

impl Topology {
    pub(crate) fn drawn(rng: &mut Rng) -> Self {
        let tunnels = drawn_tunnels(rng);
        let (mut groups, mut portals) = (Vec::new(), Vec::new());
        for target in 0..if rng.percent(30) { 2 } else { 1 } {
            for tag in 1..if rng.percent(40) { 3 } else { 2 } {
                let count = rng.index(1..if groups.is_empty() { 4 } else { 3 });
                portals.extend(std::iter::repeat_n(groups.len(), count));
                groups.push(PortalGroup { target, tag });
            }
        }
        Self { groups, portals, is_of_volume: false, tunnels }
    }

    /// Draws a topology with one target per unit of a volume.
    pub(crate) fn of_volume(units: usize, rng: &mut Rng) -> Self {
        let tunnels = drawn_tunnels(rng);
        let (mut groups, mut portals) = (Vec::new(), Vec::new());
        for target in 0..units {
            for tag in 1..if rng.percent(20) { 3 } else { 2 } {
                let count = rng.index(1..3);
                portals.extend(std::iter::repeat_n(groups.len(), count));
                groups.push(PortalGroup { target, tag });
            }
        }
        Self { groups, portals, is_of_volume: true, tunnels }
    }

    /// Returns the units that the targets serve, on these disks.
    pub(crate) fn units(&self, disks: &[RamDisk], chunk: usize) -> Units {
        Units::new(disks, self.groups.iter().map(|group| self.unit_of(group)).collect(), chunk)
    }

    fn unit_of(&self, group: &PortalGroup) -> usize {
        if self.is_of_volume { group.target } else { 0 }
    }

    /// Makes the target of each portal group. All serve one unit, or the units of a volume, and they negotiate
    /// different parameters.
    pub(crate) fn serve(&self, disks: &[RamDisk], rng: &mut Rng) -> Vec<Target> {
        let provisioning = rng.beside(PROVISIONING);
        let early_tasks_unknown = rng.beside(EARLY_TASKS).percent(50);
        let aborts = rng.percent(50);
        let array = self.array(&mut rng.beside(PORT_GROUPS));
        let mut numbers = rng.beside(NUMBERS);
        let mut port = 0;
        let target = |group: &PortalGroup| {
            let unit = self.unit_of(group);
            let disk = &disks[unit];
            let mut config = TargetConfig::new(name(group.target), disk.clone());
            if self.is_of_volume {
                let naa = 0x3000_0000_0000_0100 + unit as u64;
                let unit = Unit::new(disk.clone()).with_identity(format!("member {unit}"), naa);
                config = config.with_unit(0, unit);
            }
            config.portal_group = Some(group.tag);
            port += 1;
            config.port = array.clone().map(|groups| TargetPort::new(groups, port));
            config.keys.initial_r2t = rng.percent(30);
            config.keys.immediate_data = rng.percent(70);
            config.keys.max_burst_length = 1 << rng.within(13..18);
            config.keys.first_burst_length =
                (1 << rng.within(12..17)).min(config.keys.max_burst_length);
            config.keys.max_recv_data_segment_length = Some(1 << rng.within(12..17));
            config.data_in.separate_status = rng.percent(50);
            config.keys.default_time2wait = u32::try_from(rng.within(0..3)).unwrap_or(0);
            if let Some(unit) = config.units.get_mut(&0) {
                unit.behavior.task_aborted_status = aborts;
                provision(&mut unit.behavior, disk.blocks(), &mut provisioning.clone());
            }
            config.early_tasks_unknown = early_tasks_unknown;
            config.window = 1 << rng.within(0..7);
            number(&mut config, &mut numbers);
            Target::new(config)
        };
        self.groups.iter().map(target).collect()
    }

    /// Draws the target port groups. Half of the arrays have one target port group for each portal group, and
    /// nearly all of these report the states of their groups.
    fn array(&self, rng: &mut Rng) -> Option<PortGroups> {
        if rng.percent(50) || self.is_of_volume {
            return None;
        }
        let ids = 1..=u16::try_from(self.groups.len()).unwrap_or(u16::MAX);
        let groups = PortGroups::new(ids.map(|id| PortGroup::new(id, [id])).collect::<Vec<_>>());
        groups.set_support(1 + u8::from(rng.percent(50)) * 2);
        if rng.percent(30) {
            groups.refuse_extended_header();
        }
        if rng.percent(10) {
            groups.refuse_reports();
        }
        Some(groups)
    }

    /// Returns the portal group of each portal.
    pub(crate) fn portals(&self) -> &[usize] {
        &self.portals
    }

    /// Returns whether all targets together serve a volume.
    pub(crate) const fn is_of_volume(&self) -> bool {
        self.is_of_volume
    }

    /// Returns the TLS tunnels before the targets.
    pub(crate) const fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.as_ref()
    }

    /// Returns the number of targets.
    pub(crate) fn targets(&self) -> usize {
        self.groups.last().map_or(0, |group| group.target + 1)
    }

    /// Returns the URL of a unit at one of the targets, with all or some of its portals in a random order.
    pub(crate) fn url(&self, target: usize, lun: u16, rng: &mut Rng) -> String {
        let is_of_target = |portal: &usize| self.groups[self.portals[*portal]].target == target;
        let mut portals: Vec<usize> = (0..self.portals.len()).filter(is_of_target).collect();
        if rng.percent(50) {
            let places = portals.len();
            portals.rotate_left(rng.index(0..places));
        }
        if rng.percent(20) {
            portals.truncate(rng.index(1..portals.len() + 1));
        }
        let further = portals.iter().skip(1).map(|portal| format!("portal={}", address(*portal)));
        let tls = self.tunnels.is_some().then(tunnel::url_option);
        let scheme = if tls.is_some() { "iscsis" } else { "iscsi" };
        let options: Vec<_> = further.chain(tls).collect();
        let separator = if options.is_empty() { "" } else { "?" };
        let (portal, target) = (address(portals[0]), name(target));
        format!("{scheme}://{portal}/{target}/{lun}{separator}{}", options.join("&"))
    }
}

fn name(target: usize) -> String {
    format!("iqn.2026-01.org.example:disk{target}")
}
