//! Makes the single measurements of a scenario: all combinations of its values.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    Direction, Failover, FailoverRun, Fault, FaultJob, FaultRun, Flows, Links, Load, Measure,
    Mirror, Ordeal, Scenario, Source, Stripe, Striped, Who,
};
use crate::result::LinkConditions;
use crate::size::Size;

/// QEMU's default granularity for a disk without clusters.
const QEMU_GRANULARITY: Size = Size(64 << 10);

/// A measurement to be made.
#[derive(Clone, Debug)]
pub struct Point {
    /// The link.
    pub link: LinkConditions,
    /// The measurement, with one value of each list of the scenario filled in.
    pub measure: Measure,
    /// Parameters for the result.
    pub parameters: BTreeMap<String, String>,
    /// Number of bytes to move.
    pub bytes: u64,
    /// Time limit.
    pub limit: Duration,
    /// The fault, if the measurement is a copy through one.
    pub ordeal: Option<Ordeal>,
    /// The flows, if the measurement is of flows.
    pub flows: Option<Flows>,
    /// The mirror, if the measurement is one.
    pub mirror: Option<Mirror>,
    /// The events on the paths of the unit, and the run that writes, if the measurement is a failover.
    pub failover: Option<(Failover, FailoverRun)>,
    /// The units that are joined to one device, if the measurement is of a stripe.
    pub stripe: Option<Striped>,
}

impl Scenario {
    /// Returns all measurements, link by link.
    pub fn points(&self) -> Vec<Point> {
        let links = self.links.iter().flat_map(Links::combinations);
        links.flat_map(|link| self.points_over(&link)).collect()
    }

    fn points_over(&self, link: &LinkConditions) -> Vec<Point> {
        let mut points = Vec::new();
        for measure in &self.measures {
            for values in combinations(&measure.vary) {
                for repetition in 1..=measure.repeat {
                    points.push(self.point(link, measure, &values, repetition));
                }
            }
        }
        for fault in &self.faults {
            points.extend(fault.runs.iter().map(|run| self.fault_point(link, fault, run)));
        }
        points.extend(self.flows.iter().map(|flows| self.flows_point(link, flows)));
        points.extend(self.mirrors.iter().map(|mirror| self.mirror_point(link, mirror)));
        for failover in &self.failovers {
            let runs = failover.runs.iter();
            points.extend(runs.map(|run| self.failover_point(link, failover, *run)));
        }
        for stripe in &self.stripes {
            points.extend(self.stripe_points(link, stripe));
        }
        points
    }

    fn point(
        &self,
        link: &LinkConditions,
        measure: &Measure,
        values: &Values,
        repetition: u32,
    ) -> Point {
        let mut parameters = measure.parameters.clone();
        parameters.insert("direction".to_owned(), measure.direction.name().to_owned());
        let filled = fill(measure, values);
        parameters.extend(values.clone());
        parameters.extend(filled.keys.clone());
        if measure.repeat > 1 {
            parameters.insert("repetition".to_owned(), repetition.to_string());
        }
        Point {
            link: link.clone(),
            measure: filled,
            parameters,
            bytes: measure
                .bytes
                .or_else(|| self.unit(measure.lun).map(|unit| unit.size))
                .map_or(0, |Size(bytes)| bytes),
            limit: Duration::from_secs(measure.limit.unwrap_or(self.limit)),
            ..Point::of(Measure::of(Who::Program))
        }
    }

    fn flows_point(&self, link: &LinkConditions, flows: &Flows) -> Point {
        let words =
            [("flows", flows.name.clone()), ("direction", flows.direction.name().to_owned())];
        Point {
            link: link.clone(),
            measure: Measure { direction: flows.direction, ..Measure::of(flows.who) },
            parameters: words.map(|(name, value)| (name.to_owned(), value)).into(),
            bytes: flows.bytes.0,
            limit: Duration::from_secs(flows.seconds),
            flows: Some(flows.clone()),
            ..Point::of(Measure::of(flows.who))
        }
    }

    fn mirror_point(&self, link: &LinkConditions, mirror: &Mirror) -> Point {
        let load = mirror.load.as_ref().map_or_else(|| "none".to_owned(), Load::words);
        let granularity = mirror.granularity.unwrap_or(QEMU_GRANULARITY).to_string();
        let words = [("mirror", load), ("granularity", granularity)];
        let args = (!mirror.args.is_empty()).then(|| ("args", mirror.args.join(" ")));
        let words = words.into_iter().chain(args);
        Point {
            link: link.clone(),
            measure: Measure {
                label: Some(mirror.through.name().to_owned()),
                lun: mirror.lun,
                ..Measure::of(Who::Program)
            },
            parameters: words.map(|(name, value)| (name.to_owned(), value)).collect(),
            bytes: self.unit(mirror.lun).map_or(0, |unit| unit.size.0),
            limit: Duration::from_secs(mirror.limit.unwrap_or(self.limit)),
            mirror: Some(mirror.clone()),
            ..Point::of(Measure::of(Who::Program))
        }
    }

    fn failover_point(
        &self,
        link: &LinkConditions,
        failover: &Failover,
        run: FailoverRun,
    ) -> Point {
        let words = [("failover", failover.event.clone()), ("load", run.writes.name().to_owned())];
        Point {
            link: link.clone(),
            measure: Measure {
                label: Some(run.name().to_owned()),
                lun: failover.lun,
                ..Measure::of(Who::Program)
            },
            parameters: words.map(|(name, value)| (name.to_owned(), value)).into(),
            bytes: self.unit(failover.lun).map_or(0, |unit| unit.size.0),
            limit: Duration::from_secs(failover.limit.unwrap_or(self.limit)),
            failover: Some((failover.clone(), run)),
            ..Point::of(Measure::of(Who::Program))
        }
    }

