//! The types that may exceed the limits of `sizes.rs`. The list may only shrink, except that an entry of the
//! first group grows with a field or key of the standard. An entry has the current count, and a type that is smaller than its entry is a
//! complaint as well.

/// The limit that a type exceeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    /// Number of files with methods of the type.
    Files,
    /// Number of fields.
    Fields,
}

/// Types that exceed a limit for the same reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exception {
    pub(crate) reason: &'static str,
    pub(crate) types: &'static [Entry],
}

/// The file that defines a type, the name of the type, the limit that it exceeds, and its count.
pub(crate) type Entry = (&'static str, &'static str, What, usize);

/// The exceptions, by reason.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        reason: "The fields of a PDU, or the keys of a login, as the standard has them.",
        types: &[
            ("crates/pdu/src/login.rs", "LoginResponse", What::Fields, 13),
            ("crates/pdu/src/scsi_command.rs", "ScsiCommand", What::Fields, 13),
            ("crates/session/src/config.rs", "Offer", What::Fields, 14),
            ("crates/session/src/params.rs", "Negotiated", What::Fields, 18),
            ("crates/testkit/src/config/keys.rs", "Keys", What::Fields, 17),
        ],
    },
    Exception {
        reason: "What a caller may set or see, in the public API.",
        types: &[
            ("crates/session/src/config.rs", "Config", What::Fields, 13),
            ("crates/tuner/src/plan.rs", "Plan", What::Fields, 20),
            ("crates/multipath/src/identity/profile.rs", "Profile", What::Fields, 14),
            ("crates/copy/src/job/options.rs", "CopyOptions", What::Fields, 14),
            ("crates/testkit/src/config.rs", "TargetConfig", What::Fields, 26),
            ("crates/testkit/src/scsi/unit.rs", "Unit", What::Fields, 13),
            ("crates/testkit/src/scsi/unit.rs", "UnitBehavior", What::Fields, 18),
        ],
    },
    Exception {
        reason: "Its state has about ten owners, structs with methods of their own; a file holds what one PDU does to them.",
        types: &[
            ("crates/session/src/session.rs", "Session", What::Files, 27),
            ("crates/testkit/src/target/node.rs", "Target", What::Files, 16),
        ],
    },
    Exception {
        reason: "Its decisions are those of owners in crates/multipath; a file holds what is carried out of one of them.",
        types: &[("crates/initiator/src/multipath/supervisor.rs", "Supervisor", What::Files, 11)],
    },
    Exception {
        reason: "The structure of the Linux kernel.",
        types: &[("crates/tuner/src/link/tcp_info.rs", "TcpInfo", What::Fields, 33)],
    },
    Exception {
        reason: "A handle: one file for each kind of request.",
        types: &[
            ("crates/initiator/src/handles/disk.rs", "Disk", What::Files, 10),
            ("crates/initiator/src/unit/logical_unit.rs", "LogicalUnit", What::Files, 10),
        ],
    },
    Exception {
        reason: "The canonical form that a search over states needs has a file of its own.",
        types: &[
            ("crates/multipath/src/machine.rs", "Machine", What::Files, 4),
            ("crates/multipath/src/requests.rs", "Requests", What::Files, 4),
        ],
    },
    Exception {
        reason: "The format of a file, or the options of a command line.",
        types: &[
            ("crates/initiator/src/url/parameters.rs", "Parameters", What::Fields, 17),
            ("lab/src/result.rs", "Figure", What::Fields, 13),
            ("lab/src/scenario.rs", "Measure", What::Files, 4),
            ("lab/src/scenario.rs", "Measure", What::Fields, 14),
            ("lab/src/scenario.rs", "Scenario", What::Fields, 14),
        ],
    },
    Exception {
        reason: "The simulated world and what its oracle knows.",
        types: &[
            ("sim/src/oracle/version.rs", "Version", What::Fields, 14),
            ("sim/src/wire.rs", "Wire", What::Fields, 16),
            ("sim/src/workload.rs", "Work", What::Fields, 13),
            ("sim/src/world.rs", "World", What::Files, 4),
            ("sim/src/world.rs", "World", What::Fields, 30),
        ],
    },
];
