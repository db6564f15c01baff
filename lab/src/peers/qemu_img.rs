//! Runs `qemu-img convert`.

use serde_json::Value;
use tokio::process::Command;

use super::bench::Bench;
use super::end::to_end;
use super::reading::Reading;
use crate::result::Outcome;
use crate::scenario::{Direction, Point};
use crate::testbed::url;

pub(super) async fn measure(point: &Point, bench: &Bench) -> Result<Reading, Outcome> {
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", "raw"]).args(&point.measure.args);
    match point.measure.direction {
        Direction::Write => command.arg("-n").arg(&bench.image).arg(url(point.measure.lun)),
        Direction::Read => command.arg(url(point.measure.lun)).arg(&bench.copy),
    };
    let ended = to_end(&mut command, point.limit, "qemu-utils").await.map_err(explain)?;
    let seconds = ended.time.as_secs_f64();
    Ok(Reading { seconds, detail: Value::Null, ..Reading::default() })
}

/// Returns `Skipped` instead of a failure if qemu-img lacks its iSCSI part, so that it does not know the URL.
pub(super) fn explain(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(reason) if reason.contains("Unknown protocol 'iscsi'") => Outcome::Skipped(
            "qemu-img lacks its iSCSI part, which the Debian package `qemu-block-extra` brings \
             (`ci/packages peers` installs it)"
                .to_owned(),
        ),
        other @ (Outcome::Complete
        | Outcome::TimedOut
        | Outcome::Failed(_)
        | Outcome::Skipped(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_told_from_a_failure() {
        let said = "qemu-img: Could not open 'iscsi://h/t/0': Unknown protocol 'iscsi'";
        assert!(matches!(explain(Outcome::Failed(said.to_owned())), Outcome::Skipped(_)));
        let other = Outcome::Failed("no route to host".to_owned());
        assert_eq!(explain(other.clone()), other);
    }
}
