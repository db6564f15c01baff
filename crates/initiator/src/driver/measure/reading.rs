//! Readings of a running session, and what two of them tell.

use std::sync::Arc;
use std::time::Instant;

use iscsi_pdu::Cid;
use iscsi_tuner::{
    Activity, Diagnosis, Granted, Interface, Limits, Measurement, Observation, OwnLimits, Plan,
    TcpInfo,
};

use crate::state::session_key::SessionKey;

/// A connection of a session at one moment: what the kernel tells of it, what it waited for so far,
/// and the plan it runs under.
///
/// Two readings of one connection, those with the same session and CID, tell what held it back between them:
/// [`diagnose_since`](Self::diagnose_since).
#[derive(Clone, Debug)]
pub struct Reading {
    pub(crate) at: Instant,
    pub(crate) session: SessionKey,
    pub(crate) cid: Cid,
    pub(crate) info: TcpInfo,
    pub(crate) bytes: u64,
    pub(crate) activity: Activity,
    pub(crate) own_limits: OwnLimits,
    pub(crate) basis: Arc<PlanBasis>,
}

/// A plan, and what it stands on.
#[derive(Debug)]
pub(crate) struct PlanBasis {
    pub(crate) limits: Limits,
    pub(crate) measurement: Measurement,
    pub(crate) plan: Plan,
    pub(crate) granted: Granted,
    pub(crate) interface: Option<Interface>,
}

impl Reading {
    /// When it was taken.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// The session that the connection belongs to; with [`cid`](Self::cid) it names the connection.
    #[must_use]
    pub const fn session(&self) -> SessionKey {
        self.session
    }

    /// The connection, by its number in the session (RFC 7143 §11.12.7).
    #[must_use]
    pub const fn cid(&self) -> Cid {
        self.cid
    }

    /// What the kernel told of the connection.
    #[must_use]
    pub const fn tcp_info(&self) -> &TcpInfo {
        &self.info
    }

    /// Bytes of command data that the connection had moved, both directions.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.basis.plan
    }

    /// What the kernel granted of it.
    #[must_use]
    pub fn granted(&self) -> &Granted {
        &self.basis.granted
    }

    /// What was measured by then.
    #[must_use]
    pub fn measurement(&self) -> &Measurement {
        &self.basis.measurement
    }

    /// What this host permits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.basis.limits
    }

    /// The interface that the connection leaves by, if it was found.
    #[must_use]
    pub fn interface(&self) -> Option<&Interface> {
        self.basis.interface.as_ref()
    }

    /// What held the connection back since an earlier reading of it.
    #[must_use]
    pub fn diagnose_since(&self, earlier: &Self) -> Diagnosis {
        let observation = Observation::new(
            self.at.saturating_duration_since(earlier.at),
            self.bytes.saturating_sub(earlier.bytes),
            earlier.info,
            self.info,
            self.activity.since(&earlier.activity),
        );
        let observation = observation.within(self.own_limits);
        let PlanBasis { plan, measurement, limits, interface, .. } = &*self.basis;
        Diagnosis::new(&observation, plan, measurement, limits, interface.as_ref())
    }
}
