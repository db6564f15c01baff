//! Defines the events of a disk while it is open.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use iscsi_pdu::TargetAddress;
use iscsi_pdu::scsi::AdditionalSense;
use iscsi_session::Notice;
use iscsi_tuner::SegmentLimit;

use crate::error::Error;
use crate::events::waiting::{Waiting, write_alone};
use crate::state::session_key::SessionKey;
use crate::url::portal_name;

/// An event of a disk: a change of its unit, a path that goes up or down, a wait, a loss.
///
/// Its text is one sentence without a full stop.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DiskEvent {
    /// The capacity of the unit has changed. Either the unit reports the change (CAPACITY DATA HAS CHANGED),
    /// or a new session has read another capacity.
    #[doc(alias = "resize")]
    CapacityChanged {
        /// Previous capacity, as far as it was known, in bytes.
        before: u64,
        /// New capacity, in bytes: [`Disk::capacity`](crate::Disk::capacity).
        now: u64,
    },
    /// INQUIRY DATA HAS CHANGED: the identity, the version or other properties of the unit may have changed.
    /// Before the next request, the disk checks that it is still the same unit.
    InquiryDataChanged,
    /// REPORTED LUNS DATA HAS CHANGED: the target has other units than before. To list them, call
    /// [`Session::report_luns`](crate::Session::report_luns).
    ReportedLunsChanged,
    /// ASYMMETRIC ACCESS STATE CHANGED, or an implicit transition failed: other target ports serve the unit,
    /// or serve it better. The disk queries the states of the ports, and uses the best ones.
    #[doc(alias("ALUA", "failover"))]
    AccessStatesChanged,
    /// The unit reports a power-on or reset. Each session receives this report, so one reset may cause
    /// several events.
    Reset {
        /// The unit attention condition.
        code: AdditionalSense,
    },
    /// The unit reports another unit attention condition (SAM-5 §5.14).
    UnitAttention {
        /// The unit attention condition.
        code: AdditionalSense,
    },
    /// Writes that were answered with success are lost, or may be lost: the unit failed to write from its
    /// cache, or was reset before a flush. [`Disk::flush`](crate::Disk::flush) reports the loss to each
    /// handle once.
    WritesLost,
    /// A session joins the paths of the disk. If [`SessionKey::reopened`] is not 0, the session was
    /// reconnected.
    #[doc(alias("reconnect", "login"))]
    PathUp {
        /// Portal of the session.
        portal: TargetAddress,
        /// Key of the session.
        key: SessionKey,
    },
    /// A session has left the paths of the disk.
    #[doc(alias("connection lost", "failover"))]
    PathDown {
        /// Portal of the session.
        portal: TargetAddress,
        /// Key of the session.
        key: SessionKey,
        /// Reason why the session was lost; the disk reconnects it. `None` if the disk has closed the session
        /// because it does not need it.
        cause: Option<Error>,
    },
    /// The target port of a session does not serve the unit. The disk closes the session.
    PathUnserved {
        /// Portal of the session.
        portal: TargetAddress,
        /// Key of the session.
        key: SessionKey,
        /// Error that the unit has reported.
        error: Error,
    },
    /// The disk gives up a lost session, and continues with the others.
    ReconnectFailed {
        /// Portal of the lost session.
        portal: TargetAddress,
        /// Key of the lost session.
        key: SessionKey,
        /// Reason why the session was not reconnected.
        error: Error,
    },
    /// A further session was not opened.
    SessionNotOpened {
        /// The portal, if the session was for this portal only.
        portal: Option<TargetAddress>,
        /// Reason why the session was not opened.
        error: Error,
    },
    /// No session was reconnected within the retry timeout. Requests fail until a session is reconnected
    /// ([`OnRetryTimeout::FailRequests`](crate::OnRetryTimeout::FailRequests)).
    RequestsFail {
        /// Error of the requests.
        error: Error,
    },
    /// A session was reconnected after [`RequestsFail`](Self::RequestsFail): requests are executed again.
    RequestsResume,
    /// The disk has ended: no session was reconnected.
    Ended {
        /// Error of all later requests.
        error: Error,
    },
    /// Requests have waited for 10 seconds. The event is repeated each time that the wait has doubled.
    /// [`DiskStatus::waits`](crate::DiskStatus::waits) also lists shorter waits.
    Waiting(Waiting),
    /// A wait that was reported by [`Waiting`](Self::Waiting) has ended, successfully or not.
    WaitOver(Waiting),
    /// A session was lost while it had only this request in flight. If that happens a few times, the request
    /// fails.
    EndsSessions {
        /// Name of the command.
        command: &'static str,
        /// Blocks of the command, if it has any.
        blocks: Option<Range<u64>>,
        /// Number of lost sessions that had only this request in flight.
        sessions: u32,
        /// Reason why the last of these sessions was lost.
        error: Error,
    },
    /// The target may still execute writes of a lost session. Other writes to the same blocks wait until that
    /// is ruled out.
    WritesInDoubt {
        /// Key of the lost session.
        key: SessionKey,
        /// Reason why the last try to end these writes failed.
        error: Error,
    },
    /// The target sends a notice over a session.
    Notice {
        /// Key of the session.
        key: SessionKey,
        /// The notice.
        notice: Notice,
    },
    /// The target names a portal that was not known before (SendTargets).
    PortalFound {
        /// The portal.
        portal: TargetAddress,
    },
    /// A session was opened at another portal, although this portal comes earlier in the list.
    PortalPassedOver {
        /// The portal that was passed over.
        portal: TargetAddress,
        /// Reason why no session was opened there; `None` if the other portal answered sooner.
        error: Option<Error>,
    },
    /// The target names more portals than a disk uses.
    TooManyPortals {
        /// Number of portals that are not used.
        unused: usize,
        /// Number of portals that a disk uses at most.
        max: usize,
    },
    /// The discovery of the target's portals (SendTargets) has failed.
    PortalsUnknown {
        /// Reason; `None` if there was no response.
        error: Option<Error>,
        /// Maximum time that the disk waited for the response.
        limit: Duration,
    },
    /// The target redirects logins to another host.
    Redirected {
        /// The address that has redirected the login.
        from: IpAddr,
        /// The portal to which the login was redirected.
        to: TargetAddress,
    },
    /// Segments are kept short, because the network drops larger packets without an ICMP message.
    #[doc(alias("MTU", "PMTU", "black hole"))]
    SegmentsLimited {
        /// The portal to which this network path leads.
        portal: TargetAddress,
        /// The limit.
        limit: SegmentLimit,
    },
    /// The target gives its sessions no TSIH, so a reconnect does not show that writes of the lost session
    /// have ended.
    NoTsih,
    /// The unit reports no identifier. Its target, portal group and LUN identify it instead.
    UnitUnnamed,
    /// The unit reports that it has target port groups, but not their states. So all ports count as equal.
    NoPortGroups {
        /// Error that the unit has reported.
        error: Error,
    },
    /// The subscriber was slow, so `count` events before the next one were dropped. Read
    /// [`Disk::capacity`](crate::Disk::capacity), [`Disk::status`](crate::Disk::status) and
    /// [`Disk::paths`](crate::Disk::paths) again.
    #[doc(alias = "lagged")]
    Missed {
        /// Number of dropped events.
        count: u64,
    },
}

