//! Renders the line on a terminal that shows the progress of a pass.

use std::time::Duration;

use iscsi_tuner::Size;

use crate::progress::activity::Activity;
use crate::progress::shortened::{bar, shortened, width};
use crate::progress::status::{clock, percent};

/// Least number of cells of the progress bar, next to the shortest texts.
const FEW: usize = 4;
/// Next to the longest text, the progress bar has at least `1 / PART` of the columns.
const PART: usize = 6;

/// The progress of a pass, for a line on a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BarLine {
    /// The name of the pass: copy or verify.
    pub(crate) pass: &'static str,
    pub(crate) done: u64,
    /// Total number of bytes, if known.
    pub(crate) total: Option<u64>,
    pub(crate) activity: Activity,
    /// Rate over the last seconds, Mbit/s.
    pub(crate) rate: f64,
    /// Time since the beginning of the pass.
    pub(crate) elapsed: Duration,
    /// Estimated time to the end at this rate, if known.
    pub(crate) left: Option<Duration>,
}

/// One form of the line: the least number of cells of the bar, and the text beside it. `None` is a line without
/// a bar.
struct Form(Option<usize>, String);

impl BarLine {
    /// Returns the line with the longest text that fits in the columns.
    pub(crate) fn render(&self, columns: usize) -> String {
        let forms = self.forms(columns);
        let fitting = forms.iter().find_map(|form| self.fit(form, columns));
        let last = || forms.last().map(|Form(_, text)| shortened(text, columns));
        fitting.or_else(last).unwrap_or_default()
    }

    /// Returns the line in this form, if it fits in the columns.
    fn fit(&self, Form(cells, text): &Form, columns: usize) -> Option<String> {
        let Self { pass, done, total, .. } = *self;
        let Some((least, total)) = cells.zip(total) else {
            let with_pass = format!("{pass} {text}");
            return [&with_pass, text].into_iter().find(|line| width(line) <= columns).cloned();
        };
        let room = columns.checked_sub(width(pass) + width(text) + 2)?;
        (room >= least).then(|| format!("{pass} {} {text}", bar(done, total, room)))
    }

    /// Returns the forms of the text, the longest first.
    fn forms(&self, columns: usize) -> Vec<Form> {
        let wide = Some((columns / PART).max(FEW));
        let states = self.activity.texts();
        let Some(total) = self.total else { return self.forms_of_stream(states) };
        let short = format!("{}%", percent(self.done, total));
        let long = format!("{short} of {}", Size(total));
        if states.is_empty() {
            return self.forms_of_rate(wide, &long, short);
        }
        let forms = states.into_iter().flat_map(|state| {
            [
                Form(wide, format!("{long}, {state}")),
                Form(Some(FEW), format!("{short}, {state}")),
                Form(None, state),
            ]
        });
        forms.collect()
    }

    /// Returns the forms that show rate and time left, the longest first.
    fn forms_of_rate(&self, wide: Option<usize>, long: &str, short: String) -> Vec<Form> {
        let (few, rate) = (Some(FEW), short_rate(self.rate));
        let left = self.left.map_or_else(String::new, |left| format!(" {} left", clock(left)));
        let comma = if left.is_empty() { "" } else { "," };
        vec![
            Form(wide, format!("{long}, {:.1} Mbit/s{comma}{left}", self.rate)),
            Form(few, format!("{short}, {rate}{comma}{left}")),
            Form(few, format!("{short} {rate}{left}")),
            Form(few, format!("{short}{comma}{left}")),
            Form(None, short),
        ]
    }

    /// Returns the forms for a pass whose total number of bytes is not known.
    fn forms_of_stream(&self, states: Vec<String>) -> Vec<Form> {
        let done = Size(self.done).to_string();
        let mut texts: Vec<_> = if states.is_empty() {
            let (long, short) = (format!("{:.1} Mbit/s", self.rate), short_rate(self.rate));
            vec![
                format!("{done}, {long}, {} so far", clock(self.elapsed)),
                format!("{done}, {short}"),
            ]
        } else {
            states.into_iter().flat_map(|state| [format!("{done}, {state}"), state]).collect()
        };
        texts.push(done);
        texts.into_iter().map(|text| Form(None, text)).collect()
    }
}

