//! Draws charts of horizontal bars: rows with a bar for each series.

use super::frame::WIDTH;
use super::style::{self, Style};
use super::svg::Svg;
use super::text;

use super::axis::Scale;

/// A chart of bars, independent of its size.
#[derive(Clone, Debug)]
pub(super) struct Bars {
    /// Title, in bold.
    pub(super) title: String,
    /// Conditions, below the title.
    pub(super) subtitle: String,
    /// Origin of the data, small, in the corner.
    pub(super) caption: String,
    /// Title of the axis, with the unit.
    pub(super) x_title: String,
    /// Names of the bars in each row.
    pub(super) series: Vec<String>,
    /// Meaning of the mark in a row, if any row has one.
    pub(super) mark: String,
    /// Rows, from top to bottom.
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Text at the left.
    pub(super) name: String,
    /// A bar for each series.
    pub(super) bars: Vec<Bar>,
    /// Value to compare the bars with.
    pub(super) mark: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bar {
    /// The bar has no measurement.
    None,
    /// The measured value.
    Good(f64),
    /// A failed measurement, with or without a value.
    Failed(Option<f64>),
}

const BAR: f64 = 13.0;
const BETWEEN: f64 = 12.0;
const TOP: f64 = 98.0;
const LEFT: f64 = 250.0;
/// Leaves room for a value to the right of the longest bar.
const RIGHT: f64 = WIDTH - 96.0;
const BELOW: f64 = 74.0;

impl Bars {
    /// Draws the chart.
    pub(super) fn svg(&self) -> String {
        let row_height = BAR * self.series.len() as f64 + BETWEEN;
        let bottom = TOP + row_height * self.rows.len() as f64;
        let mut svg = Svg::new(WIDTH, bottom + BELOW);
        svg.text((20.0, 30.0), &self.title, style::TITLE);
        svg.text((20.0, 51.0), &self.subtitle, style::SUBTITLE);
        svg.text((WIDTH - 16.0, bottom + BELOW - 12.0), &self.caption, style::CAPTION);
        self.names(&mut svg);
        self.axis(&mut svg, bottom);
        for (index, row) in self.rows.iter().enumerate() {
            self.row(&mut svg, row, TOP + row_height * index as f64, row_height);
        }
        svg.finish(&format!("{}. {}", self.title, self.subtitle))
    }

    /// Draws the legend: a line above the plot with the colours of the series.
    fn names(&self, svg: &mut Svg) {
        let mut x = LEFT;
        for (index, name) in self.series.iter().enumerate() {
            let style = Style::line(index, false);
            svg.rectangle((x, 67.0), (13.0, 13.0), &style.fill());
            svg.text((x + 19.0, 78.0), name, style::AXIS);
            x += 44.0 + 7.3 * name.chars().count() as f64;
        }
        if self.rows.iter().any(|row| row.mark.is_some()) {
            svg.line((x, 66.0), (x, 81.0), style::MARK);
            svg.text((x + 8.0, 78.0), &self.mark, style::AXIS);
        }
    }

    fn scale(&self) -> Scale {
        let values = self.rows.iter().flat_map(|row| {
            let bars = row.bars.iter().filter_map(|bar| bar.value());
            bars.chain(row.mark)
        });
        Scale::Linear { from: 0.0, to: values.fold(1.0, f64::max) }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.scale().share(value) * (RIGHT - LEFT)
    }

    fn axis(&self, svg: &mut Svg, bottom: f64) {
        for tick in self.scale().ticks() {
            let x = self.x(tick);
            let attributes = if tick == 0.0 { style::BASE } else { style::GRID };
            svg.line((x, TOP - 6.0), (x, bottom), attributes);
            svg.text((x, bottom + 17.0), &text::plain(tick), style::TICK_MIDDLE);
        }
        svg.text((f64::midpoint(LEFT, RIGHT), bottom + 38.0), &self.x_title, style::AXIS_MIDDLE);
    }

    fn row(&self, svg: &mut Svg, row: &Row, top: f64, height: f64) {
        let plot = height - BETWEEN;
        svg.text((LEFT - 10.0, top + plot / 2.0 + 4.5), &row.name, style::TICK_END);
        for (index, bar) in row.bars.iter().enumerate() {
            let (style, y) = (Style::line(index, false), top + BAR * index as f64);
            let end = bar.value().map_or(LEFT, |value| self.x(value));
            svg.rectangle((LEFT, y + 1.0), (end - LEFT, BAR - 2.0), &style.fill());
            if matches!(bar, Bar::Failed(_)) {
                style.cross(svg, (end + 9.0, y + BAR / 2.0));
            }
            if let Some(told) = bar.words() {
                let behind = if matches!(bar, Bar::Failed(_)) { 20.0 } else { 6.0 };
                svg.text((end + behind, y + BAR - 2.5), &told, style::VALUE);
            }
        }
        if let Some(mark) = row.mark {
            let x = self.x(mark);
            svg.line((x, top - 3.0), (x, top + plot + 3.0), style::MARK);
        }
    }
}

impl Bar {
    fn value(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Good(value) => Some(value),
            Self::Failed(value) => value,
        }
    }

    fn words(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Good(value) => Some(text::seconds(value)),
            Self::Failed(Some(value)) => Some(format!("{}, failed", text::seconds(value))),
            Self::Failed(None) => Some("failed".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_is_as_long_as_its_value() {
        let bars = Bars {
            title: "Seconds".to_owned(),
            subtitle: String::new(),
            caption: String::new(),
            x_title: "s".to_owned(),
            series: vec!["ours".to_owned(), "theirs".to_owned()],
            mark: "least".to_owned(),
            rows: vec![Row {
                name: "one <event>".to_owned(),
                bars: vec![Bar::Good(5.0), Bar::Failed(Some(10.0))],
                mark: Some(2.0),
            }],
        };
        let svg = bars.svg();
        let half = (RIGHT - LEFT) / 2.0;
        assert!(svg.contains(&format!("width=\"{half}\" height=\"11\"")), "{svg}");
        assert!(svg.contains(&format!("width=\"{}\" height=\"11\"", RIGHT - LEFT)), "{svg}");
        assert!(svg.contains(">5.00<") && svg.contains(">10.0, failed<"), "{svg}");
        assert!(svg.contains("one &lt;event&gt;") && svg.contains(">least<"), "{svg}");
    }
}
