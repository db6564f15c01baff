//! Draws the table of goals, each with the figures to which it applies.

use super::cell::{Cell, Quantity};
use super::group::{direction, group, parameters_but};
use super::names::{self, Key};
use super::part::Part;
use super::table::Table;
use super::text;
use crate::result::{Figure, LinkConditions};
use crate::scenario::Goal;

/// Relative difference up to which numbers of bytes count as equal: some programs report the bytes that
/// arrived, others the bytes that were to be moved.
const SAME_BYTES: f64 = 0.01;

/// A series of figures over one link, with its goal.
#[derive(Debug)]
struct Row<'a> {
    goal: &'a Goal,
    key: Key,
    link: &'a LinkConditions,
    direction: &'a str,
    bytes: u64,
    cell: Cell,
}

/// Whether a goal, or a part of it, is met.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Verdict {
    Met,
    /// There is no figure to compare with.
    Unknown,
    Short,
}

/// A part of a goal, judged.
#[derive(Debug, PartialEq)]
struct Judged {
    verdict: Verdict,
    text: String,
}

/// Kind of a part of a goal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Aim {
    Steady,
    Start,
    Whole,
    Reconnects,
}

impl Aim {
    const ALL: [Self; 4] = [Self::Steady, Self::Start, Self::Whole, Self::Reconnects];
}

/// The side of its goal on which a figure must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    AtLeast,
    AtMost,
}

/// Returns the part of a page about goals; `None` if no figure has one.
pub(super) fn part(figures: &[Figure], goals: &[Goal]) -> Option<Part> {
    let figures: Vec<_> = figures.iter().collect();
    let rows: Vec<_> = goals.iter().flat_map(|goal| rows(goal, &figures)).collect();
    if rows.is_empty() {
        return None;
    }
    let aims: Vec<_> =
        Aim::ALL.into_iter().filter(|aim| rows.iter().any(|row| row.has(*aim))).collect();
    let verdicts = rows.iter().map(|row| row.verdict(&figures));
    let met = verdicts.filter(|verdict| *verdict == Verdict::Met).count();
    let mut part = Part::new("Goals");
    part.paragraph(&format!("{met} of {} are met. {}", rows.len(), explanation(&aims, &rows)));
    part.table(&table(&rows, &aims, &figures));
    Some(part)
}

