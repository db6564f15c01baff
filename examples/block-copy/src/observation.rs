//! What the sessions of a copy did from its beginning to its end.

use iscsi_initiator::{Reading, Session};
use iscsi_tuner::{Diagnosis, Row};

use crate::end::UnitEnd;
use crate::side::Side;

/// The sessions of both ends at the beginning of a copy, with what their connections had done.
#[derive(Debug)]
pub(crate) struct Observation(Vec<(Session, Reading)>);

impl Observation {
    /// Looks at all sessions of a unit.
    pub(crate) async fn begin(unit: &UnitEnd) -> Self {
        let mut readings = Vec::new();
        for session in unit.sessions() {
            // A session that has ended tells so to the next command.
            if let Ok(reading) = session.reading().await {
                readings.push((session, reading));
            }
        }
        Self(readings)
    }

    /// What has held the unit back since then: the first of its sessions that is still there
    /// stands for all. `None` if none of them is.
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

/// Which unit of a volume it is.
fn member(unit: &UnitEnd) -> Option<Row> {
    let value = unit.member_name()?.to_string();
    Some(Row { name: "unit", value, reason: "each unit of a volume has a link of its own".into() })
}

/// That one session is not the whole of it.
fn remark(unit: &UnitEnd) -> Option<Row> {
    let peak = unit.status().peak;
    (peak > 1).then(|| Row {
        name: "sessions",
        value: peak.to_string(),
        reason: "concurrent; this is the oldest one that was there all the time, and its share"
            .into(),
    })
}
