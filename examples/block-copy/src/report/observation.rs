//! Measures what a copy's sessions waited for, from the beginning of the copy to its end.

use iscsi_initiator::{Reading, Session};
use iscsi_tuner::{Diagnosis, Row};

use crate::end::UnitEnd;
use crate::side::Side;

/// The sessions of a unit at the beginning of a copy, with the counters of their connections.
#[derive(Debug)]
pub(crate) struct Observation(Vec<(Session, Reading)>);

impl Observation {
    /// Takes the counters of all sessions of a unit, at the beginning.
    pub(crate) async fn begin(unit: &UnitEnd) -> Self {
        let mut readings = Vec::new();
        for session in unit.sessions() {
            // A session that has ended cannot be read, and is skipped.
            if let Ok(reading) = session.reading().await {
                readings.push((session, reading));
            }
        }
        Self(readings)
    }

    /// Returns what has held the unit back since the beginning, as its first session that is still open has
    /// measured it. Returns `None` if no session is open.
    pub(crate) async fn end(self, unit: &UnitEnd) -> Option<(Side, Diagnosis)> {
        for (session, before) in &self.0 {
            if let Some(after) = reading_of(session).await {
                let mut diagnosis = after.diagnose_since(before);
                diagnosis.remarks.extend(remark(unit));
                diagnosis.remarks.extend(member(unit));
                return Some((unit.side(), diagnosis));
            }
        }
        None
    }
}

async fn reading_of(session: &Session) -> Option<Reading> {
    if session.is_open() { session.reading().await.ok() } else { None }
}

/// Returns a row of the diagnosis with the name of the unit within its volume.
fn member(unit: &UnitEnd) -> Option<Row> {
    let value = unit.member_name()?.to_string();
    Some(Row { name: "unit", value, reason: "each unit of a volume has a link of its own".into() })
}

/// Returns a row that says that the diagnosis covers only one of several sessions.
fn remark(unit: &UnitEnd) -> Option<Row> {
    let peak = unit.status().peak;
    (peak > 1).then(|| Row {
        name: "sessions",
        value: peak.to_string(),
        reason: "concurrent; this is the oldest one that was there all the time, and its share"
            .into(),
    })
}
