//! The page of metrics of the copies of a process.

mod progress_name;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsi_examples_common::boxed::boxed;
use iscsi_examples_common::metrics::page::{Labels, retransmitted_segments};
use iscsi_examples_common::metrics::{MetricFamily, MetricType, MetricsServer, Page};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::args::ControllerArgs;
use crate::control::handle::{Handle, Phase, Snapshot};
use crate::error::Error;

pub use progress_name::ProgressName;

/// Interval between two samples of the copied bytes.
const SAMPLE: Duration = Duration::from_secs(1);
/// Number of samples that a rate covers.
const IN_A_RATE: usize = 10;
/// Prefix of the names.
const PROGRAM: &str = "block_copy";

/// A server of metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    server: MetricsServer,
    copies: Vec<Arc<SampledCopy>>,
    name: Option<ProgressName>,
}

/// A copy, and the samples of its progress.
#[derive(Debug)]
struct SampledCopy {
    handle: Handle,
    /// Label with the name of the copy; empty without a job file.
    labels: Labels,
    seen: Mutex<Samples>,
}

/// The samples of a copy's progress, for its rate.
#[derive(Clone, Debug, Default)]
struct Samples {
    /// Bytes that this run had copied at a time, the latest last.
    samples: VecDeque<(Instant, u64)>,
    /// The greatest progress, from 0 to 1. Further passes over a source in use begin at 0 again.
    progress: f64,
}

impl Metrics {
    /// Listens at the address of the options; returns `None` if they name none. `are_jobs`: the copies are those of a job file,
    /// and have their names as a label.
    ///
    /// # Errors
    /// [`Error::Metrics`].
    pub(crate) async fn bind(
        args: &ControllerArgs,
        handles: &[Handle],
        are_jobs: bool,
    ) -> Result<Option<Self>, Error> {
        let Some(server) = MetricsServer::bind(&args.metrics).await? else { return Ok(None) };
        let copies = handles.iter().map(|handle| {
            let job = || ("job", handle.name().to_owned());
            let labels = if are_jobs { vec![job()] } else { Labels::new() };
            Arc::new(SampledCopy { handle: handle.clone(), labels, seen: Mutex::default() })
        });
        Ok(Some(Self { server, copies: copies.collect(), name: args.metrics_progress.clone() }))
    }

    /// Answers requests, and samples the copies. Never returns.
    pub(crate) async fn serve(&self) -> Infallible {
        let (copies, name) = (self.copies.clone(), self.name.clone());
        let collect = Arc::new(move || {
            let (copies, name) = (copies.clone(), name.clone());
            boxed(async move { page(&copies, name.as_ref()).await })
        });
        let sampling = async {
            let mut ticks = interval(SAMPLE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                self.copies.iter().for_each(|copy| drop(copy.sample()));
            }
        };
        tokio::select! {
            never = self.server.serve(collect) => never,
            never = sampling => never,
        }
    }
}

impl SampledCopy {
    fn lock(&self) -> MutexGuard<'_, Samples> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample. Returns the state of the copy, and all samples.
    fn sample(&self) -> (Snapshot, Samples) {
        let measured = self.handle.snapshot();
        let mut seen = self.lock();
        seen.add(&measured, Instant::now());
        (measured, seen.clone())
    }
}

impl Samples {
    fn add(&mut self, measured: &Snapshot, now: Instant) {
        let progress = &measured.progress;
        let done = progress.done.saturating_sub(progress.resumed);
        // Another pass has begun.
        if self.samples.back().is_some_and(|(_, before)| done < *before) {
            self.samples.clear();
        }
        // A page that is read between two samples adds none.
        if self.samples.back().is_none_or(|(at, _)| now - *at >= SAMPLE / 2) {
            self.samples.push_back((now, done));
        }
        while self.samples.len() > IN_A_RATE + 1 {
            self.samples.pop_front();
        }
        let part = match (measured.phase, progress.total) {
            (Phase::Verifying, _) => 1.0,
            (Phase::Copying | Phase::Ended, Some(total)) if total > 0 => {
                progress.done as f64 / total as f64
            }
            (Phase::Opening | Phase::Copying | Phase::Ended, _) => 0.0,
        };
        self.progress = self.progress.max(part.min(1.0));
    }

