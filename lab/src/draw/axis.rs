//! Scales of axes, and the positions of their ticks.

/// The mapping of values to positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Equal differences at equal distances.
    Linear { from: f64, to: f64 },
    /// Equal ratios at equal distances, with ticks at powers of the base. All values are above zero.
    Log { from: f64, to: f64, base: f64 },
}

/// A position along the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Position {
    /// A value on the scale.
    At(f64),
    /// The slot left of the scale, for values that a logarithm cannot show.
    Before,
    /// The slot right of the scale, for values that are not numbers.
    After,
}

/// The horizontal axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Title of the axis, with the unit.
    pub(super) title: String,
    /// The scale between the slots.
    pub(super) scale: Scale,
    /// Formats the value of a tick.
    pub(super) text: fn(f64) -> String,
    /// Text under the slot left of the scale.
    pub(super) before: Option<&'static str>,
    /// Text under the slot right of the scale.
    pub(super) after: Option<&'static str>,
}

impl Scale {
    /// Returns the position of a value along the axis; 0 to 1 within the scale.
    pub(super) fn share(self, value: f64) -> f64 {
        let (value, from, to) = match self {
            Self::Linear { from, to } => (value, from, to),
            Self::Log { from, to, .. } => (value.ln(), from.ln(), to.ln()),
        };
        if to > from { (value - from) / (to - from) } else { 0.5 }
    }

    /// Returns round values within the scale, ascending.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { from, to } => multiples(from, to, step(to - from)),
            Self::Log { from, to, base } => powers(from, to, base),
        }
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides a span into about six parts.
fn step(span: f64) -> f64 {
    let rough = span / 6.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * magnitude);
    let enough = steps.into_iter().find(|step| *step >= rough * 0.999);
    enough.unwrap_or(10.0 * magnitude)
}

fn multiples(from: f64, to: f64, step: f64) -> Vec<f64> {
    if !step.is_normal() {
        return vec![from];
    }
    let first = (from / step - 1e-9).ceil();
    let times = std::iter::successors(Some(first), |times| Some(times + 1.0));
    // Adding zero turns a negative zero into zero.
    times.map(|times| times * step + 0.0).take_while(|tick| *tick <= to + step * 1e-9).collect()
}

/// Returns the powers of the base within the scale, or its ends if that leaves fewer than two.
fn powers(from: f64, to: f64, base: f64) -> Vec<f64> {
    let first = (from.ln() / base.ln() - 1e-9).ceil();
    let exponents = std::iter::successors(Some(first), |exponent| Some(exponent + 1.0));
    let values = exponents.map(|exponent| base.powf(exponent));
    let ticks: Vec<_> = values.take_while(|tick| *tick <= to * (1.0 + 1e-9)).collect();
    if ticks.len() < 2 { vec![from, to] } else { ticks }
}

#[cfg(test)]
mod tests {
    use super::super::text::{bytes, plain};
    use super::*;

    fn linear(from: f64, to: f64) -> Vec<String> {
        Scale::Linear { from, to }.ticks().into_iter().map(plain).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(linear(0.0, 106.0), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(linear(0.0, 200.0), ["0", "50", "100", "150", "200"]);
        assert_eq!(linear(0.0, 1.3), ["0", "0.5", "1"]);
        assert_eq!(linear(3.0, 9.0), ["3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(linear(0.0, 0.6), ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]);
    }

    #[test]
    fn a_span_of_nothing_still_has_a_tick() {
        assert_eq!(linear(5.0, 5.0), ["5"]);
        assert_eq!(Scale::Linear { from: 5.0, to: 5.0 }.share(5.0), 0.5);
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let loss = Scale::Log { from: 0.001, to: 1.0, base: 10.0 };
        assert_eq!(
            loss.ticks().into_iter().map(plain).collect::<Vec<_>>(),
            ["0.001", "0.01", "0.1", "1"]
        );
        let buffer = Scale::Log { from: 100_000.0, to: 2_621_440.0, base: 2.0 };
        assert_eq!(
            buffer.ticks().into_iter().map(bytes).collect::<Vec<_>>(),
            ["128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB"]
        );
    }

    #[test]
    fn a_short_logarithmic_scale_has_its_ends_as_ticks() {
        assert_eq!(Scale::Log { from: 2.0, to: 5.0, base: 10.0 }.ticks(), [2.0, 5.0]);
    }

    #[test]
    fn shares_run_from_zero_to_one() {
        let scale = Scale::Log { from: 0.01, to: 1.0, base: 10.0 };
        assert_eq!([0.01, 1.0].map(|value| scale.share(value)), [0.0, 1.0]);
        assert!((scale.share(0.1) - 0.5).abs() < 1e-9);
        assert_eq!(Scale::Linear { from: 0.0, to: 200.0 }.share(50.0), 0.25);
    }
}
