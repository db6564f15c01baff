//! What is known of a unit through any session of a disk.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::state::attentions::Attentions;
use crate::state::medium::Medium;
use crate::state::size::Size;
use crate::state::unit_changes::ChangeLog;
use crate::state::writes::Writes;

/// All of it in one place, and in this order: a read looks at the size of now, the doubts, the medium, the unknown forms and
/// the moment of the writes, and with 1,000 disks no cache has any of them.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct AcrossSessions {
    pub(crate) size: Size,
    /// The reasons to ask which unit it is that hold for every session.
    pub(super) doubts: AtomicU64,
    pub(super) medium: Medium,
    pub(crate) unknown_forms: UnknownForms,
    /// What they have written.
    pub(super) writes: Writes,
    pub(crate) transitions: Transitions,
    pub(crate) attentions: Attentions,
    pub(crate) changes: ChangeLog,
}

/// The forms of commands that the unit has refused, over whichever session: one bit for each
/// operation code of the commands of 16 bytes, 80h to 9Fh.
///
/// A unit need not know any of them, whatever READ CAPACITY (16) says; each is found out by itself,
/// so that a unit without SYNCHRONIZE CACHE (16) is still read beyond 2 TiB.
#[derive(Debug, Default)]
pub(crate) struct UnknownForms(AtomicU32);

impl UnknownForms {
    pub(crate) fn add(&self, operation_code: u8) {
        self.0.fetch_or(Self::bit(operation_code), Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, operation_code: u8) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(operation_code) != 0
    }

    const fn bit(operation_code: u8) -> u32 {
        if operation_code >> 5 == 4 { 1 << (operation_code & 0x1f) } else { 0 }
    }
}

/// How long a port may take to change its state towards the unit.
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    /// As the unit says (IMPLICIT TRANSITION TIME, SPC-4 §6.37): seconds, 0 if it does not.
    told: AtomicU32,
    /// Another port may serve the unit, and is tried before this one is waited for.
    are_cut_short: AtomicBool,
    /// Requests may go through other ports.
    have_other_ports: AtomicBool,
}

impl Transitions {
    /// The same while another port is left to be tried.
    const SHORT: Duration = Duration::from_secs(1);

    pub(crate) fn learn(&self, seconds: Option<u8>) {
        self.told.store(seconds.unwrap_or(0).into(), Ordering::Relaxed);
    }

    /// Whether another port is tried soon.
    pub(crate) fn cut_short(&self, are_cut_short: bool) {
        self.are_cut_short.store(are_cut_short, Ordering::Relaxed);
    }

    /// From now on requests may go through several ports.
    pub(crate) fn follow_other_ports(&self) {
        self.have_other_ports.store(true, Ordering::Relaxed);
    }

    pub(crate) fn have_other_ports(&self) -> bool {
        self.have_other_ports.load(Ordering::Relaxed)
    }

    /// How long it is waited for; `usual` where the unit does not say.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        let limit = match self.told.load(Ordering::Relaxed) {
            0 => usual,
            seconds => Duration::from_secs(seconds.into()),
        };
        let is_short = self.are_cut_short.load(Ordering::Relaxed);
        if is_short { limit.min(Self::SHORT) } else { limit }
    }
}
