//! The table of all keys: which side may send a key, when, and how its result is determined (RFC 7143 §12,
//! §13; RFC 7144).

use super::Kind;
use std::fmt;

/// When a key may be used (RFC 7143 §13: IO, LO, FFPO, ALL).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// LO: the login of the session's first connection.
    LeadingLogin,
    /// IO: the login of any connection.
    Login,
    /// FFPO: text requests of the full feature phase.
    FullFeature,
    /// ALL: login and full feature phase.
    Any,
}

/// The scope of a key's value (RFC 7143 §13: SW, CO).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// SW: the session with all its connections.
    Session,
    /// CO: the connection it was agreed on.
    Connection,
}

/// The side that may send a key first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sender {
    /// Only the initiator may send the key first.
    Initiator,
    /// Only the target may send the key first.
    Target,
    /// The initiator or the target may send the key first.
    Either,
}

impl Sender {
    /// Returns whether a target may send the key first.
    pub const fn is_target_allowed(self) -> bool {
        matches!(self, Self::Target | Self::Either)
    }
}

/// The properties of a key in the standard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Definition {
    /// The key with these properties.
    pub key: Key,
    /// The name of the key in a text; upper and lower case differ.
    pub name: &'static str,
    /// How the result is determined, with default and range.
    pub kind: Kind,
    /// When the key may be used.
    pub phase: Use,
    /// The scope of the value.
    pub scope: Scope,
    /// The side that may send the key first.
    pub sender: Sender,
    /// Whether the key may be sent in the SecurityNegotiation stage (RFC 7143 §6.3.2).
    pub security_stage: bool,
    /// Whether the key has no meaning in a Discovery session.
    pub irrelevant_in_discovery: bool,
    /// The section of the standard that defines the key.
    pub section: &'static str,
}

/// The greatest length of a data segment or burst that a key can carry, bytes.
const MAX_LENGTH: u32 = 0x00ff_ffff;
/// The least value of keys for lengths, bytes.
const MIN_LENGTH: u32 = 512;

/// MaxRecvDataSegmentLength of a side that has not declared a value, bytes (RFC 7143 §13.12).
pub const DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH: u32 = 8192;

const HEADER_OR_DATA_DIGEST: &str = "RFC 7143 §13.1";
const CHAP: &str = "RFC 7143 §12.1.3";
const OBSOLETED: &str = "RFC 7143 §13.25";

/// Creates the enum and its lookups from one table, so that every key is in all of them.
macro_rules! keys {
    ($(
        $(#[$doc:meta])+
        $key:ident $name:literal $kind:ident $({ $($field:ident: $value:expr),+ })?
        $phase:ident $scope:ident $sender:ident $security:literal $irrelevant:literal
        $section:expr;
    )+) => {
        /// A key of RFC 7143 or RFC 7144.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Key {
            $($(#[$doc])+ $key,)+
        }

        impl Key {
            /// All keys, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$key,)+];

            /// Returns the key with a name; `None` if it is in neither standard. Upper and lower case differ.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$key),)+
                    _ => None,
                }
            }

            /// Returns the definition of the key.
            pub const fn definition(self) -> &'static Definition {
                match self {
                    $(Self::$key => &Definition {
                        key: Self::$key,
                        name: $name,
                        kind: Kind::$kind $({ $($field: $value),+ })?,
                        phase: Use::$phase,
                        scope: Scope::$scope,
                        sender: Sender::$sender,
                        security_stage: $security,
                        irrelevant_in_discovery: $irrelevant,
                        section: $section,
                    },)+
                }
            }
        }
    };
}

