//! Calculates the positions of everything in a chart.

use super::axis::{Axis, Position, Scale};
use super::chart::Chart;

/// The width of every chart, pixels.
pub(super) const WIDTH: f64 = 900.0;
/// The height of every chart, pixels.
pub(super) const HEIGHT: f64 = 500.0;

/// Width of a slot beside the scale.
const SLOT: f64 = 56.0;
/// Margin beside a logarithmic scale, whose left side is not an origin.
const INSET: f64 = 22.0;
/// Distance from the plot to the names at its right.
const LEADER: f64 = 38.0;
/// Approximate mean width of a letter in a name. It depends on the viewer's fonts.
const LETTER: f64 = 7.3;
/// Approximate mean width of a letter in a bold name.
const BOLD_LETTER: f64 = 8.4;

/// The edges of the plot, and the scales of its axes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Left side of the horizontal scale; `scale_right` is its right side. The slots are outside.
    scale_left: f64,
    scale_right: f64,
    scale: Scale,
    heights: Scale,
}

impl Frame {
    /// Returns the frame of a chart, with room for the longest name at the right.
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
            // One more row for the names of marks.
            top: if chart.marks.is_empty() { 90.0 } else { 108.0 },
            bottom: HEIGHT - 76.0,
            scale_left: left + before,
            scale_right: right - after,
            scale: chart.x.scale,
            heights: chart.y(),
        }
    }

    /// Returns the horizontal coordinate of a position on the horizontal axis.
    pub(super) fn x(&self, position: Position) -> f64 {
        match position {
            Position::At(value) => {
                self.scale_left + self.scale.share(value) * (self.scale_right - self.scale_left)
            }
            Position::Before => self.left + SLOT / 2.0,
            Position::After => self.right - SLOT / 2.0,
        }
    }

    /// Returns the vertical coordinate of a value on the vertical axis.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.bottom - self.heights.share(value) * (self.bottom - self.top)
    }
}

/// Returns the margins that the scale leaves at the left and the right of the plot.
fn margins(axis: &Axis) -> (f64, f64) {
    let inset = match axis.scale {
        Scale::Linear { .. } => 0.0,
        Scale::Log { .. } => INSET,
    };
    let slot = |text: Option<_>| if text.is_some() { SLOT + inset / 2.0 } else { inset };
    (slot(axis.before), slot(axis.after))
}
