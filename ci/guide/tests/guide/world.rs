//! Starts the targets that the pages name.
//!
//! A page names them by addresses for documentation (RFC 5737). In the test, each is an address of this host,
//! at the port of iSCSI. Pages that are tested concurrently have different addresses and units.
//!
//! | on the pages | target |
//! |---|---|
//! | 192.0.2.5 | `iqn.2026-01.org.example:disk` with the units 0 and 1 |
//! | 192.0.2.6 | `iqn.2026-01.org.example:other` with the unit 0 |
//! | 192.0.2.7 | `iqn.2026-01.org.example:safe`, unit 0, with CHAP in both directions |
//! | 192.0.2.8, 192.0.2.9 | `iqn.2026-01.org.example:array`, unit 0: two ports of an array, the first one preferred |
//! | 192.0.2.10 | `iqn.2026-01.org.example:group`, which redirects each login to 192.0.2.6 |
//! | 192.0.2.11 | `iqn.2026-01.org.example:fixed` with the unit 0, which is write protected |
//! | 192.0.2.20 | `iqn.2026-01.org.example:far`, unit 0, 40 ms away |
//! | 192.0.2.99 | nothing listens |

use std::io::ErrorKind;
use std::time::Duration;

use iscsi_testkit::config::{Chap, Redirect, TargetConfig};
use iscsi_testkit::disk::RamDisk;
use iscsi_testkit::scsi::{AccessState, PortGroup, PortGroups, TargetPort, Unit};
use iscsi_testkit::serve::Server;
use iscsi_testkit::target::Target;

/// The network of the pages.
const DOCUMENTATION: &str = "192.0.2.";
const UNIT_BYTES: u64 = 64 << 20;
const FAR: Duration = Duration::from_millis(40);

/// The targets of one page.
pub(crate) struct World {
    /// The first three bytes of the targets' addresses, as text with a dot at the end.
    network: String,
    servers: Vec<Server>,
}

impl World {
    /// Starts all targets on a network of this host that is not in use.
    pub(crate) async fn start() -> Self {
        loop {
            let number = random();
            let [high, low, ..] = number.to_le_bytes();
            let mut world = Self { network: format!("127.{high}.{low}."), servers: Vec::new() };
            if Box::pin(world.serve(number)).await {
                return world;
            }
        }
    }

    /// Returns a command of a page, with addresses of this host in place of those on the page.
    pub(crate) fn here(&self, command: &str) -> String {
        command.replace(DOCUMENTATION, &self.network)
    }

    /// Returns the output of a program, with the addresses on the page in place of those of this host.
    pub(crate) fn as_on_the_page(&self, printed: &str) -> String {
        printed.replace(&self.network, DOCUMENTATION)
    }

    /// Returns the violations of the standard that the targets have seen.
    pub(crate) fn violations(&self) -> Vec<String> {
        let of = |server: &Server| server.with(|target| target.violations().to_vec());
        self.servers.iter().flat_map(of).map(|violation| format!("{violation:?}")).collect()
    }

    /// Starts the targets. Returns whether their addresses were free.
    async fn serve(&mut self, number: u64) -> bool {
        let mut identity = number;
        let mut unit = || {
            identity = identity.wrapping_add(1);
            // NAA 3: the other 60 bits are assigned locally.
            let naa = 0x3 << 60 | identity & !(0xf << 60);
            Unit::new(RamDisk::new(512, UNIT_BYTES / 512))
                .with_identity(format!("{identity:016x}"), naa)
        };
        let disk = target("disk", unit()).with_unit(1, unit());
        let mut other = target("other", unit());
        other.names.push("iqn.2026-01.org.example:group".to_owned());
        let chap =
            Chap::new("backup", "correct horse battery").mutual("array", "staple of the target");
        let safe = target("safe", unit()).with_chap(chap);
        let mut group = target("group", unit());
        group.login.redirect = Some(Redirect {
            address: self.here("192.0.2.6"),
            permanent: false,
            after_authentication: false,
        });
        let fixed = target("fixed", unit());
        fixed.units.values().for_each(|unit| unit.disk.set_read_only(true));
        let far = target("far", unit());
        let groups = PortGroups::new([
            PortGroup::new(1, [1]).preferred(),
            PortGroup::new(2, [2]).with_state(AccessState::ActiveNonOptimized),
        ]);
        let shared = unit();
        let port = |number| {
            target("array", shared.clone()).with_port(TargetPort::new(groups.clone(), number))
        };
        let near = [
            (5, disk),
            (6, other),
            (7, safe),
            (8, port(1)),
            (9, port(2)),
            (10, group),
            (11, fixed),
        ];
        let near = near.into_iter().map(|(host, config)| (host, config, Duration::ZERO));
        for (host, config, delay) in near.chain([(20, far, FAR)]) {
            let address = self.here(&format!("{DOCUMENTATION}{host}:3260"));
            match Server::start_at(address, Target::new(config), delay).await {
                Ok(server) => self.servers.push(server),
                Err(error) if error.kind() == ErrorKind::AddrInUse => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }
}

fn target(name: &str, unit: Unit) -> TargetConfig {
    let mut config =
        TargetConfig::new(format!("iqn.2026-01.org.example:{name}"), unit.disk.clone());
    config.units.insert(0, unit);
    config
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}
