//! Logical units that are reached over iSCSI sessions.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use iscsi_copy::Identity;
use iscsi_examples_common::place;
use iscsi_examples_common::sentence::Sentence;
use iscsi_initiator::device::DeviceError;
use iscsi_initiator::scsi::ReservationKey;
use iscsi_initiator::{
    Connections, Disk, DiskStatus, Error as IscsiError, ErrorKind, Initiator, Negotiated, Session,
    Url,
};
use iscsi_pdu::Digest;
use iscsi_tuner::Plan;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{medium::Medium, tuning};
use crate::end::awaited::Awaited;
use crate::error::Error;
use crate::side::Side;
use crate::stop::Stop;
use iscsi_tuner::Size;

/// Time limit of the command that reads the registrations of other hosts.
const QUESTION: Duration = Duration::from_secs(5);
/// Time limit of the logout if no command is in flight that could still change the unit.
const LOGOUT: Duration = Duration::from_secs(3);

/// A logical unit, and the initiator's sessions with it.
#[derive(Clone, Debug)]
pub struct UnitEnd {
    side: Side,
    url: Url,
    disk: Disk,
    /// Name of the unit within a volume, if it belongs to one.
    member: Option<Arc<str>>,
}

impl UnitEnd {
    /// Logs in, identifies the unit, and measures the round-trip time. More sessions may be opened later.
    pub(super) async fn open(side: Side, url: &Url, initiator: &Initiator) -> Result<Self, Error> {
        let connect = Self::connect(side, url, initiator);
        connect.await.map_err(|cause| Error::Unit { side, cause: cause.into() })
    }

    async fn connect(side: Side, url: &Url, initiator: &Initiator) -> Result<Self, IscsiError> {
        let disk = initiator.disk(url).await?;
        if side == Side::Destination {
            disk.check_writable()?;
        }
        Ok(Self { side, url: url.clone(), disk, member: None })
    }

    /// Describes an open unit that belongs to a volume.
    pub(super) fn member(side: Side, url: &Url, disk: Disk, member: &Arc<str>) -> Self {
        Self { side, url: url.clone(), disk, member: Some(Arc::clone(member)) }
    }

    /// Reserves the unit for this copy, with the key by which its sessions are registered. Registrations with
    /// keys for which `is_left_behind` returns true are preempted.
    pub(crate) async fn reserve_exclusively(
        &self,
        is_left_behind: impl Fn(ReservationKey) -> bool + Send + Sync,
    ) -> Result<(), Error> {
        let reserved = self.disk.reserve_exclusively(is_left_behind);
        reserved.await.map_err(|cause| self.failed(cause))
    }

    /// Returns the registrations and the reservation of other hosts as text; `None` if there are none, or if
    /// the unit does not respond in time.
    pub(crate) async fn registered_by_others(&self) -> Option<String> {
        let questions =
            async { tokio::join!(self.disk.registered_keys(), self.disk.reservation()) };
        let (keys, held) = timeout(QUESTION, questions).await.ok()?;
        let own = self.url.parameters.reservation_key;
        let keys: BTreeSet<_> =
            keys.ok()?.keys.into_iter().filter(|key| Some(*key) != own).collect();
        if keys.is_empty() {
            return None;
        }
        let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
        let held = held.ok().and_then(|held| held.reservation);
        let held = held.map_or_else(String::new, |held| {
            format!(", and it is reserved: {}", held.reservation_type)
        });
        Some(format!("{}{held}", keys.join(", ")))
    }

    /// Returns the name of the unit within a volume, if it belongs to one.
    pub const fn member_name(&self) -> Option<&Arc<str>> {
        self.member.as_ref()
    }

    /// Returns whether the unit is the source or the destination of the copy.
    pub const fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn name(&self) -> String {
        self.url.to_string()
    }

    pub(crate) const fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the bytes of a logical block. A write that is aligned to blocks needs no read before it.
    pub fn block_size(&self) -> usize {
        self.disk.block_size() as usize
    }

    /// Returns the sessions that carry data.
    pub fn sessions(&self) -> Vec<Session> {
        self.disk.sessions()
    }

    /// Returns the portals of the unit's sessions.
    pub fn portals(&self) -> Vec<String> {
        place::portals(&self.disk)
    }

    /// Returns the number of sessions, the reason for it, and what the unit waits for.
    pub fn status(&self) -> DiskStatus {
        self.disk.status()
    }

    /// Returns the peer that the unit waits for at the moment: the target if no session is left, otherwise the
    /// unit. Returns `None` if it does not wait.
    pub(super) fn awaited(&self) -> Option<Awaited> {
        let status = self.status();
        let what = if status.sessions == 0 { "target" } else { "unit" };
        // Of several waits, show the longest limit; a wait without a limit may last longest.
        let limit = status
            .waits
            .iter()
            .map(|wait| wait.limit)
            .max_by_key(|limit| limit.unwrap_or(Duration::MAX))?;
        Some(Awaited { side: None, what, limit })
    }

    /// Returns the texts that may be shown after the unit's name in the heading, the longest first. The heading
    /// uses the first that fits.
    pub(super) fn details(&self) -> Vec<String> {
        let (profile, size) = (self.disk.profile(), Size(self.disk.capacity()));
        let sessions = counted(self.sessions().len(), "session");
        vec![
            format!("{} {}, {size}, {sessions}", profile.vendor, profile.product),
            format!("{size}, {sessions}"),
            size.to_string(),
        ]
    }

    /// Returns the number of concurrent reads or writes of `io_size` bytes that keep the unit's sessions busy.
    pub fn queue_depth(&self, io_size: usize) -> usize {
        self.disk.queue_depth(io_size)
    }

