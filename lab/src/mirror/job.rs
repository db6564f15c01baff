//! Controls QEMU's mirror of a disk to a unit.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::qmp::Qmp;
use crate::error::Error;
use crate::scenario::Mirror;

/// A mirror, from its start to its end.
#[derive(Debug)]
pub(super) struct Job {
    qmp: Qmp,
    granularity: Option<u64>,
    is_ready: bool,
}

/// Progress of a mirror.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Standing {
    /// Bytes copied so far.
    pub(super) copied: u64,
    /// Bytes that still differ between disk and unit.
    pub(super) left: u64,
}

impl Job {
    /// Returns a mirror of the node `disk` to the node `unit`. It is not started.
    pub(super) fn new(qmp: Qmp, mirror: &Mirror) -> Self {
        let granularity = mirror.granularity.map(|size| size.0);
        Self { qmp, granularity, is_ready: false }
    }

    /// Starts the mirror.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        let mut arguments =
            json!({ "job-id": "move", "device": "disk", "target": "unit", "sync": "full" });
        if let Some(bytes) = self.granularity {
            arguments["granularity"] = bytes.into();
        }
        self.qmp.execute("blockdev-mirror", arguments).await.map(drop)
    }

    /// Waits at most `step` until disk and unit are equal for the first time. Returns whether they have been
    /// equal. If they were equal before the call, waits the whole `step`.
    pub(super) async fn wait_for_ready(&mut self, step: Duration) -> Result<bool, Error> {
        let end = Instant::now() + step;
        loop {
            let was_ready = self.is_ready;
            let Ok(event) = timeout_at(end, self.qmp.event()).await else {
                return Ok(self.is_ready);
            };
            self.is_ready |= happened(&event?, "BLOCK_JOB_READY")?.is_some();
            if self.is_ready && !was_ready {
                return Ok(true);
            }
        }
    }

    /// Returns the progress.
    pub(super) async fn standing(&mut self) -> Result<Standing, Error> {
        let jobs = self.qmp.execute("query-block-jobs", json!({})).await?;
        standing(&jobs).ok_or_else(|| ended("there is no such job any more"))
    }

    /// Completes the mirror when disk and unit are equal. Returns the bytes that it has copied in total.
    pub(super) async fn complete(&mut self) -> Result<u64, Error> {
        self.qmp.execute("block-job-complete", json!({ "device": "move" })).await?;
        loop {
            let event = self.qmp.event().await?;
            if let Some(copied) = happened(&event, "BLOCK_JOB_COMPLETED")? {
                return Ok(copied);
            }
        }
    }

    /// Makes QEMU exit.
    pub(super) async fn quit(mut self) -> Result<(), Error> {
        self.qmp.execute("quit", json!({})).await.map(drop)
    }
}

/// Returns the progress of the only job; `None` if there is no job.
fn standing(jobs: &Value) -> Option<Standing> {
    let job = jobs.get(0)?;
    let copied = job.get("offset")?.as_u64()?;
    // The job's length includes the data that was written meanwhile.
    let left = job.get("len")?.as_u64()?.saturating_sub(copied);
    Some(Standing { copied, left })
}

/// Returns the bytes that were copied until the event with this name; `None` for other events. Fails for an
/// event that reports an error, whatever its name.
fn happened(event: &Value, name: &str) -> Result<Option<u64>, Error> {
    let is = event.get("event").and_then(Value::as_str).unwrap_or_default();
    let told = |word: &str| event.get("data").and_then(|data| data.get(word));
    if let Some(reason) = told("error").and_then(Value::as_str) {
        return Err(ended(reason));
    }
    if is == "BLOCK_JOB_ERROR" {
        let operation = told("operation").and_then(Value::as_str).unwrap_or("request");
        return Err(ended(&format!("a {operation} has failed")));
    }
    Ok((is == name).then(|| told("offset").and_then(Value::as_u64).unwrap_or_default()))
}

fn ended(reason: &str) -> Error {
    Error::Tool { program: "blockdev-mirror".to_owned(), message: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_length_without_what_was_copied() {
        let jobs = json!([{ "device": "move", "type": "mirror", "len": 300, "offset": 120 }]);
        assert_eq!(standing(&jobs), Some(Standing { copied: 120, left: 180 }));
        assert_eq!(standing(&json!([])), None);
        assert_eq!(standing(&json!([{ "len": 300 }])), None);
    }

    #[test]
    fn an_end_with_an_error_is_no_end() {
        let event = |name: &str, data: Value| json!({ "event": name, "data": data });
        let completed = event("BLOCK_JOB_COMPLETED", json!({ "offset": 7, "len": 7 }));
        assert_eq!(happened(&completed, "BLOCK_JOB_COMPLETED").unwrap(), Some(7));
        assert_eq!(happened(&completed, "BLOCK_JOB_READY").unwrap(), None);
        let status = event("JOB_STATUS_CHANGE", json!({ "status": "running", "id": "move" }));
        assert_eq!(happened(&status, "BLOCK_JOB_READY").unwrap(), None);
        let broken = event("BLOCK_JOB_COMPLETED", json!({ "error": "Input/output error" }));
        let error = happened(&broken, "BLOCK_JOB_COMPLETED").unwrap_err();
        assert!(error.to_string().ends_with("Input/output error"), "{error}");
        let error = event("BLOCK_JOB_ERROR", json!({ "operation": "write", "action": "report" }));
        let error = happened(&error, "BLOCK_JOB_READY").unwrap_err();
        assert!(error.to_string().contains("a write has failed"), "{error}");
    }
}
