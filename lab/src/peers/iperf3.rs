//! Runs iperf3, which measures the rate of TCP without iSCSI on the link.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::end::{garbled, missing, not_started, to_end};
use super::reading::Reading;
use crate::environment::find;
use crate::process::Group;
use crate::result::Outcome;
use crate::scenario::{Direction, Measure, Point};
use crate::testbed::{FAR, far};

const PACKAGE: &str = "iperf3";
/// Time limit until the server listens.
const SERVER: Duration = Duration::from_secs(10);

pub(super) async fn measure(point: &Point) -> Result<Reading, Outcome> {
    let _server = serve().await?;
    let mut command = Command::new("iperf3");
    command.args(["-c", FAR, "-J"]);
    match point.measure.seconds {
        Some(seconds) => command.arg("-t").arg(seconds.to_string()),
        None => command.arg("-n").arg(point.bytes.to_string()),
    };
    if point.measure.direction == Direction::Read {
        command.arg("-R");
    }
    command.args(&point.measure.args);
    let ended = to_end(&mut command, point.limit, PACKAGE).await?;
    let report = ended.text();
    let reading = parse(&report).ok_or_else(|| garbled("iperf3", &report))?;
    Ok(Reading { seconds: ended.time.as_secs_f64(), ..of(&point.measure, reading) })
}

/// Returns the parts of a report that apply to the measurement.
fn of(measure: &Measure, reading: Reading) -> Reading {
    let by_time = measure.seconds.is_some();
    Reading {
        goodput_mbit_per_s: reading.goodput_mbit_per_s.filter(|_| by_time),
        // A sender's intervals count the bytes that its kernel took, not those that arrived. So a write has no
        // samples.
        samples_mbit_per_s: match measure.direction {
            Direction::Read => reading.samples_mbit_per_s,
            Direction::Write => Vec::new(),
        },
        ..reading
    }
}

/// Starts a server for one client on the second host, and waits until it listens.
async fn serve() -> Result<Group, Outcome> {
    if find("iperf3").is_none() {
        return Err(missing("iperf3", PACKAGE));
    }
    let mut command = far("iperf3");
    command.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = Group::start(&mut command).map_err(|error| not_started(error, PACKAGE))?;
    let mut lines = BufReader::new(group.child.stdout.take().ok_or(Outcome::TimedOut)?).lines();
    let listens = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line.contains("listening") {
                return true;
            }
        }
        false
    };
    if timeout(SERVER, listens).await != Ok(true) {
        return Err(Outcome::Failed("the server of iperf3 does not listen".to_owned()));
    }
    // Further output is read and dropped, so that the server does not block.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(group)
}

/// Parses the report of `-J`. Uses the receiver's count: the sender counts the bytes that its kernel took,
/// which may not have crossed the link.
fn parse(text: &str) -> Option<Reading> {
    let report: Value = serde_json::from_str(text).ok()?;
    let received = report.pointer("/end/sum_received")?;
    let intervals = report.get("intervals")?.as_array()?;
    let full = intervals.iter().map(|interval| &interval["sum"]).filter(|sum| is_full(sum));
    let mut end = report.get("end")?.clone();
    let goodput = received.get("bits_per_second")?.as_f64()? * 1e-6;
    end.as_object_mut()?.remove("streams");
    end["told_mbit_per_s"] = goodput.into();
    Some(Reading {
        bytes: received.get("bytes")?.as_u64(),
        goodput_mbit_per_s: Some(goodput),
        samples_mbit_per_s: full
            .filter_map(|sum| sum["bits_per_second"].as_f64())
            .map(|rate| rate * 1e-6)
            .collect(),
        detail: end,
        ..Reading::default()
    })
}

fn is_full(sum: &Value) -> bool {
    sum["seconds"].as_f64().is_some_and(|seconds| seconds > 0.9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const REPORT: &str = r#"{"start":{"version":"iperf 3.12"},"intervals":[
        {"streams":[],"sum":{"seconds":1.0001,"bytes":11000000,"bits_per_second":88000000.0}},
        {"streams":[],"sum":{"seconds":0.99,"bytes":11500000,"bits_per_second":92000000.0}},
        {"streams":[],"sum":{"seconds":0.31,"bytes":3000000,"bits_per_second":77000000.0}}],
        "end":{"streams":[{"sender":{}}],"sum_sent":{"bytes":25500000,"bits_per_second":92000000.0},
        "sum_received":{"bytes":24000000,"bits_per_second":84500000.0},
        "sender_tcp_congestion":"cubic"}}"#;

    #[test]
    fn the_receivers_count_and_the_full_seconds_are_read() {
        let reading = parse(REPORT).unwrap();
        assert_eq!(reading.goodput_mbit_per_s, Some(84.5));
        assert_eq!(reading.bytes, Some(24_000_000));
        assert_eq!(reading.samples_mbit_per_s, [88.0, 92.0]);
        assert_eq!(reading.detail["sender_tcp_congestion"], "cubic");
        assert_eq!(reading.detail["told_mbit_per_s"], 84.5);
        assert!(reading.detail.get("streams").is_none());
    }

    fn measured(keys: &str) -> Reading {
        let text = format!(
            "title = 'one'\ntarget = {{ luns = ['0:10M'] }}\nlink = [{{ rtt_ms = [1] }}]\n\
             measure = [{{ who = 'iperf3', {keys} }}]"
        );
        let point = Scenario::parse(&text).unwrap().points().remove(0);
        of(&point.measure, parse(REPORT).unwrap())
    }

    #[test]
    fn only_a_receiver_has_samples() {
        assert_eq!(measured("direction = 'read'").samples_mbit_per_s, [88.0, 92.0]);
        assert!(measured("direction = 'write'").samples_mbit_per_s.is_empty());
    }

    #[test]
    fn the_receivers_rate_counts_for_a_measure_by_time_only() {
        assert_eq!(measured("seconds = 15").goodput_mbit_per_s, Some(84.5));
        assert_eq!(measured("bytes = '10M'").goodput_mbit_per_s, None);
    }

    #[test]
    fn an_error_report_is_none() {
        let refused = r#"{"start":{},"intervals":[],"end":{},"error":"unable to connect"}"#;
        assert_eq!(parse(refused), None);
        assert_eq!(parse("iperf3: error"), None);
    }
}