    /// Returns the number of concurrent reads of `io_size` bytes that keep the unit's sessions busy, if there
    /// are no writes.
    pub fn read_depth(&self, io_size: usize) -> usize {
        self.disk.read_depth(io_size)
    }

    /// Returns the plan of the tuner for the connection of the first session.
    pub fn plan(&self) -> Option<Plan> {
        self.disk.unit().session().plan()
    }

    /// Returns the TCP connections of the oldest session that carries data.
    pub fn connections(&self) -> Connections {
        match self.sessions().first() {
            Some(session) => session.connections(),
            None => self.disk.unit().session().connections(),
        }
    }

    /// Returns the smallest round-trip time so far, as TCP measures it.
    pub fn round_trip(&self) -> Option<Duration> {
        Some(self.plan()?.link.rtt?.min)
    }

    /// Returns the parameters agreed at login.
    pub fn negotiated(&self) -> Negotiated {
        self.disk.unit().session().negotiated()
    }

    /// Limits each command to `io_size` bytes, if the unit accepts that.
    pub(super) fn with_io_size(mut self, io_size: usize) -> Self {
        self.disk = self.disk.with_max_transfer(io_size);
        self
    }

    /// Returns the number of commands that were sent again.
    pub fn retries(&self) -> u64 {
        self.disk.retries()
    }

    pub(super) fn medium(&self) -> Medium {
        let Url { target, lun, .. } = &self.url;
        let target = target.as_ref().map(ToString::to_string).unwrap_or_default();
        Medium::unit(&self.disk, &format!("{lun:?} of {target}"))
    }

    /// Logs out. All writes were flushed or have failed by then, so a failed logout or a time limit is no
    /// error. The exception is a target that may still execute a write: then this waits longer for the logout,
    /// and returns its error.
    pub(super) async fn close(&self, stop: &Stop) -> Result<(), Error> {
        let mut logout = pin!(self.disk.logout());
        let mut end = stop.hurry(timeout(LOGOUT, &mut logout)).await;
        if matches!(end, Some(Err(_))) && !self.disk.is_settled() {
            end = stop.hurry(logout).await.map(Ok);
        }
        match end {
            Some(Ok(Err(cause))) if cause.kind() == ErrorKind::Unsettled => Err(self.failed(cause)),
            Some(Ok(Err(cause))) if cause.kind() == ErrorKind::StillRegistered => {
                tracing::warn!("{}: {}", self.side, cause.sentence());
                Ok(())
            }
            None if !self.disk.is_settled() => Err(Error::Unsettled(self.side)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let profile = self.disk.profile();
        let negotiated: Map<_, _> =
            self.terms().into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        json!({
            "kind": "unit",
            "name": self.url.to_string(),
            "member": self.member.as_deref(),
            "vendor": profile.vendor,
            "product": profile.product,
            "serial_number": profile.serial_number,
            "capacity_bytes": self.disk.capacity(),
            "block_size_bytes": self.disk.block_size(),
            "command_bytes": self.disk.max_transfer(),
            "sessions": self.sessions().len(),
            "rtt_ms": self.round_trip().map(|trip| trip.as_secs_f64() * 1e3),
            "negotiated": negotiated,
            "tuning": self.plan().as_ref().map(tuning::to_json),
        })
    }

    /// Returns the parameters agreed at login, by the names of the standard (RFC 7143 §13).
    fn terms(&self) -> Vec<(&'static str, Value)> {
        let terms = self.negotiated();
        vec![
            ("HeaderDigest", digest(terms.header_digest).into()),
            ("DataDigest", digest(terms.data_digest).into()),
            ("InitialR2T", terms.initial_r2t.into()),
            ("ImmediateData", terms.immediate_data.into()),
            ("FirstBurstLength", terms.first_burst_length.into()),
            ("MaxBurstLength", terms.max_burst_length.into()),
            ("MaxOutstandingR2T", terms.max_outstanding_r2t.into()),
            ("TargetMaxRecvDataSegmentLength", terms.target_max_recv_data_segment_length.into()),
            (
                "InitiatorMaxRecvDataSegmentLength",
                terms.initiator_max_recv_data_segment_length.into(),
            ),
        ]
    }

    /// Returns the identity of the unit in later runs, whatever portals they use.
    pub(super) fn identity(&self) -> Result<Identity, Error> {
        let named = Identity::of_device(&self.disk);
        let named = named.map_err(|cause| Error::Unit { side: self.side, cause })?;
        named.ok_or(Error::Nameless(self.side))
    }

    /// Checks that the unit is still the one that was opened.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        self.disk.confirm_unit().await.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: IscsiError) -> Error {
        let cause = DeviceError::from(cause);
        let cause = match &self.member {
            Some(member) => cause.of_member(member),
            None => cause,
        };
        Error::Unit { side: self.side, cause }
    }
}

/// Returns a number with its noun as text, in singular or plural.
pub(super) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

const fn digest(digest: Digest) -> &'static str {
    match digest {
        Digest::None => "None",
        Digest::Crc32c => "CRC32C",
    }
}

/// Returns a value of a login key in the notation of the standard.
fn text_value(value: &Value) -> String {
    match (value.as_str(), value.as_bool()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(yes)) => if yes { "Yes" } else { "No" }.to_owned(),
        (None, None) => value.to_string(),
    }
}

impl fmt::Display for UnitEnd {
    /// Writes two lines: the unit, and the parameters agreed at login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = self.disk.profile();
        write!(
            f,
            "{}: {} {}, {} in blocks of {}\n  agreed:",
            self.url,
            profile.vendor,
            profile.product,
            Size(self.disk.capacity()),
            self.disk.block_size(),
        )?;
        self.terms().iter().try_for_each(|(name, value)| write!(f, " {name}={}", text_value(value)))
    }
}
