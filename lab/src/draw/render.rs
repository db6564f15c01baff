//! Draws line charts, with a name at the end of each line.

use super::axis::Position;
use super::chart::{Chart, Line, Point};
use super::frame::{Frame, HEIGHT, WIDTH};
use super::spread::spread;
use super::style::{self, Style};
use super::svg::{At, Svg};

/// A name at the right of the chart, and the point that it belongs to.
struct Label<'a> {
    name: &'a str,
    anchor: At,
    style: Style,
    /// Whether the name belongs to a line and not to a level to compare with.
    is_line: bool,
}

impl Chart {
    /// Draws the chart.
    pub(super) fn svg(&self) -> String {
        let frame = Frame::of(self);
        let mut svg = Svg::new(WIDTH, HEIGHT);
        self.titles(&mut svg, &frame);
        self.vertical_axis(&mut svg, &frame);
        self.horizontal_axis(&mut svg, &frame);
        self.comparisons(&mut svg, &frame);
        // Emphasized lines are drawn last, over the others.
        for bold in [false, true] {
            let lines = self.lines.iter().enumerate().filter(|(_, line)| line.bold == bold);
            lines.for_each(|(index, line)| self.line(&mut svg, &frame, index, line));
        }
        self.labels(&mut svg, &frame);
        svg.finish(&format!("{}. {}", self.title, self.subtitle))
    }

    /// Returns whether there are too many points for marks of full size.
    fn dense(&self) -> bool {
        self.lines.len() > 2 && self.lines.iter().any(|line| line.points.len() > 10)
    }

    fn titles(&self, svg: &mut Svg, frame: &Frame) {
        svg.text((20.0, 30.0), &self.title, style::TITLE);
        svg.text((20.0, 51.0), &self.subtitle, style::SUBTITLE);
        svg.text((WIDTH - 16.0, HEIGHT - 12.0), &self.caption, style::CAPTION);
        svg.text((20.0, 77.0), &self.y_title, style::AXIS);
        let middle = f64::midpoint(frame.left, frame.right);
        svg.text((middle, frame.bottom + 42.0), &self.x.title, style::AXIS_MIDDLE);
    }

    fn vertical_axis(&self, svg: &mut Svg, frame: &Frame) {
        for tick in self.y().ticks() {
            let y = frame.y(tick);
            let attributes = if tick == 0.0 { style::BASE } else { style::GRID };
            svg.line((frame.left, y), (frame.right, y), attributes);
            svg.text((frame.left - 8.0, y + 4.0), &super::text::plain(tick), style::TICK_END);
        }
    }

    fn horizontal_axis(&self, svg: &mut Svg, frame: &Frame) {
        let ticks = self.x.scale.ticks().into_iter();
        let ticks = ticks.map(|tick| (Position::At(tick), (self.x.text)(tick)));
        let before = self.x.before.map(|text| (Position::Before, text.to_owned()));
        let after = self.x.after.map(|text| (Position::After, text.to_owned()));
        for (position, text) in ticks.chain(before).chain(after) {
            let x = frame.x(position);
            svg.line((x, frame.top), (x, frame.bottom), style::GRID);
            svg.text((x, frame.bottom + 19.0), &text, style::TICK_MIDDLE);
        }
    }

    fn comparisons(&self, svg: &mut Svg, frame: &Frame) {
        for (_, level) in &self.levels {
            let y = frame.y(*level);
            svg.line((frame.left, y), (frame.right, y), style::LEVEL);
        }
        for (name, value) in &self.marks {
            let x = frame.x(Position::At(*value));
            svg.line((x, frame.top), (x, frame.bottom), style::MARK);
            // Keeps the name inside the chart if the mark is near an edge of the plot.
            let middle = x.clamp(frame.left + 70.0, frame.right - 70.0);
            svg.text((middle, frame.top - 6.0), name, style::MARK_NAME);
        }
    }

    fn line(&self, svg: &mut Svg, frame: &Frame, index: usize, line: &Line) {
        let style = Style::line(index, line.bold);
        let size = if self.dense() { 0.75 } else { 1.0 };
        for pair in line.points.windows(2).filter(|pair| !pair[1].is_level()) {
            let [a, b] = [pair[0], pair[1]];
            let sure = a.y.is_some() && b.y.is_some() && a.position != Position::Before;
            svg.line(self.at(frame, index, a), self.at(frame, index, b), &style.stroke(sure));
        }
        for point in &line.points {
            let (x, y) = self.at(frame, index, *point);
            if point.is_level() && point.y.is_some() {
                svg.line((frame.left, y), (x, y), &style.dashes());
            }
            match point.y {
                Some(_) => style.marker(svg, (x, y), size),
                None => style.cross(svg, (x, y)),
            }
        }
    }

    /// Returns the position of a line's point. A point without a value is moved beside those of earlier lines
    /// at the same place.
    fn at(&self, frame: &Frame, index: usize, point: Point) -> At {
        let x = frame.x(point.position);
        let Some(y) = point.y else {
            let others = self.lines.iter().take(index).filter(|line| line.points.contains(&point));
            return (x - 12.0 * others.count() as f64, frame.y(0.0));
        };
        (x, frame.y(y))
    }

    /// Draws the names at the right, without overlaps, each connected to the end of its line.
    fn labels(&self, svg: &mut Svg, frame: &Frame) {
        let levels = self.levels.iter().map(|(name, y)| Label {
            name,
            anchor: (frame.right, frame.y(*y)),
            style: Style::level(),
            is_line: false,
        });
        let lines = self.lines.iter().enumerate().filter_map(|(index, line)| {
            let anchor = self.at(frame, index, *line.points.last()?);
            let style = Style::line(index, line.bold);
            Some(Label { name: &line.name, anchor, style, is_line: true })
        });
        let labels: Vec<_> = levels.chain(lines).collect();
        let wanted: Vec<_> = labels.iter().map(|label| label.anchor.1).collect();
        for (label, y) in labels.iter().zip(spread(&wanted, 17.0, frame.top, frame.bottom)) {
            label.draw(svg, frame, y);
        }
    }
}

impl Label<'_> {
    fn draw(&self, svg: &mut Svg, frame: &Frame, y: f64) {
        let end = frame.right + 30.0;
        let bend = (frame.right + 8.0, self.anchor.1);
        svg.path(&[self.anchor, bend, (end - 6.0, y), (end, y)], false, &self.style.leader());
        if self.is_line {
            // With many lines, colours repeat, but the combination of colour and mark is unique. So the name
            // has the mark too.
            self.style.marker(svg, (end, y), 0.9);
        }
        svg.text((end + 8.0, y + 4.5), self.name, self.style.name());
    }
}
