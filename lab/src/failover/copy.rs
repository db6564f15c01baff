//! Runs copies of an image to the unit, for failovers.

use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use super::figure::FailoverFigure;
use super::gaps::Gaps;
use crate::peers::{Bench, block_copy};
use crate::process::Ended;
use crate::result::Outcome;
use crate::scenario::Point;

/// Returns the command of a copy by block-copy.
pub(super) fn to_url(url: &str, bench: &Bench) -> Result<Command, Outcome> {
    let mut command = block_copy(&bench.tree)?;
    command.arg(&bench.image).arg(url).args(["--json", "--progress", "none"]);
    Ok(command)
}

/// Returns the command of a copy by eight concurrent `dd` that bypass the page cache, which would take all
/// data immediately and write it later. The requests are short, since progress on the unit is seen only when
/// a whole request has reached it.
pub(super) fn to_device(image: &Path, device: &Path, point: &Point) -> Command {
    const PARTS: u64 = 8;
    const REQUEST: u64 = 128 << 10;
    let count = point.bytes.div_ceil(REQUEST).div_ceil(PARTS);
    let (image, device) = (image.display(), device.display());
    let script = format!(
        "parts=; for part in $(seq 0 {last}); do \
         dd if={image} of={device} bs={REQUEST} count={count} \
         skip=$((part * {count})) seek=$((part * {count})) \
         oflag=direct conv=fsync,nocreat status=none & parts=\"$parts $!\"; done; \
         status=0; for part in $parts; do wait $part || status=1; done; exit $status",
        last = PARTS - 1,
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    command
}

/// Returns the figure of a copy from its report and from the progress on the unit.
pub(super) fn figure_of(ended: &Ended, gaps: Gaps) -> FailoverFigure {
    let is_well = ended.output.status.success();
    FailoverFigure {
        stalled_seconds: gaps.longest,
        seconds: gaps.span(),
        errors: u64::from(!is_well),
        error: (!is_well).then(|| complaint(ended)),
        gaps: gaps.long,
        ..FailoverFigure::default()
    }
}

/// Returns the error of a copy. block-copy reports it in its JSON, other programs on standard error.
fn complaint(ended: &Ended) -> String {
    let report: Value = serde_json::from_str(&ended.text()).unwrap_or_default();
    let error = report.get("error").and_then(Value::as_str).map(str::to_owned);
    error.unwrap_or_else(|| ended.complaint())
}
