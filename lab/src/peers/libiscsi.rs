//! Runs libiscsi by `qemu-img bench`: 32 requests of 64 KiB in flight unless the arguments set another number.

use serde_json::json;
use tokio::process::Command;

use super::end::{garbled, to_end};
use super::reading::Reading;
use crate::peers::qemu_img::explain;
use crate::rate::mbit_per_s;
use crate::result::Outcome;
use crate::scenario::{Direction, Point};
use crate::testbed::url;

/// Bytes of a request.
const REQUEST: u64 = 64 << 10;

pub(super) async fn measure(point: &Point) -> Result<Reading, Outcome> {
    if let Some(word) = point.measure.args.iter().find(|word| is_amount(word)) {
        return Err(Outcome::Failed(format!(
            "`{word}` in `args` would change how many bytes are moved, which `bytes` decides"
        )));
    }
    let mut command = Command::new("qemu-img");
    command.args(["bench", "-f", "raw", "-t", "none", "-d", "32"]);
    command.args(["-s", &REQUEST.to_string(), "-c", &(point.bytes.div_ceil(REQUEST)).to_string()]);
    if point.measure.direction == Direction::Write {
        command.args(["-w", "--pattern=165"]);
    }
    command.args(&point.measure.args).arg(url(point.measure.lun));
    let ended = to_end(&mut command, point.limit, "qemu-utils").await.map_err(explain)?;
    let report = ended.text();
    let own = parse(&report).ok_or_else(|| garbled("qemu-img", &report))?;
    Ok(Reading {
        seconds: ended.time.as_secs_f64(),
        detail: json!({ "seconds": own, "told_mbit_per_s": mbit_per_s(point.bytes, own) }),
        ..Reading::default()
    })
}

/// Returns whether an argument sets the bytes of a request or the number of requests.
fn is_amount(word: &str) -> bool {
    ["-s", "--buffer-size", "-c", "--count"].iter().any(|option| word.starts_with(option))
}

/// Parses the seconds in `Run completed in 1.234 seconds.`
fn parse(text: &str) -> Option<f64> {
    let told = text.lines().find_map(|line| line.trim().strip_prefix("Run completed in "))?;
    told.strip_suffix(" seconds.")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_run_is_read() {
        let report = "Sending 256 write requests, 65536 bytes each, 32 in parallel \
                      (starting at offset 0, step size 65536)\nRun completed in 1.533 seconds.\n";
        assert_eq!(parse(report), Some(1.533));
    }

    #[test]
    fn what_would_change_the_bytes_is_told_from_the_rest() {
        assert!(["-s", "-s4096", "--buffer-size=1M", "-c", "-c10"].into_iter().all(is_amount));
        assert!(!["-d", "64", "-S", "--no-drain", "-t"].into_iter().any(is_amount));
    }

    #[test]
    fn a_run_without_an_end_is_none() {
        assert_eq!(parse("Sending 256 write requests\n"), None);
        assert_eq!(parse("Run completed in many seconds.\n"), None);
    }
}
