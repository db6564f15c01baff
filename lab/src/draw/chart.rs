//! The parts of a line chart.

use super::axis::{Axis, Position, Scale};

/// A line chart, independent of its size.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Title, in bold.
    pub(super) title: String,
    /// Conditions, below the title.
    pub(super) subtitle: String,
    /// Origin of the data, small, in the corner.
    pub(super) caption: String,
    /// The horizontal axis.
    pub(super) x: Axis,
    /// Title of the vertical axis, with the unit.
    pub(super) y_title: String,
    /// Whether the vertical axis begins at zero instead of slightly below the lowest point.
    pub(super) from_zero: bool,
    /// The lines, in the order of their colours.
    pub(super) lines: Vec<Line>,
    /// Horizontal lines to compare with: a name and a value of the vertical axis.
    pub(super) levels: Vec<(String, f64)>,
    /// Vertical lines to compare with: a name and a value of the horizontal axis.
    pub(super) marks: Vec<(String, f64)>,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Text at the end of the line.
    pub(super) name: String,
    /// Whether the line is emphasized.
    pub(super) bold: bool,
    /// Points from left to right. A point in the slot right of the scale is drawn as a level.
    pub(super) points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Horizontal position.
    pub(super) position: Position,
    /// Value on the vertical axis; `None` if it was measured and no bytes arrived.
    pub(super) y: Option<f64>,
}

impl Chart {
    /// Returns the scale of the vertical axis, with a margin beyond the points.
    pub(super) fn y(&self) -> Scale {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let heights = points.filter_map(|point| point.y);
        let all: Vec<_> = heights.chain(self.levels.iter().map(|(_, y)| *y)).collect();
        let highest = all.iter().copied().fold(0.0, f64::max);
        let lowest = all.iter().copied().fold(highest, f64::min);
        if self.from_zero {
            return Scale::Linear {
                from: 0.0,
                to: if highest > 0.0 { highest * 1.06 } else { 1.0 },
            };
        }
        let air = ((highest - lowest) * 0.15).max(0.05);
        Scale::Linear { from: (lowest - air).max(0.0), to: highest + air }
    }
}

impl Point {
    /// Returns whether the point is in the slot right of the scale, and so is drawn as a level.
    pub(super) fn is_level(self) -> bool {
        self.position == Position::After
    }
}