    fn stripe_points(&self, link: &LinkConditions, stripe: &Stripe) -> Vec<Point> {
        let mut points = Vec::new();
        for direction in &stripe.directions {
            for links in &stripe.links {
                for repetition in 1..=stripe.repeat {
                    points.push(self.stripe_point(link, stripe, *direction, *links, repetition));
                }
            }
        }
        points
    }

    fn stripe_point(
        &self,
        link: &LinkConditions,
        stripe: &Stripe,
        direction: Direction,
        links: u8,
        repetition: u32,
    ) -> Point {
        let words = [
            ("links", links.to_string()),
            ("chunk", stripe.chunk.to_string()),
            ("direction", direction.name().to_owned()),
        ];
        let repetition = (stripe.repeat > 1).then(|| ("repetition", repetition.to_string()));
        let args = (!stripe.args.is_empty()).then(|| ("args", stripe.args.join(" ")));
        let words = words.into_iter().chain(repetition).chain(args);
        Point {
            link: link.clone(),
            measure: Measure {
                label: Some(stripe.who.name().to_owned()),
                direction,
                args: stripe.args.clone(),
                ..Measure::of(Who::Program)
            },
            parameters: words.map(|(name, value)| (name.to_owned(), value)).collect(),
            bytes: stripe.bytes.0 * u64::from(links),
            limit: Duration::from_secs(stripe.limit.unwrap_or(self.limit)),
            stripe: Some(Striped { who: stripe.who, links, chunk: stripe.chunk.0 }),
            ..Point::of(Measure::of(Who::Program))
        }
    }

    fn fault_point(&self, link: &LinkConditions, fault: &Fault, run: &FaultRun) -> Point {
        let verify = (run.job == FaultJob::Verify).then(|| "--verify".to_owned());
        let words = [
            ("fault", fault.name()),
            ("job", run.job.name().to_owned()),
            ("over", run.over.words().to_owned()),
        ];
        Point {
            link: link.clone(),
            measure: Measure {
                args: run.over.args().map(str::to_owned).into_iter().chain(verify).collect(),
                direction: run.job.direction(),
                lun: fault.lun,
                ..Measure::of(Who::BlockCopy)
            },
            parameters: words.map(|(name, value)| (name.to_owned(), value)).into(),
            bytes: self.unit(fault.lun).map_or(0, |unit| unit.size.0),
            limit: Duration::from_secs(fault.limit.unwrap_or(self.limit)),
            ordeal: Some(Ordeal {
                what: fault.what,
                lasts: fault.seconds.map(Duration::from_secs),
                patience: fault.patience,
                job: run.job,
                error: run.error.clone(),
            }),
            ..Point::of(Measure::of(Who::BlockCopy))
        }
    }
}

impl Point {
    /// Returns a measurement over a link without delay, without bytes to move.
    fn of(measure: Measure) -> Self {
        Self {
            link: LinkConditions::default(),
            measure,
            parameters: BTreeMap::new(),
            bytes: 0,
            limit: Duration::ZERO,
            ordeal: None,
            flows: None,
            mirror: None,
            failover: None,
            stripe: None,
        }
    }
}

impl Measure {
    /// Returns a measurement with the default settings.
    fn of(who: Who) -> Self {
        Self {
            who,
            label: None,
            bytes: None,
            seconds: None,
            lun: 0,
            direction: Direction::Write,
            source: Source::Random,
            args: Vec::new(),
            program: Vec::new(),
            parameters: BTreeMap::new(),
            vary: BTreeMap::new(),
            keys: BTreeMap::new(),
            repeat: 1,
            limit: None,
        }
    }
}

impl Links {
    fn combinations(&self) -> Vec<LinkConditions> {
        let rates = all_or_none(&self.rate, |rate| rate.mbit_per_s);
        let losses = all_or_none(&self.loss, |loss| *loss);
        let mut links = Vec::new();
        for rate in &rates {
            for loss in &losses {
                links.extend(self.rtt_ms.iter().map(|rtt| LinkConditions {
                    rtt_ms: *rtt,
                    rate_mbit_per_s: *rate,
                    loss_percent: loss.unwrap_or(0.0),
                }));
            }
        }
        links
    }
}

/// Returns the values of a list, or a single `None` if it is empty.
fn all_or_none<T>(list: &[T], value: impl Fn(&T) -> f64) -> Vec<Option<f64>> {
    if list.is_empty() { vec![None] } else { list.iter().map(|item| Some(value(item))).collect() }
}

type Values = BTreeMap<String, String>;

/// Returns all combinations of one value from each list.
fn combinations(vary: &BTreeMap<String, Vec<String>>) -> Vec<Values> {
    let mut all = vec![Values::new()];
    for (name, values) in vary {
        all = all.iter().flat_map(|chosen| values.iter().map(|v| with(chosen, name, v))).collect();
    }
    all
}

fn with(values: &Values, name: &str, value: &str) -> Values {
    let mut values = values.clone();
    values.insert(name.to_owned(), value.to_owned());
    values
}

/// Replaces names in braces by their values.
fn fill(measure: &Measure, values: &Values) -> Measure {
    let put = |word: &String| {
        values
            .iter()
            .fold(word.clone(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
    };
    Measure {
        args: measure.args.iter().map(put).collect(),
        program: measure.program.iter().map(put).collect(),
        keys: measure.keys.iter().map(|(key, value)| (key.clone(), put(value))).collect(),
        ..measure.clone()
    }
}