impl fmt::Display for DiskEvent {
    #[allow(clippy::too_many_lines, reason = "one sentence for each variant, and none without")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CapacityChanged { before, now } => {
                write!(f, "the capacity of the unit has changed from {before} to {now} bytes")
            }
            Self::InquiryDataChanged => f.write_str("the inquiry data of the unit have changed"),
            Self::ReportedLunsChanged => f.write_str("the units of the target have changed"),
            Self::AccessStatesChanged => {
                f.write_str("the access states of the target ports have changed")
            }
            Self::Reset { code } => write!(f, "the unit reports a reset: {code}"),
            Self::UnitAttention { code } => write!(f, "the unit reports {code}"),
            Self::WritesLost => f.write_str("writes that had returned are lost, or may be"),
            Self::PathUp { portal, key } => {
                let portal = portal_name(portal);
                let word = if key.reopened == 0 { "opened" } else { "reconnected" };
                write!(f, "session {} with {portal} was {word}", key.isid)
            }
            Self::PathDown { cause: Some(why), .. } => write!(f, "a session was lost: {why}"),
            Self::PathDown { portal, key, cause: None } => {
                let portal = portal_name(portal);
                write!(f, "session {} with {portal} was closed: it is not needed", key.isid)
            }
            Self::PathUnserved { error, .. } => write!(f, "a session was of no use: {error}"),
            Self::ReconnectFailed { error, .. } => {
                write!(f, "a lost session did not come back: {error}")
            }
            Self::SessionNotOpened { portal: None, error } => {
                write!(f, "a further session was not opened: {error}")
            }
            Self::SessionNotOpened { portal: Some(portal), error } => {
                let portal = portal_name(portal);
                write!(f, "no session with the unit could be opened at portal {portal}: {error}")
            }
            Self::RequestsFail { error } => {
                write!(f, "{error}; requests fail until a session is back")
            }
            Self::RequestsResume => {
                f.write_str("a session is back: requests are carried out again")
            }
            Self::Ended { error } => write!(f, "the disk has ended: {error}"),
            Self::Waiting(waiting) => waiting.fmt(f),
            Self::WaitOver(waiting) => write!(f, "a wait is over: {waiting}"),
            Self::EndsSessions { command, blocks, sessions, error } => {
                write_alone(f, (command, blocks.as_ref()), *sessions, error)
            }
            Self::WritesInDoubt { error, .. } => {
                write!(f, "nothing proves what became of the writes of a lost session: {error}")
            }
            Self::Notice { notice, .. } => write_notice(f, notice),
            Self::PortalFound { portal } => {
                write!(f, "the target names another portal: {}", portal_name(portal))
            }
            Self::PortalPassedOver { portal, error: Some(error) } => {
                write!(f, "portal {} was passed over: {error}", portal_name(portal))
            }
            Self::PortalPassedOver { portal, error: None } => {
                let portal = portal_name(portal);
                write!(f, "portal {portal} was passed over: another one answered sooner")
            }
            Self::TooManyPortals { unused, max } => write!(
                f,
                "the target names {unused} portals too many: a disk uses at most {max}; name those to use in the URL (portal=)"
            ),
            Self::PortalsUnknown { error: Some(error), .. } => {
                write!(f, "the target has not reported its portals: {error}")
            }
            Self::PortalsUnknown { error: None, limit } => {
                let limit = limit.as_millis();
                write!(f, "the target has not reported its portals: no answer within {limit} ms")
            }
            Self::Redirected { from, to } => {
                let to = portal_name(to);
                write!(f, "the target at {from} sends the login on to another host: {to}")
            }
            Self::SegmentsLimited { portal, limit } => {
                f.write_str(&limit.explain(&portal_name(portal)))
            }
            Self::NoTsih => f.write_str(NO_TSIH),
            Self::UnitUnnamed => f.write_str(UNIT_UNNAMED),
            Self::NoPortGroups { error } => write!(f, "{NO_PORT_GROUPS}: {error}"),
            Self::Missed { count } => write!(f, "{count} events were missed"),
        }
    }
}