/// Returns a row for each series and link that the goal applies to.
fn rows<'a>(goal: &'a Goal, figures: &[&'a Figure]) -> Vec<Row<'a>> {
    let own = figures.iter().copied().filter(|figure| {
        figure.who == goal.who && goal.over.holds(&figure.link, direction(figure))
    });
    let own: Vec<_> = own.collect();
    let series = group(&own, |figure| (key(figure), direction(figure), &figure.link));
    let rows = series.into_iter().filter_map(|((key, direction, link), own)| {
        let bytes = own.first()?.bytes;
        Some(Row { goal, key, link, direction, bytes, cell: Cell::of(&own)? })
    });
    rows.collect()
}

fn key(figure: &Figure) -> Key {
    (figure.who.clone(), parameters_but(figure, &["direction"]))
}

/// Returns the explanation of the columns.
fn explanation(aims: &[Aim], rows: &[Row<'_>]) -> String {
    let others = rows.iter().filter_map(|row| row.goal.no_slower_than.as_deref());
    let others: Vec<_> = others.collect();
    let others: Vec<_> = group(&others, |who| who).into_iter().map(|(who, _)| who).collect();
    let words = aims.iter().map(|aim| match aim {
        Aim::Steady => "Steady: Mbit/s from the fifth second on.".to_owned(),
        Aim::Start => "Start: seconds beyond the bytes at the link's rate.".to_owned(),
        Aim::Reconnects => "Reconnects: sessions that were lost and reconnected.".to_owned(),
        Aim::Whole => {
            format!(
                "Whole: goodput, Mbit/s, beside that of {} over as many bytes.",
                others.join(", ")
            )
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn table(rows: &[Row<'_>], aims: &[Aim], figures: &[&Figure]) -> Table {
    let all: Vec<_> = rows.iter().map(|row| &row.key).collect();
    let keys: Vec<_> = group(&all, |key| key).into_iter().map(|(key, _)| key.clone()).collect();
    let series = names::names(&keys);
    let corner = if let [only] = series.as_slice() { only } else { "" };
    let columns = aims.iter().map(|aim| aim.column()).chain(["Goal"]).map(String::from).collect();
    let mut table = Table::new(corner, columns);
    for row in rows {
        let of = keys.iter().zip(&series).find(|(key, _)| keys.len() > 1 && **key == row.key);
        let of = of.map(|(_, name)| format!("{name}: ")).unwrap_or_default();
        let verdict = row.verdict_text(row.verdict(figures), &mut table);
        let cells = aims.iter().map(|aim| row.judge(*aim, figures).written());
        let cells = cells.chain([verdict]).collect();
        table.row(&format!("{of}{}", row.link_words()), false, cells);
    }
    table
}

impl Aim {
    fn column(self) -> &'static str {
        match self {
            Self::Steady => "Steady",
            Self::Start => "Start",
            Self::Whole => "Whole",
            Self::Reconnects => "Reconnects",
        }
    }
}

impl Row<'_> {
    fn has(&self, aim: Aim) -> bool {
        match aim {
            Aim::Steady => self.goal.steady.is_some(),
            Aim::Start => self.goal.start.is_some(),
            Aim::Whole => self.goal.no_slower_than.is_some(),
            Aim::Reconnects => self.goal.reconnects.is_some(),
        }
    }

    fn link_words(&self) -> String {
        let flow = names::flow(self.direction, self.link.rate_mbit_per_s);
        let rtt = text::plain(self.link.rtt_ms);
        format!("{flow}, RTT {rtt} ms, {}", names::loss(self.link.loss_percent))
    }

    /// Returns the worst verdict of all parts.
    fn verdict(&self, figures: &[&Figure]) -> Verdict {
        let verdicts = Aim::ALL
            .into_iter()
            .filter(|aim| self.has(*aim))
            .map(|aim| self.judge(aim, figures).verdict);
        verdicts.max().unwrap_or(Verdict::Unknown)
    }

    fn judge(&self, aim: Aim, figures: &[&Figure]) -> Judged {
        let goal = self.goal;
        let judged = match aim {
            Aim::Steady => goal
                .steady
                .map(|rate| self.compare(Quantity::Steady, Side::AtLeast, text::rate(rate))),
            Aim::Start => goal.start.map(|start| {
                self.compare(Quantity::Start, Side::AtMost, text::seconds(start.over(self.link)))
            }),
            Aim::Whole => goal.no_slower_than.as_deref().map(|who| self.beside(who, figures)),
            Aim::Reconnects => goal.reconnects.map(|most| {
                self.compare(Quantity::Reconnects, Side::AtMost, text::plain(most.into()))
            }),
        };
        judged.unwrap_or_else(Judged::nothing)
    }

    /// Compares the goodput of this row with that of another program.
    fn beside(&self, who: &str, figures: &[&Figure]) -> Judged {
        match self.other(who, figures).and_then(|cell| cell.goodput) {
            Some(rate) => self.compare(Quantity::Goodput, Side::AtLeast, text::rate(rate)),
            None => Judged::nothing(),
        }
    }

    /// Returns the cell of the other program over the same link, in the same direction, with the same number of
    /// bytes.
    fn other(&self, who: &str, figures: &[&Figure]) -> Option<Cell> {
        let bytes = self.bytes as f64;
        let same = figures.iter().copied().filter(|figure| {
            figure.who == who
                && figure.link == *self.link
                && direction(figure) == self.direction
                && (figure.bytes as f64 - bytes).abs() <= bytes * SAME_BYTES
        });
        let same: Vec<_> = same.collect();
        // If the other program has several series, this takes the first: a scenario lists the plainest series first.
        Cell::of(&group(&same, key).first()?.1)
    }

    /// Judges a figure by its rounded value, as it is printed, so that the verdict agrees with the visible digits.
    fn compare(&self, quantity: Quantity, side: Side, goal: String) -> Judged {
        let written = self.cell.text(quantity);
        let (Ok(figure), Ok(bound)) = (written.parse::<f64>(), goal.parse::<f64>()) else {
            let short = self.cell.complete == 0 && self.cell.was_tried();
            let verdict = if short { Verdict::Short } else { Verdict::Unknown };
            return Judged { verdict, text: written };
        };
        let (met, sign) = match side {
            Side::AtLeast if figure >= bound => (true, "≥"),
            Side::AtLeast => (false, "&lt;"),
            Side::AtMost if figure <= bound => (true, "≤"),
            Side::AtMost => (false, "&gt;"),
        };
        let verdict = if met { Verdict::Met } else { Verdict::Short };
        Judged { verdict, text: format!("{written} {sign} {goal}") }
    }

    /// Returns the text of a verdict, with the reason if the goal is not met.
    fn verdict_text(&self, verdict: Verdict, table: &mut Table) -> String {
        let (words, reason) = match verdict {
            Verdict::Met => return "met".into(),
            Verdict::Unknown => ("unknown", None),
            Verdict::Short => ("**falls short**", self.goal.reason(self.link, self.direction)),
        };
        match reason.map(String::from).or_else(|| self.cell.note()) {
            Some(note) => table.with_note(words, note),
            None => words.into(),
        }
    }
}

impl Judged {
    fn nothing() -> Self {
        Self { verdict: Verdict::Unknown, text: "-".into() }
    }

    fn written(self) -> String {
        match self.verdict {
            Verdict::Met | Verdict::Unknown => self.text,
            Verdict::Short => format!("**{}**", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{figure, outcome};
    use super::*;
    use crate::result::Outcome;

    fn goal(text: &str) -> Goal {
        toml::from_str(&format!("who = 'block-copy'\n{text}")).unwrap()
    }

    fn verdicts(text: &str, figures: &[Figure]) -> Vec<Verdict> {
        let figures: Vec<_> = figures.iter().collect();
        rows(&goal(text), &figures).iter().map(|row| row.verdict(&figures)).collect()
    }

    fn ours(rtt_ms: f64, goodput: f64, steady: f64, start: f64) -> Figure {
        Figure {
            steady_mbit_per_s: Some(steady),
            start_seconds: Some(start),
            ..figure("block-copy", rtt_ms, goodput)
        }
    }

    #[test]
    fn a_figure_is_judged_as_it_is_written() {
        let both = [ours(4.0, 90.0, 92.96, 0.4), ours(40.0, 90.0, 92.94, 0.4)];
        assert_eq!(verdicts("steady = 93", &both), [Verdict::Met, Verdict::Short]);
    }

    #[test]
    fn the_start_may_grow_with_the_round_trip_time() {
        let both = [ours(4.0, 90.0, 93.0, 1.2), ours(100.0, 90.0, 93.0, 1.2)];
        let allowed = "start = { rtts = 10, seconds = 0.3 }";
        assert_eq!(verdicts(allowed, &both), [Verdict::Short, Verdict::Met]);
    }

    #[test]
    fn the_whole_stands_beside_another_of_as_many_bytes() {
        let link = |bytes, rate| Figure { bytes, ..figure("iperf3", 4.0, rate) };
        let ours = ours(4.0, 90.0, 93.0, 0.1);
        let nearly = ours.bytes - ours.bytes / 200;
        let beside = |other: Figure| verdicts("no_slower_than = 'iperf3'", &[ours.clone(), other]);
        assert_eq!(beside(link(nearly, 89.9)), [Verdict::Met]);
        assert_eq!(beside(link(nearly, 90.1)), [Verdict::Short]);
        assert_eq!(beside(link(ours.bytes / 2, 90.1)), [Verdict::Unknown]);
    }

    #[test]
    fn sessions_that_are_lost_count_by_the_worst_repetition() {
        let lost = |count: u32| Figure {
            detail: serde_json::json!({ "reconnects": count }),
            ..ours(4.0, 90.0, 93.0, 0.1)
        };
        assert_eq!(verdicts("reconnects = 0", &[lost(0), lost(0)]), [Verdict::Met]);
        assert_eq!(verdicts("reconnects = 0", &[lost(0), lost(3), lost(0)]), [Verdict::Short]);
        assert_eq!(verdicts("reconnects = 3", &[lost(3)]), [Verdict::Met]);
        assert_eq!(verdicts("reconnects = 0", &[ours(4.0, 90.0, 93.0, 0.1)]), [Verdict::Unknown]);
    }

    #[test]
    fn the_worst_part_decides() {
        let all = "steady = 90\nno_slower_than = 'iperf3'";
        assert_eq!(verdicts(all, &[ours(4.0, 90.0, 93.0, 0.1)]), [Verdict::Unknown]);
        assert_eq!(verdicts(all, &[ours(4.0, 90.0, 80.0, 0.1)]), [Verdict::Short]);
    }

    #[test]
    fn no_end_falls_short_and_no_try_is_unknown() {
        let ended = |how| [outcome("block-copy", 4.0, how)];
        assert_eq!(verdicts("steady = 1", &ended(Outcome::TimedOut)), [Verdict::Short]);
        assert_eq!(verdicts("steady = 1", &ended(Outcome::Failed("x".into()))), [Verdict::Short]);
        let skipped = ended(Outcome::Skipped("x".into()));
        assert_eq!(verdicts("steady = 1", &skipped), [Verdict::Unknown]);
        assert_eq!(verdicts("steady = 1", &[figure("block-copy", 4.0, 9.0)]), [Verdict::Unknown]);
    }

    #[test]
    fn others_have_no_part_in_it() {
        assert!(verdicts("steady = 1", &[figure("iperf3", 4.0, 95.0)]).is_empty());
        assert!(part(&[figure("iperf3", 4.0, 95.0)], &[goal("steady = 1")]).is_none());
    }
}
