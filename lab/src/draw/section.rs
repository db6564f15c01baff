//! Compares programs over the same link: by round-trip time, or by loss if there is only one round-trip time.

use super::axis::{Axis, Position, Scale};
use super::cell::{Cell, Quantity};
use super::chart::{Chart, Line, Point};
use super::group::{ascending, direction, group, parameters_but};
use super::names;
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use crate::result::{Figure, LinkConditions};

/// This project's program, which is emphasized.
const OURS: &str = "block-copy";

const CARRIED: &str = "Over the link the way the data goes, MiB with all headers:";

/// Several series of cells that differ by one property of the link.
#[derive(Clone, Debug)]
struct Section {
    slug: String,
    heading: String,
    conditions: String,
    /// The program, if all series are of one program. Their names do not include it then.
    program: Option<String>,
    along: Along,
    /// Values of the property `along`, ascending.
    values: Vec<f64>,
    rate_mbit_per_s: Option<f64>,
    series: Vec<Series>,
}

/// The property of the link by which a section compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Along {
    Rtt,
    Loss,
}

/// The cells of one program with the same parameters, one cell for each value.
#[derive(Clone, Debug)]
struct Series {
    name: String,
    /// Whether the series is of this project and other series are not, so that it is emphasized.
    ours: bool,
    cells: Vec<Option<Cell>>,
}

/// Returns the parts of a page about figures that compare programs over the same link.
pub(super) fn parts(figures: &[&Figure], source: &Source) -> Vec<Part> {
    let flows = group(figures, |figure| (direction(figure), figure.link.rate_mbit_per_s));
    let sections = flows.into_iter().flat_map(|((direction, _), figures)| {
        cuts(&figures).into_iter().map(move |(along, cut)| Section::of(direction, along, &cut))
    });
    sections.flatten().map(|section| section.part(source)).collect()
}

/// Divides the figures into sections: one by loss if there is one round-trip time and more than one loss.
/// Otherwise one by round-trip time for each loss.
fn cuts<'a>(figures: &[&'a Figure]) -> Vec<(Along, Vec<&'a Figure>)> {
    let count = |along: Along| ascending(figures.iter().map(|figure| along.of(&figure.link))).len();
    if count(Along::Rtt) == 1 && count(Along::Loss) > 1 {
        return vec![(Along::Loss, figures.to_vec())];
    }
    let by_loss = group(figures, |figure| figure.link.loss_percent);
    by_loss.into_iter().map(|(_, figures)| (Along::Rtt, figures)).collect()
}

impl Along {
    fn of(self, link: &LinkConditions) -> f64 {
        match self {
            Self::Rtt => link.rtt_ms,
            Self::Loss => link.loss_percent,
        }
    }

    fn column(self, value: f64) -> String {
        match self {
            Self::Rtt => format!("{} ms", text::plain(value)),
            Self::Loss => format!("{} %", text::plain(value)),
        }
    }

    /// Returns the name of the property in file names of charts.
    fn slug(self) -> &'static str {
        match self {
            Self::Rtt => "rtt",
            Self::Loss => "loss",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Rtt => "round-trip time",
            Self::Loss => "loss",
        }
    }

    fn position(self, value: f64) -> Position {
        if self == Self::Loss && value <= 0.0 { Position::Before } else { Position::At(value) }
    }

    fn axis(self, values: &[f64]) -> Axis {
        let above_zero = values.iter().copied().find(|value| *value > 0.0).unwrap_or(1.0);
        let last = values.last().copied().unwrap_or(1.0);
        let (title, scale, before) = match self {
            Self::Rtt => ("Round-trip time, ms", Scale::Linear { from: 0.0, to: last }, None),
            Self::Loss => (
                "Packets lost each way, %",
                Scale::Log { from: above_zero, to: last, base: 10.0 },
                values.contains(&0.0).then_some("0"),
            ),
        };
        Axis { title: title.into(), scale, text: text::plain, before, after: None }
    }
}

impl Section {
    /// Returns the section of figures of one direction and one rate; `None` without figures.
    fn of(direction: &str, along: Along, figures: &[&Figure]) -> Option<Self> {
        let link = &figures.first()?.link;
        let values = ascending(figures.iter().map(|figure| along.of(&figure.link)));
        let groups =
            group(figures, |figure| (figure.who.clone(), parameters_but(figure, &["direction"])));
        let (keys, members): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let series = names::names(&keys).into_iter().zip(members);
        let fixed = match along {
            Along::Rtt => LinkConditions { rtt_ms: 0.0, ..link.clone() },
            Along::Loss => LinkConditions { loss_percent: 0.0, ..link.clone() },
        };
        let words = match along {
            Along::Rtt => names::loss(link.loss_percent),
            Along::Loss => format!("RTT {} ms", text::plain(link.rtt_ms)),
        };
        Some(Self {
            slug: [direction, &names::link_slug(&fixed), "by", along.slug()].join(" "),
            heading: format!("{}, {words}", names::flow(direction, link.rate_mbit_per_s)),
            conditions: names::conditions(&keys, figures),
            program: names::sole_program(&keys).map(String::from),
            series: in_order(
                series.map(|(name, own)| Series::of(name, along, &values, &own)).collect(),
            ),
            along,
            values,
            rate_mbit_per_s: link.rate_mbit_per_s,
        })
    }