const NO_TSIH: &str = "the target gives its sessions no TSIH: a write of a lost session may continue after the \
    reconnect, and nothing reports when it has ended, so other data for those blocks is not written";
const UNIT_UNNAMED: &str =
    "the unit has no name of its own; its target, portal group and LUN stand for it";
const NO_PORT_GROUPS: &str = "the unit says that it has target port groups (TPGS), and does not tell their states: each \
    of its ports counts as any other";

fn write_notice(f: &mut fmt::Formatter<'_>, notice: &Notice) -> fmt::Result {
    match notice {
        Notice::Busy { operation, silence, .. } => {
            write!(f, "the target is busy: {operation} for {} s", silence.as_secs())
        }
        Notice::Rejected { reason } => write!(f, "the target has rejected a PDU: {reason}"),
        Notice::AsyncMessage { event, .. } => {
            write!(f, "the target has sent an asynchronous message: {event:?}")
        }
        Notice::LogoutFailed { response } => {
            write!(f, "the target has answered a logout with response {response}")
        }
        Notice::Redirected { address, .. } => {
            write!(f, "the target sends the login on to {}", portal_name(address))
        }
        Notice::SingleChapAlgorithm => {
            f.write_str("the target refuses the list of CHAP algorithms")
        }
        Notice::RepeatedStatSn { .. } => f.write_str("the target has used a StatSN twice"),
        _ => write!(f, "the target announces {notice:?}"),
    }
}
