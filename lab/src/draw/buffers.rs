//! Draws tables and charts by size of the send buffer and by round-trip time, for each variant of sending.

use std::collections::BTreeMap;

use super::axis::{Axis, Position, Scale};
use super::cell::{Cell, Quantity};
use super::chart::{Chart, Line, Point};
use super::group::{ascending, direction, group, parameter, parameters_but};
use super::names;
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use crate::result::{Figure, LinkConditions};

/// A buffer counts as large enough if it has at least this share of the best buffer's goodput.
const ENOUGH: f64 = 0.98;
/// Name of the program's own tuner.
const TUNED: &str = "tuned";

/// All figures of one program over links that differ only by their round-trip time.
#[derive(Clone, Debug)]
struct Grid {
    slug: String,
    heading: String,
    conditions: String,
    rate_mbit_per_s: Option<f64>,
    panels: Vec<Panel>,
}

/// The figures at one round-trip time.
#[derive(Clone, Debug)]
struct Panel {
    rtt_ms: f64,
    /// Bandwidth-delay product, bytes: the window that fills the link.
    product_bytes: Option<f64>,
    /// Settings of the send buffer, ascending, with automatic tuning last.
    buffers: Vec<Buffer>,
    variants: Vec<Variant>,
    /// The result of the program's own tuner.
    tuned: Option<Cell>,
}

/// The cells of one variant, one for each buffer.
#[derive(Clone, Debug)]
struct Variant {
    name: String,
    cells: Vec<(Buffer, Option<Cell>)>,
}

/// Setting of the send buffer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Buffer {
    /// A number of bytes.
    Bytes(u32),
    /// Not set: the kernel tunes it.
    Auto,
    /// Set by the program's own tuner, as are all other settings.
    Tuned,
}

/// Returns whether a figure belongs to a grid of variants and send buffers.
pub(super) fn is_grid(figure: &Figure) -> bool {
    figure.parameters.contains_key("variant") && Buffer::of(figure).is_some()
}

/// Returns the parts of a page about grids of variants and send buffers.
pub(super) fn parts(figures: &[&Figure], source: &Source) -> Vec<Part> {
    let grids = group(figures, |figure| {
        let link = LinkConditions { rtt_ms: 0.0, ..figure.link.clone() };
        (figure.who.clone(), link, parameters_but(figure, &["variant", "send_buffer"]))
    });
    let grids = grids.iter().map(|((who, link, others), own)| Grid::of(who, link, others, own));
    grids.map(|grid| grid.part(source)).collect()
}

impl Buffer {
    fn of(figure: &Figure) -> Option<Self> {
        match parameter(figure, "send_buffer")? {
            "auto" => Some(Self::Auto),
            "tuned" => Some(Self::Tuned),
            bytes => bytes.parse().ok().map(Self::Bytes),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Bytes(bytes) => text::bytes(f64::from(bytes)),
            Self::Auto => "auto".into(),
            Self::Tuned => TUNED.into(),
        }
    }

    fn position(self) -> Position {
        match self {
            Self::Bytes(bytes) => Position::At(f64::from(bytes)),
            Self::Auto | Self::Tuned => Position::After,
        }
    }
}

impl Grid {
    fn of(
        who: &str,
        link: &LinkConditions,
        others: &BTreeMap<String, String>,
        own: &[&Figure],
    ) -> Self {
        let flow = names::flow(
            own.first().map_or("write", |figure| direction(figure)),
            link.rate_mbit_per_s,
        );
        let rest: Vec<_> = others.iter().filter(|(name, _)| *name != "direction").collect();
        let rest: String = rest
            .iter()
            .map(|(name, value)| format!(", {} {value}", name.replace('_', " ")))
            .collect();
        let values: Vec<_> = others.values().map(String::as_str).collect();
        let rtts = ascending(own.iter().map(|figure| figure.link.rtt_ms));
        Self {
            slug: format!("{who} {} {}", values.join(" "), names::link_slug(link)),
            heading: format!("{flow}, {}: {who}{rest}", names::loss(link.loss_percent)),
            conditions: format!("Each copy moves {}.", names::sizes(own)),
            rate_mbit_per_s: link.rate_mbit_per_s,
            panels: rtts.into_iter().map(|rtt| Panel::of(rtt, own)).collect(),
        }
    }

    fn part(&self, source: &Source) -> Part {
        let mut part = Part::new(&format!("Send buffers. {}", self.heading));
        part.paragraph(&self.conditions);
        if self.panels.len() > 1 {
            part.chart(source, &format!("{} best", self.slug), &self.summary_chart(source));
        }
        part.paragraph(
            "The best static buffer against autotuning, goodput in Mbit/s; the last column is the \
             smallest buffer that comes within 2 % of the best.",
        );
        part.table(&self.summary());
        for panel in &self.panels {
            let rtt = text::plain(panel.rtt_ms);
            part.chart(source, &format!("{} rtt {rtt}", self.slug), &self.chart(panel, source));
            let (repetitions, tuned) = (panel.repetitions(), panel.tuned_words());
            part.paragraph(&format!("Goodput, Mbit/s, RTT {rtt} ms{repetitions}{tuned}:"));
            part.table(&panel.table());
        }
        part
    }

