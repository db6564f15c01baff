//! What a chart shows.

use super::axis::{Axis, Position, Scale};

/// A chart, before it has a size.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// What it shows, in bold.
    pub(super) title: String,
    /// Under which conditions, below the title.
    pub(super) subtitle: String,
    /// Where it comes from, small, in the corner.
    pub(super) caption: String,
    /// The horizontal axis.
    pub(super) x: Axis,
    /// What the vertical axis shows, with the unit.
    pub(super) y_title: String,
    /// Whether the vertical axis begins at zero rather than a little below the lowest point.
    pub(super) from_zero: bool,
    /// The lines, in the order of their colours.
    pub(super) lines: Vec<Line>,
    /// Heights to compare with: a name and a value of the vertical axis.
    pub(super) levels: Vec<(String, f64)>,
    /// Places to compare with: a name and a value of the horizontal axis.
    pub(super) marks: Vec<(String, f64)>,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// What stands at its end.
    pub(super) name: String,
    /// Whether it stands out from the others.
    pub(super) bold: bool,
    /// Its points from left to right. One in the slot right of the scale is drawn as a level.
    pub(super) points: Vec<Point>,
}

/// One point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Where it stands.
    pub(super) position: Position,
    /// Its height; `None` where it was tried and nothing came of it.
    pub(super) y: Option<f64>,
}

impl Chart {
    /// The scale of the vertical axis, with some air beyond the points.
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
    /// Whether it stands in the slot right of the scale.
    pub(super) fn is_level(self) -> bool {
        self.position == Position::After
    }
}