    fn part(&self, source: &Source) -> Part {
        let mut part = Part::new(&self.heading);
        part.paragraph(&format!("{}.", self.conditions));
        if let Some(chart) = self.chart(source) {
            part.chart(source, &self.slug, &chart);
        }
        if self.has(Quantity::Allocated) {
            self.of_holes(&mut part);
            return part;
        }
        part.paragraph(&format!("Goodput, Mbit/s{}:", names::repetitions(self.runs())));
        part.table(&self.table(Quantity::Goodput));
        if self.has(Quantity::Steady) {
            part.paragraph("Steady, Mbit/s: the same from the fifth second on.");
            part.table(&self.table(Quantity::Steady));
        }
        if self.has(Quantity::Start) {
            part.paragraph("Start, s: what the whole took beyond its bytes at the link's rate.");
            part.table(&self.table(Quantity::Start));
        }
        if self.has(Quantity::Carried) {
            part.paragraph(CARRIED);
            part.table(&self.table(Quantity::Carried));
        }
        part
    }

    /// Adds the tables of copies of an image with holes. They show times but no rates: holes may be skipped,
    /// so a rate cannot be compared with the link.
    fn of_holes(&self, part: &mut Part) {
        part.paragraph(&format!("The whole, s{}:", names::repetitions(self.runs())));
        part.table(&self.table(Quantity::Whole));
        part.paragraph(CARRIED);
        part.table(&self.table(Quantity::Carried));
        part.paragraph("What the unit takes afterwards, MiB:");
        part.table(&self.table(Quantity::Allocated));
    }

    fn table(&self, quantity: Quantity) -> Table {
        let corner = match self.along {
            Along::Rtt => "RTT",
            Along::Loss => "Loss",
        };
        let columns = self.values.iter().map(|value| self.along.column(*value)).collect();
        let mut table = Table::new(corner, columns);
        // A quantity that a program never reports needs no row. But each program has a row in the table of
        // goodput.
        let told = |series: &&Series| quantity == Quantity::Goodput || series.has(quantity);
        for series in self.series.iter().filter(told) {
            let cells = series.cells.iter().map(|cell| table.cell(cell.as_ref(), quantity));
            let cells = cells.collect();
            table.row(&series.name, series.ours, cells);
        }
        table
    }

    /// Returns the chart of goodput; `None` if there is at most one value along its axis.
    fn chart(&self, source: &Source) -> Option<Chart> {
        let lines = self.series.iter().map(|series| series.line(self));
        let lines: Vec<_> = lines.filter(|line| !line.points.is_empty()).collect();
        let nothing = lines.iter().flat_map(|line| &line.points).any(|point| point.y.is_none());
        let cross = if nothing { "; ×: nothing arrived in time" } else { "" };
        let by = self.along.words();
        let of = self.program.as_ref().map(|who| format!(" of {who}")).unwrap_or_default();
        let repetitions = names::repetitions(self.runs());
        let drawn = !self.has(Quantity::Allocated) && self.values.len() > 1 && !lines.is_empty();
        drawn.then(|| Chart {
            title: self.heading.clone(),
            subtitle: format!("Goodput{of} by {by}{repetitions}{cross}"),
            caption: source.caption.clone(),
            x: self.along.axis(&self.values),
            y_title: "Goodput, Mbit/s".into(),
            from_zero: true,
            lines,
            levels: names::link_rate(self.rate_mbit_per_s),
            marks: Vec::new(),
        })
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.series.iter().flat_map(|series| &series.cells).flatten()
    }

    fn has(&self, quantity: Quantity) -> bool {
        self.series.iter().any(|series| series.has(quantity))
    }

    fn runs(&self) -> usize {
        self.cells().map(|cell| cell.runs).max().unwrap_or(0)
    }
}

impl Series {
    fn of(name: String, along: Along, values: &[f64], figures: &[&Figure]) -> Self {
        let cell = |value: &f64| {
            let here = figures.iter().filter(|figure| along.of(&figure.link) == *value);
            Cell::of(&here.copied().collect::<Vec<_>>())
        };
        let ours = figures.first().is_some_and(|figure| figure.who == OURS);
        Self { name, ours, cells: values.iter().map(cell).collect() }
    }

    fn has(&self, quantity: Quantity) -> bool {
        self.cells.iter().flatten().any(|cell| cell.median(quantity).is_some())
    }

    fn line(&self, section: &Section) -> Line {
        let cells = section.values.iter().zip(&self.cells);
        let point = |(value, cell): (&f64, &Option<Cell>)| {
            let position = section.along.position(*value);
            cell.as_ref().and_then(|cell| cell.point(position))
        };
        Line { name: self.name.clone(), bold: self.ours, points: cells.filter_map(point).collect() }
    }
}

/// Sorts the series, this project's first, so that they have the same colour everywhere. If all series are of
/// this project, none is emphasized.
fn in_order(mut series: Vec<Series>) -> Vec<Series> {
    let alone = series.iter().all(|series| series.ours);
    series.iter_mut().for_each(|series| series.ours &= !alone);
    series.sort_by_key(|series| !series.ours);
    series
}

impl Cell {
    /// Returns the point of the goodput; `None` if the cell has nothing to show.
    pub(super) fn point(&self, position: Position) -> Option<Point> {
        (self.goodput.is_some() || self.timed_out()).then_some(Point { position, y: self.goodput })
    }
}
