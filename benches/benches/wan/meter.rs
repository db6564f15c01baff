//! Measures one point of the grid.

use std::time::Duration;

use iscsi_initiator::Reading;
use iscsi_lab::rate::mbit_per_s;
use iscsi_lab::result::{Figure, Outcome};
use serde_json::{Value, json};

use crate::grid::{Point, Trouble};
use crate::stream::{Progress, Stream, WRITE};
use crate::system::link;

/// Number of samples of a point.
pub(crate) const SAMPLES: u8 = 10;

/// Takes samples of a stream. Each begins at the end of the previous one.
#[derive(Debug)]
pub(crate) struct Meter {
    stream: Stream,
    /// Beginning and end of each sample so far.
    edges: Vec<Progress>,
    before: Reading,
    trouble: Option<Trouble>,
}

impl Meter {
    /// Begins the measurement. The rate of the stream must be steady.
    pub(crate) async fn begin(stream: Stream) -> Result<Self, Trouble> {
        let before = stream.reading().await?;
        let edges = vec![stream.reach(0).await?];
        Ok(Self { stream, edges, before, trouble: None })
    }

    /// Returns how long `writes` writes take. It measures until at least that many have ended, and scales the
    /// time to `writes`.
    pub(crate) async fn sample(&mut self, writes: u64) -> Duration {
        match self.next_edge(writes).await {
            Ok((moved, time)) => time.mul_f64(writes as f64 / moved as f64),
            Err(trouble) => {
                self.trouble = Some(trouble);
                Duration::from_secs(writes)
            }
        }
    }

    async fn next_edge(&mut self, writes: u64) -> Result<(u64, Duration), Trouble> {
        let from = self.edges.last().ok_or("there is no first edge")?;
        let to = self.stream.reach(from.writes + writes).await?;
        let between = from.until(&to);
        self.edges.push(to);
        Ok(between)
    }

    /// Ends the measurement. Returns no figure if no sample was taken.
    pub(crate) async fn end(mut self, point: &Point) -> (Stream, Option<Figure>) {
        let figure = match self.trouble.take() {
            Some(trouble) => Err(trouble),
            None => self.figure(point).await,
        };
        let figure = figure.unwrap_or_else(|trouble| Some(failed(point, &trouble)));
        (self.stream, figure)
    }

    async fn figure(&self, point: &Point) -> Result<Option<Figure>, Trouble> {
        // The first edges are of criterion's warm-up, in which it estimates the time of a write: skip them.
        let tries = self.edges.len().saturating_sub(usize::from(SAMPLES) + 1);
        let Some(edges @ [first, .., last]) = self.edges.get(tries..) else { return Ok(None) };
        let (writes, time) = first.until(last);
        let (bytes, seconds) = (writes * WRITE, time.as_secs_f64());
        Ok(Some(Figure {
            bytes,
            seconds: Some(seconds),
            goodput_mbit_per_s: Some(mbit_per_s(bytes, seconds)),
            detail: self.detail(edges, &self.stream.reading().await?),
            ..blank(point)
        }))
    }

    /// Returns the details that explain the figure.
    fn detail(&self, edges: &[Progress], after: &Reading) -> Value {
        let rate = |(writes, time): (u64, Duration)| mbit_per_s(writes * WRITE, time.as_secs_f64());
        let samples = edges.windows(2).map(|pair| rate(pair[0].until(&pair[1])));
        let (info, granted) = (after.tcp_info(), after.granted());
        // If the kernel tunes the buffer, it does not report the size; the reported size of a new socket means
        // nothing.
        let is_set = after.plan().send_buffer.value.bytes().is_some();
        let refused = granted.refused.iter().map(|refusal| &refusal.reason);
        json!({
            "sample_mbit_per_s": samples.collect::<Vec<_>>(),
            "acknowledged_mbit_per_s": self.acknowledged(after),
            "granted_bytes": granted.send_buffer.filter(|_| is_set),
            "refused": refused.collect::<Vec<_>>(),
            "congestion_control": granted.congestion_control,
            "congestion_window_segments": info.congestion_window,
            "retransmitted_segments": info.segments_retransmitted,
            "smoothed_rtt_ms": info.smoothed_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            "held_back_by": self.held_back_by(after),
        })
    }

    /// Returns the rate at which the target acknowledged bytes, with headers, in Mbit/s.
    fn acknowledged(&self, after: &Reading) -> Option<f64> {
        let bytes = |reading: &Reading| reading.tcp_info().bytes_acknowledged;
        let moved = bytes(after)?.saturating_sub(bytes(&self.before)?);
        let time = after.at().saturating_duration_since(self.before.at());
        Some(mbit_per_s(moved, time.as_secs_f64()))
    }

    fn held_back_by(&self, after: &Reading) -> Vec<Value> {
        let findings = after.diagnose_since(&self.before).findings;
        let told = findings.iter().map(|finding| {
            let (share, evidence) = (finding.share, &finding.evidence);
            json!({ "limiter": format!("{:?}", finding.limiter), "share": share, "evidence": evidence })
        });
        told.collect()
    }
}

/// Returns the figure of a point that could not be measured.
pub(crate) fn failed(point: &Point, trouble: &Trouble) -> Figure {
    Figure { outcome: Outcome::Failed(trouble.to_string()), ..blank(point) }
}

fn blank(point: &Point) -> Figure {
    let parameters =
        [("variant", point.variant.name().to_owned()), ("send_buffer", point.buffer.parameter())];
    Figure {
        link: link(point),
        who: "iscsi-initiator".to_owned(),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
        outcome: Outcome::Complete,
        bytes: 0,
        seconds: None,
        goodput_mbit_per_s: None,
        steady_mbit_per_s: None,
        start_seconds: None,
        samples_mbit_per_s: Vec::new(),
        carried: None,
        allocated_bytes: None,
        detail: Value::Null,
    }
}