// The second line of each key has these columns: use, scope, sender, whether it is allowed in the security
// stage, whether it is irrelevant in Discovery, and the section that defines it.
keys! {
    /// Digest that follows each header.
    HeaderDigest "HeaderDigest" List
        Login Connection Either false false HEADER_OR_DATA_DIGEST;
    /// Digest that follows each data segment.
    DataDigest "DataDigest" List
        Login Connection Either false false HEADER_OR_DATA_DIGEST;
    /// The most connections of a session.
    MaxConnections "MaxConnections" Minimum { default: 1, min: 1, max: 65_535 }
        LeadingLogin Session Either false true "RFC 7143 §13.2";
    /// Requests the names and addresses of targets.
    SendTargets "SendTargets" Declaration
        FullFeature Session Initiator false false "RFC 7143 §13.3";
    /// Name of the target of a session, or of a target in a list.
    TargetName "TargetName" Declaration
        Any Session Either true false "RFC 7143 §13.4";
    /// The name of the initiator.
    InitiatorName "InitiatorName" Declaration
        Login Session Initiator true false "RFC 7143 §13.5";
    /// Display name of the target.
    TargetAlias "TargetAlias" Declaration
        Any Session Target true false "RFC 7143 §13.6";
    /// Display name of the initiator.
    InitiatorAlias "InitiatorAlias" Declaration
        Any Session Initiator true false "RFC 7143 §13.7";
    /// Address of a target: host, port and portal group.
    TargetAddress "TargetAddress" Declaration
        Any Session Target true false "RFC 7143 §13.8";
    /// The portal group of the connection.
    TargetPortalGroupTag "TargetPortalGroupTag" DeclaredNumber { default: 0, min: 0, max: 65_535 }
        Login Session Target true false "RFC 7143 §13.9";
    /// Whether a write waits for the first R2T.
    InitialR2T "InitialR2T" Or { default: true }
        LeadingLogin Session Either false true "RFC 7143 §13.10";
    /// Whether a command may carry write data.
    ImmediateData "ImmediateData" And { default: true }
        LeadingLogin Session Either false true "RFC 7143 §13.11";
    /// The longest data segment that the declaring side accepts, bytes.
    MaxRecvDataSegmentLength "MaxRecvDataSegmentLength"
        DeclaredNumber { default: DEFAULT_MAX_RECV_DATA_SEGMENT_LENGTH, min: MIN_LENGTH, max: MAX_LENGTH }
        Any Connection Either false false "RFC 7143 §13.12";
    /// The most bytes in a solicited or Data-In sequence.
    MaxBurstLength "MaxBurstLength"
        Minimum { default: 262_144, min: MIN_LENGTH, max: MAX_LENGTH }
        LeadingLogin Session Either false true "RFC 7143 §13.13";
    /// The most unsolicited bytes of a write, with immediate data.
    FirstBurstLength "FirstBurstLength"
        Minimum { default: 65_536, min: MIN_LENGTH, max: MAX_LENGTH }
        LeadingLogin Session Either false true "RFC 7143 §13.14";
    /// Seconds to wait after the failure of a connection before a reconnect.
    DefaultTime2Wait "DefaultTime2Wait" Maximum { default: 2, min: 0, max: 3600 }
        LeadingLogin Session Either false false "RFC 7143 §13.15";
    /// Seconds after DefaultTime2Wait for which the target keeps the tasks.
    DefaultTime2Retain "DefaultTime2Retain" Minimum { default: 20, min: 0, max: 3600 }
        LeadingLogin Session Either false false "RFC 7143 §13.16";
    /// The most R2Ts that a task may have outstanding.
    MaxOutstandingR2T "MaxOutstandingR2T" Minimum { default: 1, min: 1, max: 65_535 }
        LeadingLogin Session Either false true "RFC 7143 §13.17";
    /// Whether the data PDUs of a sequence are sent at rising offsets.
    DataPDUInOrder "DataPDUInOrder" Or { default: true }
        LeadingLogin Session Either false true "RFC 7143 §13.18";
    /// Whether the sequences of a task are sent at rising offsets.
    DataSequenceInOrder "DataSequenceInOrder" Or { default: true }
        LeadingLogin Session Either false true "RFC 7143 §13.19";
    /// How much a session can recover from errors without ending.
    ErrorRecoveryLevel "ErrorRecoveryLevel" Minimum { default: 0, min: 0, max: 2 }
        LeadingLogin Session Either false false "RFC 7143 §13.20";
    /// Normal, or Discovery to find targets only.
    SessionType "SessionType" Declaration
        LeadingLogin Session Initiator true false "RFC 7143 §13.21";
    /// How the target reports tasks that are ended by a task management function for several tasks.
    TaskReporting "TaskReporting" List
        LeadingLogin Session Either false true "RFC 7143 §13.23";
    /// 1 for RFC 7143, 2 for the SCSI features of RFC 7144.
    ISCSIProtocolLevel "iSCSIProtocolLevel" Minimum { default: 1, min: 0, max: 31 }
        LeadingLogin Session Either false true "RFC 7143 §13.24";
    /// The authentication method that follows.
    AuthMethod "AuthMethod" List
        Login Connection Either true false "RFC 7143 §12.1";
    /// Hardware and software of the declaring side; for statistics only.
    NodeArchitecture "X#NodeArchitecture" Declaration
        LeadingLogin Session Either false false "RFC 7143 §13.26.1";
    /// Markers from target to initiator.
    IFMarker "IFMarker" Obsolete { reply: "No" }
        Login Connection Either false false OBSOLETED;
    /// Markers from initiator to target.
    OFMarker "OFMarker" Obsolete { reply: "No" }
        Login Connection Either false false OBSOLETED;
    /// Interval of markers from target to initiator.
    IFMarkInt "IFMarkInt" Obsolete { reply: "Reject" }
        Login Connection Either false false OBSOLETED;
    /// Interval of markers from initiator to target.
    OFMarkInt "OFMarkInt" Obsolete { reply: "Reject" }
        Login Connection Either false false OBSOLETED;
    /// The hash algorithms of CHAP, by their numbers.
    ChapA "CHAP_A" Authentication
        Login Connection Either true false CHAP;
    /// The identifier of a challenge.
    ChapI "CHAP_I" Authentication
        Login Connection Either true false CHAP;
    /// A challenge.
    ChapC "CHAP_C" Authentication
        Login Connection Either true false CHAP;
    /// The name of the responding side.
    ChapN "CHAP_N" Authentication
        Login Connection Either true false CHAP;
    /// The response to a challenge.
    ChapR "CHAP_R" Authentication
        Login Connection Either true false CHAP;
}

impl Key {
    /// Returns the name of the key in a text.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
