//! The position of everything on a chart's sheet.

use super::axis::{Axis, Position, Scale};
use super::chart::Chart;

/// The width of every chart, pixels.
pub(super) const WIDTH: f64 = 900.0;
/// The height of every chart, pixels.
pub(super) const HEIGHT: f64 = 500.0;

/// The width of a slot beside the scale.
const SLOT: f64 = 56.0;
/// How far a logarithmic scale stays from the edges, since its ends are no origin.
const INSET: f64 = 22.0;
/// From the plot to the names at its right.
const LEADER: f64 = 38.0;
/// About as wide as a letter of a name, on average; widths differ by what fonts a viewer has.
const LETTER: f64 = 7.3;
/// The same of a name in bold.
const BOLD_LETTER: f64 = 8.4;

/// The plot's edges on the sheet, and what its axes run over.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Where the scale of the horizontal axis begins and ends between the slots.
    scale_left: f64,
    scale_right: f64,
    scale: Scale,
    heights: Scale,
}

impl Frame {
    /// The frame for a chart, with room for the longest name at the right.
    pub(super) fn of(chart: &Chart) -> Self {
        let width = |name: &str, letter| name.chars().count() as f64 * letter;
        let lines = chart.lines.iter();
        let lines =
            lines.map(|line| width(&line.name, if line.bold { BOLD_LETTER } else { LETTER }));
        let levels = chart.levels.iter().map(|(name, _)| width(name, LETTER));
        let widest = lines.chain(levels).fold(0.0, f64::max);
        let (left, right) = (64.0, WIDTH - LEADER - widest.clamp(60.0, 360.0) - 14.0);
        let (before, after) = margins(&chart.x);
        Self {
            left,
            right,
            // A row more for the names of marks.
            top: if chart.marks.is_empty() { 90.0 } else { 108.0 },
            bottom: HEIGHT - 76.0,
            scale_left: left + before,
            scale_right: right - after,
            scale: chart.x.scale,
            heights: chart.y(),
        }
    }

    /// The horizontal position on the sheet.
    pub(super) fn x(&self, position: Position) -> f64 {
        match position {
            Position::At(value) => {
                self.scale_left + self.scale.share(value) * (self.scale_right - self.scale_left)
            }
            Position::Before => self.left + SLOT / 2.0,
            Position::After => self.right - SLOT / 2.0,
        }
    }

    /// The vertical position on the sheet of a value of the vertical axis.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - self.heights.share(value) * (self.bottom - self.top)
    }
}

/// What the scale leaves free at the left and the right of the plot.
fn margins(axis: &Axis) -> (f64, f64) {
    let inset = match axis.scale {
        Scale::Linear { .. } => 0.0,
        Scale::Log { .. } => INSET,
    };
    let slot = |text: Option<_>| if text.is_some() { SLOT + inset / 2.0 } else { inset };
    (slot(axis.before), slot(axis.after))
}
