//! Colours, strokes and marks.

use super::svg::{At, Svg};

pub(super) const TITLE: &str = r##"font-size="18" font-weight="600" fill="#1a1a1a""##;
pub(super) const SUBTITLE: &str = r##"font-size="13.5" fill="#555555""##;
pub(super) const CAPTION: &str = r##"font-size="11" fill="#767676" text-anchor="end""##;
pub(super) const AXIS: &str = r##"font-size="12.5" fill="#333333""##;
pub(super) const AXIS_MIDDLE: &str = r##"font-size="12.5" fill="#333333" text-anchor="middle""##;
pub(super) const TICK_END: &str = r##"font-size="12" fill="#555555" text-anchor="end""##;
pub(super) const TICK_MIDDLE: &str = r##"font-size="12" fill="#555555" text-anchor="middle""##;
pub(super) const GRID: &str = r##"stroke="#e8e8e8" stroke-width="1""##;
pub(super) const BASE: &str = r##"stroke="#8a8a8a" stroke-width="1.2""##;
pub(super) const LEVEL: &str = r##"stroke="#8a8a8a" stroke-width="1.2""##;
pub(super) const MARK: &str = r##"stroke="#555555" stroke-width="1.3" stroke-dasharray="2 3""##;
pub(super) const MARK_NAME: &str = r##"font-size="12" fill="#333333" text-anchor="middle""##;

pub(super) const VALUE: &str = r##"font-size="11" fill="#555555""##;

/// Colours that are distinct for all kinds of colour vision (Okabe and Ito), without the yellow, which is
/// invisible on white.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#000000"];

/// Returns whether a program is this project's own, which is emphasized.
pub(super) fn is_ours(who: &str) -> bool {
    matches!(who, "block-copy" | "block-serve")
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    colour: &'static str,
    mark: Mark,
    bold: bool,
}

/// The shape at each point. It distinguishes lines without their colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mark {
    Circle,
    Square,
    Diamond,
    Triangle,
    TriangleDown,
}

impl Style {
    /// Returns the style of the line with this index.
    pub(super) fn line(index: usize, bold: bool) -> Self {
        let marks = [Mark::Circle, Mark::Square, Mark::Diamond, Mark::Triangle, Mark::TriangleDown];
        // Seven colours and five marks repeat together only after 35 lines.
        Self { colour: COLOURS[index % COLOURS.len()], mark: marks[index % marks.len()], bold }
    }

    /// Returns the style of a level to compare with.
    pub(super) fn level() -> Self {
        Self { colour: "#8a8a8a", mark: Mark::Circle, bold: false }
    }

    /// Returns a stroke between two points, dotted if it only guides the eye.
    pub(super) fn stroke(self, sure: bool) -> String {
        let width = if self.bold { 3.6 } else { 1.9 };
        let dots = if sure { "" } else { r#" stroke-dasharray="1.5 4""# };
        format!(r#"stroke="{}" stroke-width="{width}" stroke-linecap="round"{dots}"#, self.colour)
    }

    /// Returns the fill of an area.
    pub(super) fn fill(self) -> String {
        format!(r#"fill="{}""#, self.colour)
    }

    /// Returns the stroke of a level that belongs to a line.
    pub(super) fn dashes(self) -> String {
        format!(r#"stroke="{}" stroke-width="1.6" stroke-dasharray="7 4""#, self.colour)
    }

    /// Returns the stroke from a line's end to its name.
    pub(super) fn leader(self) -> String {
        format!(r#"stroke="{}" stroke-width="1.1" fill="none" opacity="0.75""#, self.colour)
    }

    /// Returns the style of the text at a line's end.
    pub(super) fn name(self) -> &'static str {
        if self.bold {
            r##"font-size="13.5" font-weight="700" fill="#1a1a1a""##
        } else {
            r##"font-size="13" fill="#333333""##
        }
    }

    /// Draws the mark of a point, `times` its usual size.
    pub(super) fn marker(self, svg: &mut Svg, (x, y): At, times: f64) {
        let size = times * if self.bold { 5.0 } else { 3.9 };
        let fill = format!(r##"fill="{}" stroke="#ffffff" stroke-width="1.2""##, self.colour);
        let corner = |dx: f64, dy: f64| (x + dx * size, y + dy * size);
        let corners: &[(f64, f64)] = match self.mark {
            Mark::Circle => return svg.circle((x, y), size, &fill),
            Mark::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Mark::Diamond => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            Mark::Triangle => &[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
            Mark::TriangleDown => &[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
        };
        let corners: Vec<_> = corners.iter().map(|(dx, dy)| corner(*dx, *dy)).collect();
        svg.path(&corners, true, &fill);
    }

    /// Draws the mark of a measurement without a result.
    pub(super) fn cross(self, svg: &mut Svg, (x, y): At) {
        let stroke = format!(r#"stroke="{}" stroke-width="2.2""#, self.colour);
        svg.line((x - 4.5, y - 4.5), (x + 4.5, y + 4.5), &stroke);
        svg.line((x - 4.5, y + 4.5), (x + 4.5, y - 4.5), &stroke);
    }
}
