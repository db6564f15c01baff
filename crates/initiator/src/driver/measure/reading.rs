//! Measures a running session by readings; two readings show what held it back in between.

use std::sync::Arc;
use std::time::Instant;

use iscsi_pdu::Cid;
use iscsi_tuner::{
    Activity, Diagnosis, Granted, Interface, Limits, Measurement, Observation, OwnLimits, Plan,
    TcpInfo,
};

use crate::state::session_key::SessionKey;

/// A measurement of one connection at one moment: TCP_INFO of the kernel, what the connection has waited for so
/// far, and its plan.
///
/// Compare two readings of the same session and CID to find out what held the connection back between them:
/// [`diagnose_since`](Self::diagnose_since).
#[doc(alias = "TCP_INFO")]
#[derive(Clone, Debug)]
pub struct Reading {
    pub(crate) at: Instant,
    pub(crate) session: SessionKey,
    pub(crate) cid: Cid,
    pub(crate) info: TcpInfo,
    pub(crate) encryption: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) activity: Activity,
    pub(crate) own_limits: OwnLimits,
    pub(crate) basis: Arc<PlanBasis>,
}

/// A plan, and what it is based on.
#[derive(Debug)]
pub(crate) struct PlanBasis {
    pub(crate) limits: Limits,
    pub(crate) measurement: Measurement,
    pub(crate) plan: Plan,
    pub(crate) granted: Granted,
    pub(crate) interface: Option<Interface>,
}

impl Reading {
    /// Returns when the reading was taken.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// Returns the session of the connection; with [`cid`](Self::cid) it identifies the connection.
    #[must_use]
    pub const fn session(&self) -> SessionKey {
        self.session
    }

    /// Returns the number of the connection in its session (RFC 7143 §11.12.7).
    #[must_use]
    pub const fn cid(&self) -> Cid {
        self.cid
    }

    /// Returns what the kernel reported about the connection (`TCP_INFO`).
    #[must_use]
    pub const fn tcp_info(&self) -> &TcpInfo {
        &self.info
    }

    /// Returns the cipher that encrypts the connection, by the name that its network gives; `None` in clear text.
    #[must_use]
    pub fn encryption(&self) -> Option<&str> {
        self.encryption.as_deref()
    }

    /// Returns how many bytes of command data the connection had moved by the time of the reading, in both
    /// directions together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.basis.plan
    }

    /// Returns what the kernel granted of the plan.
    #[must_use]
    pub fn granted(&self) -> &Granted {
        &self.basis.granted
    }

    /// Returns what had been measured of the link up to the reading.
    #[must_use]
    pub fn measurement(&self) -> &Measurement {
        &self.basis.measurement
    }

    /// Returns the limits of this host.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.basis.limits
    }

    /// Returns the network interface that the connection uses, if it was found.
    #[must_use]
    pub fn interface(&self) -> Option<&Interface> {
        self.basis.interface.as_ref()
    }

    /// Returns what held the connection back since `earlier`, a reading of the same connection.
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