    fn summary(&self) -> Table {
        let columns =
            ["BDP", "Variant", "Best buffer", "Best", "Autotuning", "Best / auto", "Enough"];
        let mut table = Table::new("RTT", columns.map(String::from).to_vec());
        for panel in &self.panels {
            let rtt = format!("{} ms", text::plain(panel.rtt_ms));
            for variant in &panel.variants {
                table.row(&rtt, false, panel.summary(variant));
            }
            if let Some(tuned) = &panel.tuned {
                let cell = table.cell(Some(tuned), Quantity::Goodput);
                table.row(&rtt, true, panel.tuned_summary(cell));
            }
        }
        table
    }

    fn summary_chart(&self, source: &Source) -> Chart {
        let rtts: Vec<_> = self.panels.iter().map(|panel| panel.rtt_ms).collect();
        let to = rtts.last().copied().unwrap_or(1.0);
        Chart {
            title: "The best static send buffer against autotuning".into(),
            subtitle: self.heading.clone(),
            caption: source.caption.clone(),
            x: Axis {
                title: "Round-trip time, ms".into(),
                scale: Scale::Linear { from: 0.0, to },
                text: text::plain,
                before: None,
                after: None,
            },
            y_title: "Goodput with the best buffer / goodput with autotuning".into(),
            from_zero: false,
            lines: self.variants().into_iter().map(|name| self.ratios(name)).collect(),
            levels: vec![("autotuning".into(), 1.0)],
            marks: Vec::new(),
        }
    }

    fn chart(&self, panel: &Panel, source: &Source) -> Chart {
        let rtt = text::plain(panel.rtt_ms);
        let (scale, near) = panel.scale();
        let name = |product| format!("bandwidth-delay product {}", text::bytes(product));
        let tuned = panel.tuned.as_ref().map(|_| format!(", {TUNED}")).unwrap_or_default();
        let far = panel.product_bytes.filter(|_| near.is_none());
        let far = far.map(|product| format!("; {}", name(product))).unwrap_or_default();
        Chart {
            title: format!("Goodput by send buffer, RTT {rtt} ms"),
            subtitle: format!(
                "{}{}; dashed: autotuning{tuned}{far}",
                self.heading,
                panel.repetitions()
            ),
            caption: source.caption.clone(),
            x: Axis {
                title: "Send buffer".into(),
                scale,
                text: text::bytes,
                before: None,
                after: panel.buffers.contains(&Buffer::Auto).then_some("auto"),
            },
            y_title: "Goodput, Mbit/s".into(),
            from_zero: true,
            lines: panel.variants.iter().map(Variant::line).chain(panel.tuned_line()).collect(),
            levels: names::link_rate(self.rate_mbit_per_s),
            marks: near.into_iter().map(|product| (name(product), product)).collect(),
        }
    }

    /// Returns the names of all variants, in the order of their measurement.
    fn variants(&self) -> Vec<&str> {
        let names = self.panels.iter().flat_map(|panel| &panel.variants);
        let names: Vec<_> = names.map(|variant| variant.name.as_str()).collect();
        group(&names, |name| name).into_iter().map(|(name, _)| name).collect()
    }

    fn ratios(&self, name: &str) -> Line {
        let point = |panel: &Panel| {
            let variant = panel.variants.iter().find(|variant| variant.name == name)?;
            Some(Point { position: Position::At(panel.rtt_ms), y: Some(variant.ratio()?) })
        };
        let points = self.panels.iter().filter_map(point).collect();
        Line { name: name.into(), bold: false, points }
    }
}

impl Panel {
    fn of(rtt_ms: f64, figures: &[&Figure]) -> Self {
        let here = figures.iter().filter(|figure| figure.link.rtt_ms == rtt_ms).copied();
        let (tuned, here): (Vec<_>, Vec<_>) =
            here.partition(|figure| Buffer::of(figure) == Some(Buffer::Tuned));
        let mut buffers: Vec<_> = here.iter().filter_map(|figure| Buffer::of(figure)).collect();
        buffers.sort_unstable();
        buffers.dedup();
        let rate = here.iter().chain(&tuned).next().and_then(|figure| figure.link.rate_mbit_per_s);
        let variants = group(&here, |figure| parameter(figure, "variant").unwrap_or_default());
        let variants =
            variants.into_iter().map(|(name, own)| Variant::of(name, &buffers, &own)).collect();
        // 10^6 bits per second times 10^-3 seconds are 125 bytes.
        let product_bytes = rate.map(|rate| rate * rtt_ms * 125.0);
        Self { rtt_ms, product_bytes, variants, buffers, tuned: Cell::of(&tuned) }
    }