    /// Returns the rate over the last seconds in bytes a second.
    fn rate(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.samples.front()?, self.samples.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds > 0.0).then(|| (after - before) as f64 / seconds)
    }
}

/// A quantity of a copy: its name, its description, and its value, if it is known.
type Quantity = (&'static str, &'static str, fn(&Snapshot, &Samples) -> Option<f64>);

/// The quantities of each copy.
const QUANTITIES: [Quantity; 8] = [
    ("paused", "1 while the copy is paused.", |it, _| Some(f64::from(u8::from(it.is_paused)))),
    ("progress_ratio", "Part that is copied, from 0 to 1.", |it, seen| {
        it.progress.total.map(|_| seen.progress)
    }),
    ("done_bytes", "Bytes that the present pass has done.", |it, _| Some(it.progress.done as f64)),
    ("flushed_bytes", "Bytes of the present pass that are flushed.", |it, _| {
        Some(it.progress.flushed as f64)
    }),
    ("size_bytes", "Bytes of the present pass.", |it, _| Some(it.progress.total? as f64)),
    ("rate_bytes_per_second", "Rate over the last ten seconds.", |_, seen| seen.rate()),
    ("rate_limit_bytes_per_second", "The limit of the rate, if there is one.", |it, _| {
        it.limit?.bits_per_second().map(|bits| bits as f64 / 8.0)
    }),
    ("time_left_seconds", "Time to the end of the present pass, at that rate.", |it, seen| {
        let left = it.progress.total?.saturating_sub(it.progress.done);
        seen.rate().filter(|rate| *rate > 0.0).map(|rate| left as f64 / rate)
    }),
];

/// Returns the metrics of all copies.
async fn page(copies: &[Arc<SampledCopy>], name: Option<&ProgressName>) -> Page {
    let seen: Vec<_> = copies.iter().map(|copy| (copy, copy.sample())).collect();
    let mut page = Page { families: vec![phases(&seen)], disks: Vec::new() };
    page.families.extend(QUANTITIES.map(|(what, help, value)| {
        let family = MetricFamily::new(format!("{PROGRAM}_{what}"), MetricType::Gauge, help);
        seen.iter().fold(family, |family, (copy, (measured, seen))| {
            family.with_known(&copy.labels, value(measured, seen))
        })
    }));
    let help = "TCP segments that were sent again, over the open sessions.";
    let name_of_it = format!("{PROGRAM}_retransmitted_segments");
    let mut retransmitted = MetricFamily::new(name_of_it, MetricType::Gauge, help);
    for (copy, (measured, _)) in &seen {
        for unit in &measured.units {
            let (stats, mut labels) = (unit.disk().stats(), copy.labels.clone());
            labels.push(("end", unit.side().to_string()));
            labels.push(("target", stats.target.clone()));
            labels.push(("lun", stats.lun.to_string()));
            labels.extend(unit.member_name().map(|member| ("member", member.to_string())));
            let segments = retransmitted_segments(unit.disk()).await;
            retransmitted = retransmitted.with(&labels, segments as f64);
            page.disks.push(stats);
        }
    }
    page.families.push(retransmitted);
    page.families.extend(name.filter(|_| !seen.is_empty()).map(|name| {
        let parts = seen.iter().map(|(_, (_, seen))| seen.progress);
        name.family(parts.sum::<f64>() / seen.len() as f64)
    }));
    page
}

/// Returns the phase of each copy: 1 for the present one, 0 for the others.
fn phases(seen: &[(&Arc<SampledCopy>, (Snapshot, Samples))]) -> MetricFamily {
    let mut family = MetricFamily::new(
        format!("{PROGRAM}_phase"),
        MetricType::Gauge,
        "1 for the phase that the copy is in.",
    );
    for (copy, (measured, _)) in seen {
        for phase in Phase::ALL {
            let mut labels = copy.labels.clone();
            labels.push(("phase", phase.name().to_owned()));
            family = family.with(&labels, f64::from(u8::from(phase == measured.phase)));
        }
    }
    family
}