/// Formats a rate, without a fraction from 10 Mbit/s on.
fn short_rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1} Mbit/s") } else { format!("{rate:.0} Mbit/s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end::awaited::Awaited;

    const GIB: u64 = 1 << 30;
    const COLUMNS: [usize; 5] = [40, 50, 80, 120, 200];

    /// Returns a pass that has done a quarter of 4 GiB.
    fn quarter(pass: &'static str, activity: Activity) -> BarLine {
        BarLine {
            pass,
            done: GIB,
            total: Some(4 * GIB),
            activity,
            rate: 940.54,
            elapsed: Duration::from_secs(10),
            left: Some(Duration::from_secs(4803)),
        }
    }

    fn outage(seconds: u64) -> Activity {
        let limit = Some(Duration::from_secs(300));
        let awaited = Some(Awaited { side: None, what: "target", limit });
        Activity::Stalled { time: Duration::from_secs(seconds), awaited }
    }

    /// Replaces the cells of the bar by their number, so that the expected lines in the tests are short.
    fn counted(line: &str) -> String {
        let cells = |cell: char| line.chars().filter(|shown| *shown == cell).count();
        let (full, empty) = (cells('█'), cells('░'));
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(empty));
        if bar.is_empty() {
            line.to_owned()
        } else {
            line.replace(&bar, &format!("[{full}:{empty}]"))
        }
    }

    fn shown(line: BarLine) -> Vec<String> {
        COLUMNS.map(|columns| counted(&line.render(columns))).to_vec()
    }

    #[test]
    fn a_running_copy_has_bar_rate_and_time_left_at_any_width() {
        let running = quarter("copy", Activity::Running);
        assert_eq!(running.render(50), "copy ███░░░░░░░░░░░░ 25%, 941 Mbit/s, 1:20:03 left");
        assert_eq!(
            shown(running),
            [
                "copy [1:4] 25%, 941 Mbit/s, 1:20:03 left",
                "copy [3:12] 25%, 941 Mbit/s, 1:20:03 left",
                "copy [8:26] 25% of 4 GiB, 940.5 Mbit/s, 1:20:03 left",
                "copy [18:56] 25% of 4 GiB, 940.5 Mbit/s, 1:20:03 left",
                "copy [38:116] 25% of 4 GiB, 940.5 Mbit/s, 1:20:03 left"
            ]
        );
    }

    #[test]
    fn an_outage_says_what_is_waited_for_in_place_of_an_estimate() {
        assert_eq!(
            shown(quarter("copy", outage(14))),
            [
                "stalled 14 s, waiting for the target",
                "stalled 14 s, waiting for the target (up to 300 s)",
                "copy [4:15] 25%, stalled 14 s, waiting for the target (up to 300 s)",
                "copy [12:38] 25% of 4 GiB, stalled 14 s, waiting for the target (up to 300 s)",
                "copy [32:98] 25% of 4 GiB, stalled 14 s, waiting for the target (up to 300 s)"
            ]
        );
    }

    #[test]
    fn each_other_state_is_named() {
        let silence = Activity::Stalled { time: Duration::from_secs(14), awaited: None };
        let flushing = BarLine {
            done: 4 * GIB,
            ..quarter("copy", Activity::Flushing(Duration::from_secs(3)))
        };
        let lines = [
            quarter("copy", Activity::Starting),
            quarter("copy", Activity::Paused),
            flushing,
            quarter("copy", silence),
            quarter("verify", Activity::Running),
            BarLine { left: None, ..quarter("copy", Activity::Running) },
        ];
        assert_eq!(
            lines.map(|line| counted(&line.render(80))),
            [
                "copy [13:39] 25% of 4 GiB, starting",
                "copy [13:41] 25% of 4 GiB, paused",
                "copy [47:0] 100% of 4 GiB, flushing 3 s",
                "copy [10:30] 25% of 4 GiB, no progress for 14 s",
                "verify [8:24] 25% of 4 GiB, 940.5 Mbit/s, 1:20:03 left",
                "copy [12:36] 25% of 4 GiB, 940.5 Mbit/s"
            ]
        );
        assert_eq!(
            lines.map(|line| counted(&line.render(40))),
            [
                "copy [3:9] 25% of 4 GiB, starting",
                "copy [3:11] 25% of 4 GiB, paused",
                "copy [7:0] 100% of 4 GiB, flushing 3 s",
                "copy [2:7] 25%, no progress for 14 s",
                "verify [1:4] 25% 941 Mbit/s 1:20:03 left",
                "copy [2:6] 25% of 4 GiB, 940.5 Mbit/s"
            ]
        );
    }

    #[test]
    fn a_stream_has_no_bar() {
        let stream = |activity| BarLine { total: None, ..quarter("copy", activity) };
        let lines = [Activity::Running, Activity::Starting, outage(14)].map(stream);
        assert_eq!(
            lines.map(|line| line.render(80)),
            [
                "copy 1 GiB, 940.5 Mbit/s, 0:10 so far",
                "copy 1 GiB, starting",
                "copy 1 GiB, stalled 14 s, waiting for the target (up to 300 s)"
            ]
        );
        assert_eq!(
            lines.map(|line| line.render(40)),
            [
                "copy 1 GiB, 940.5 Mbit/s, 0:10 so far",
                "copy 1 GiB, starting",
                "stalled 14 s, waiting for the target"
            ]
        );
    }

    /// If a line wrapped, its upper row would stay on the terminal at each change.
    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let activities = [
            Activity::Starting,
            Activity::Running,
            Activity::Paused,
            Activity::Flushing(Duration::from_secs(86_400)),
            Activity::Stalled { time: Duration::from_secs(86_400), awaited: None },
            outage(2),
            outage(86_400),
        ];
        let times = [None, Some(Duration::ZERO), Some(Duration::MAX)];
        for activity in activities {
            for left in times {
                for (done, total) in [(0, Some(0)), (u64::MAX, None), (u64::MAX, Some(u64::MAX))] {
                    for rate in [0.0, 940.54, 123_456.7] {
                        let line =
                            BarLine { done, total, rate, left, ..quarter("verify", activity) };
                        for columns in (1..40).chain(COLUMNS) {
                            let shown = line.render(columns);
                            assert!(width(&shown) <= columns, "{columns}: {shown}");
                            assert!(!shown.is_empty());
                        }
                    }
                }
            }
        }
    }
}