    fn table(&self) -> Table {
        let columns = self.buffers.iter().map(|buffer| buffer.text()).collect();
        let mut table = Table::new("Variant", columns);
        for variant in &self.variants {
            let cells = variant.cells.iter();
            let cells: Vec<_> =
                cells.map(|(_, cell)| table.cell(cell.as_ref(), Quantity::Goodput)).collect();
            table.row(&variant.name, false, cells);
        }
        table
    }

    /// Returns the row of a variant in the table of all round-trip times, without its name.
    fn summary(&self, variant: &Variant) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        vec![
            or_dash(self.product_bytes.map(text::bytes)),
            variant.name.clone(),
            or_dash(variant.best().map(|(buffer, _)| buffer.text())),
            or_dash(variant.best().map(|(_, goodput)| text::rate(goodput))),
            or_dash(variant.auto().map(text::rate)),
            or_dash(variant.ratio().map(|ratio| format!("{ratio:.2}"))),
            or_dash(variant.enough().map(Buffer::text)),
        ]
    }

    /// Returns the row of the program's own tuner in the table of all round-trip times, without its name.
    fn tuned_summary(&self, goodput: String) -> Vec<String> {
        let product = self.product_bytes.map_or_else(|| "-".into(), text::bytes);
        let dash = || "-".to_owned();
        vec![product, TUNED.into(), dash(), goodput, dash(), dash(), dash()]
    }

    /// Returns the result of the program's own tuner as a level.
    fn tuned_line(&self) -> Option<Line> {
        let point = self.tuned.as_ref()?.point(Buffer::Tuned.position())?;
        Some(Line { name: TUNED.into(), bold: true, points: vec![point] })
    }

    fn tuned_words(&self) -> String {
        let tuned = self.tuned.as_ref().map(|cell| cell.text(Quantity::Goodput));
        tuned.map(|goodput| format!("; {TUNED} {goodput}")).unwrap_or_default()
    }

    /// Returns the scale of the buffers, and the bandwidth-delay product if it is of similar size.
    fn scale(&self) -> (Scale, Option<f64>) {
        let sizes = self.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Bytes(bytes) => Some(f64::from((*bytes).max(1))),
            Buffer::Auto | Buffer::Tuned => None,
        });
        let sizes: Vec<_> = sizes.collect();
        let from = sizes.first().copied().unwrap_or(1.0);
        let to = sizes.last().copied().unwrap_or(1.0);
        let near = self.product_bytes.filter(|product| (from / 2.0..=to * 2.0).contains(product));
        let (least, most) = near.map_or((from, to), |near| (from.min(near), to.max(near)));
        (Scale::Log { from: least, to: most, base: 2.0 }, near)
    }

    fn repetitions(&self) -> String {
        let cells = self.variants.iter().flat_map(|variant| &variant.cells);
        let runs = cells.filter_map(|(_, cell)| cell.as_ref()).map(|cell| cell.runs);
        names::repetitions(runs.max().unwrap_or(0))
    }
}

impl Variant {
    fn of(name: &str, buffers: &[Buffer], figures: &[&Figure]) -> Self {
        let cell = |buffer: &Buffer| {
            let here = figures.iter().filter(|figure| Buffer::of(figure) == Some(*buffer));
            (*buffer, Cell::of(&here.copied().collect::<Vec<_>>()))
        };
        Self { name: name.into(), cells: buffers.iter().map(cell).collect() }
    }

    fn line(&self) -> Line {
        let point = |(buffer, cell): &(Buffer, Option<Cell>)| {
            cell.as_ref().and_then(|cell| cell.point(buffer.position()))
        };
        Line {
            name: self.name.clone(),
            bold: false,
            points: self.cells.iter().filter_map(point).collect(),
        }
    }

    /// Returns each static buffer that has a goodput, with its goodput, ascending by buffer.
    fn fixed(&self) -> impl Iterator<Item = (Buffer, f64)> {
        let fixed = self.cells.iter().filter(|(buffer, _)| *buffer != Buffer::Auto);
        fixed.filter_map(|(buffer, cell)| Some((*buffer, cell.as_ref()?.goodput?)))
    }

    /// Returns the static buffer with the highest goodput. If several have it, the smallest one.
    fn best(&self) -> Option<(Buffer, f64)> {
        self.fixed().reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    /// Returns the goodput with automatic tuning.
    fn auto(&self) -> Option<f64> {
        let (_, cell) = self.cells.iter().find(|(buffer, _)| *buffer == Buffer::Auto)?;
        cell.as_ref()?.goodput
    }

    /// Returns the ratio of the best static buffer's goodput to that with automatic tuning.
    fn ratio(&self) -> Option<f64> {
        let (_, best) = self.best()?;
        self.auto().filter(|auto| *auto > 0.0).map(|auto| best / auto)
    }

    /// Returns the smallest static buffer whose goodput is close to the best.
    fn enough(&self) -> Option<Buffer> {
        let (_, best) = self.best()?;
        self.fixed().find(|(_, goodput)| *goodput >= ENOUGH * best).map(|(buffer, _)| buffer)
    }
}
