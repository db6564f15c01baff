//! Measures each point of the grid, in the lab.

use std::env;
use std::fs;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use iscsi_lab::provenance;
use iscsi_lab::record::Record;
use iscsi_lab::result::{Figure, Outcome, ResultFile};
use tokio::runtime::{Builder, Runtime};

use crate::grid::{Grid, Point, Trouble};
use crate::meter::{Meter, SAMPLES, failed};
use crate::stream::{DEPTH, Stream, WRITE};
use crate::system::{RAISED, System, open_link};
use crate::variables::{RESULT, result_path};

/// Measures all points. Returns the exit status: 1 if a point has no figure. The result file is complete after
/// each point.
pub(crate) fn measure(url: &str, grid: &Grid) -> Result<u8, Trouble> {
    // A separate thread: the stream must not pause while criterion calculates.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bench = Bench { url, grid, runtime, system: System::found() };
    let mut record = record()?;
    let mut criterion = Criterion::default().configure_from_args();
    let points = grid.points();
    let mut complete = true;
    for (index, point) in points.iter().enumerate() {
        let Some(figure) = bench.figure(&mut criterion, point) else { continue };
        println!("[{}/{}] {}", index + 1, points.len(), figure.line());
        complete &= figure.outcome == Outcome::Complete;
        record.add(figure)?;
    }
    criterion.final_summary();
    Ok(u8::from(!complete))
}

/// Begins the result file.
fn record() -> Result<Record, Trouble> {
    let head = env::var(RESULT).map_err(|_| format!("{RESULT} is not set"))?;
    let mut file: ResultFile = serde_json::from_str(&head)?;
    file.machine.lab_kernel = provenance::kernel();
    file.settings.extend(provenance::system());
    file.settings.extend(provenance::target());
    let own = [
        ("bench.net.core.wmem_max", format!("{RAISED} for static buffers")),
        ("bench.write_bytes", WRITE.to_string()),
        ("bench.writes_under_way", DEPTH.to_string()),
        ("bench.samples", SAMPLES.to_string()),
    ];
    file.settings.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let path = result_path();
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    Ok(Record::begin(&path, file)?)
}

/// Parameters of the measurement of one point.
struct Bench<'a> {
    url: &'a str,
    grid: &'a Grid,
    runtime: Runtime,
    system: System,
}

impl Bench<'_> {
    /// Measures a point. Returns `None` if criterion's filter excludes it.
    fn figure(&self, criterion: &mut Criterion, point: &Point) -> Option<Figure> {
        match self.runtime.block_on(self.warm_up(point)) {
            Ok(meter) => self.sample(criterion, point, meter),
            Err(trouble) => Some(failed(point, &trouble)),
        }
    }

    async fn warm_up(&self, point: &Point) -> Result<Meter, Trouble> {
        self.system.prepare(point).await?;
        let stream = Stream::start(self.url, point.tuning()).await?;
        stream.wait_for_steady_rate(point.warm_up()).await?;
        Meter::begin(stream).await
    }

    fn sample(&self, criterion: &mut Criterion, point: &Point, mut meter: Meter) -> Option<Figure> {
        let mut group = criterion.benchmark_group(format!("wan, RTT {} ms", point.rtt_ms));
        self.configure(&mut group, point);
        let name = format!("{}, buffer {}", point.variant.name(), point.buffer.name());
        group.bench_function(name, |b| {
            b.iter_custom(|writes| self.runtime.block_on(meter.sample(writes)));
        });
        group.finish();
        self.runtime.block_on(self.end(point, meter))
    }

    fn configure(&self, group: &mut BenchmarkGroup<'_, WallTime>, point: &Point) {
        let sample = self.grid.sample(point);
        group.sampling_mode(SamplingMode::Flat).sample_size(usize::from(SAMPLES)).nresamples(2000);
        group.throughput(Throughput::Bits(WRITE * 8));
        // The rate is steady already: these times only determine the number of writes per sample.
        group.warm_up_time(sample).measurement_time(sample * u32::from(SAMPLES));
    }

    async fn end(&self, point: &Point, meter: Meter) -> Option<Figure> {
        let (stream, figure) = meter.end(point).await;
        let closed = async {
            stream.stop();
            open_link().await?;
            stream.finish().await.map_err(Trouble::from)
        };
        match closed.await {
            Ok(()) => figure,
            Err(trouble) => Some(failed(point, &trouble)),
        }
    }
}
