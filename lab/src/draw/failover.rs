//! Draws failovers: the longest time without progress at each event, for each writer.

use serde::Deserialize;

use super::bars::{Bar, Bars, Row};
use super::group::{group, parameter};
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use super::{names, style::is_ours};
use crate::failover::FailoverFigure;
use crate::result::{Figure, Outcome};

/// Returns whether a figure is of a failover.
pub(super) fn is_failover(figure: &Figure) -> bool {
    parameter(figure, "failover").is_some()
}

/// Returns the part of a page about failovers; `None` without any.
pub(super) fn part(figures: &[&Figure], source: &Source) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let mut part = Part::new("Failovers");
    part.paragraph(
        "Seconds without progress, the longest time of each run: of a copy without another byte on the unit \
         (its file is looked at each 10 ms), of random writes without an answer (fio's log of each write). \
         Beside them for how long no path served at all, which no initiator can do better. Errors are what the user \
         saw; bytes were compared after all sessions had ended and all links were up again.",
    );
    for ((load, link), figures) in
        group(figures, |figure| (parameter(figure, "load").unwrap_or_default(), link_words(figure)))
    {
        let what = match load {
            "copy" => "A copy",
            "random" => "Random writes, 16 KiB each, 5 MiB/s",
            other => other,
        };
        part.subheading(&format!("{what}, {link}"));
        let rows = rows(&figures);
        part.table(&table(&rows));
        let bars = bars(&rows, &format!("{what}, {link}"), source);
        let title = format!("{what}: seconds without progress at each failover");
        part.picture(source, &format!("{load} {link}"), &title, bars.svg());
    }
    Some(part)
}

fn link_words(figure: &Figure) -> String {
    let link = &figure.link;
    let rate = link.rate_mbit_per_s.map_or_else(|| "no rate".to_owned(), names::speed);
    format!("{rate} and {} ms on each path", text::plain(link.rtt_ms))
}

/// An event on the paths, with the result of each writer.
struct Event<'a> {
    name: &'a str,
    runs: Vec<(&'a str, Option<FailoverFigure>, &'a Outcome)>,
}

fn rows<'a>(figures: &[&'a Figure]) -> Vec<Event<'a>> {
    let events = group(figures, |figure| parameter(figure, "failover").unwrap_or_default());
    let event = |(name, figures): (&'a str, Vec<&'a Figure>)| Event {
        name,
        runs: figures
            .iter()
            .map(|figure| {
                let told = FailoverFigure::deserialize(&figure.detail).ok();
                (figure.who.as_str(), told, &figure.outcome)
            })
            .collect(),
    };
    events.into_iter().map(event).collect()
}

/// Returns all writers, in the order of their first appearance.
fn writers<'a>(events: &[Event<'a>]) -> Vec<&'a str> {
    let all: Vec<_> = events.iter().flat_map(|event| &event.runs).map(|run| run.0).collect();
    group(&all, |name| name).into_iter().map(|(name, _)| name).collect()
}

impl Event<'_> {
    /// Returns the shortest time in which no path served, over all runs of the event, seconds. These times
    /// differ slightly between runs.
    fn unserved(&self) -> Option<f64> {
        let told = self.runs.iter().filter_map(|(_, told, _)| told.as_ref());
        told.map(|told| told.unserved_seconds).min_by(f64::total_cmp)
    }
}

fn table(events: &[Event<'_>]) -> Table {
    let writers = writers(events);
    let columns = writers
        .iter()
        .map(|name| if is_ours(name) { format!("**{name}**") } else { (*name).to_owned() });
    let columns = std::iter::once("No path served".to_owned()).chain(columns).collect();
    let mut table = Table::new("What happens", columns);
    for event in events {
        let unserved = event.unserved().map_or_else(|| "-".to_owned(), text::seconds);
        let mut cells = vec![unserved];
        for writer in &writers {
            let run = event.runs.iter().find(|(who, ..)| who == writer);
            cells.push(match run {
                Some((_, told, outcome)) => cell(told.as_ref(), outcome, &mut table),
                None => "-".to_owned(),
            });
        }
        table.row(event.name, false, cells);
    }
    table
}

fn cell(told: Option<&FailoverFigure>, outcome: &Outcome, table: &mut Table) -> String {
    let stalled = told.map(|told| text::seconds(told.stalled_seconds));
    let (words, reason) = match outcome {
        Outcome::Complete => return stalled.unwrap_or_else(|| "-".to_owned()),
        Outcome::TimedOut => ("**no end in time**", None),
        Outcome::Failed(reason) => ("**failed**", Some(reason)),
        Outcome::Skipped(reason) => ("skipped", Some(reason)),
    };
    let words = stalled.map_or_else(|| words.to_owned(), |stalled| format!("{stalled}, {words}"));
    match reason {
        Some(reason) => table.with_note(&words, reason.clone()),
        None => words,
    }
}

fn bars(events: &[Event<'_>], subtitle: &str, source: &Source) -> Bars {
    let writers = writers(events);
    let bar = |event: &Event<'_>, writer: &str| {
        let Some((_, told, outcome)) = event.runs.iter().find(|(who, ..)| *who == writer) else {
            return Bar::None;
        };
        let stalled = told.as_ref().map(|told| told.stalled_seconds);
        match (outcome, stalled) {
            (Outcome::Complete, Some(stalled)) => Bar::Good(stalled),
            (Outcome::Skipped(_), _) => Bar::None,
            (_, stalled) => Bar::Failed(stalled),
        }
    };
    let rows = events.iter().map(|event| Row {
        name: event.name.to_owned(),
        bars: writers.iter().map(|writer| bar(event, writer)).collect(),
        mark: event.unserved().filter(|unserved| *unserved > 0.0),
    });
    Bars {
        title: "Seconds without progress at each failover".to_owned(),
        subtitle: subtitle.to_owned(),
        caption: source.caption.clone(),
        x_title: "seconds without progress, the longest time of each run".to_owned(),
        rows: rows.collect(),
        series: writers.iter().map(|name| (*name).to_owned()).collect(),
        mark: "no path served".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::draw::sample;

    fn figure(who: &str, event: &str, outcome: Outcome, stalled: Option<f64>) -> Figure {
        let words = [("failover", event), ("load", "copy")];
        let detail = stalled.map(|stalled| {
            json!({
                "stalled_seconds": stalled, "unserved_seconds": 1.5, "seconds": 20.0, "errors": 0,
                "error": null, "equal": true, "gaps": [], "orders": [[2.0, "cut 1"]],
            })
        });
        Figure {
            parameters: words.map(|(name, word)| (name.to_owned(), word.to_owned())).into(),
            detail: detail.unwrap_or_default(),
            ..sample::outcome(who, 10.0, outcome)
        }
    }

    #[test]
    fn each_event_is_a_row_and_each_writer_a_column() {
        let figures = [
            figure("block-copy", "path 1 cut", Outcome::Complete, Some(1.61)),
            figure("dm-multipath", "path 1 cut", Outcome::Complete, Some(12.3)),
            figure("block-copy", "standby", Outcome::Failed("no | path".to_owned()), Some(3.0)),
            figure("dm-multipath", "standby", Outcome::TimedOut, None),
        ];
        assert!(figures.iter().all(is_failover));
        let source = Source { name: "failover".to_owned(), caption: String::new() };
        let part = part(&figures.iter().collect::<Vec<_>>(), &source).unwrap();
        let (_, page) = part.markdown.split_once("up again.\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        ### A copy, 100 Mbit/s and 10 ms on each path

        | What happens | No path served | **block-copy** | dm-multipath |
        |---|---:|---:|---:|
        | path 1 cut | 1.50 | 1.61 | 12.3 |
        | standby | 1.50 | 3.00, **failed**<sup>1</sup> | **no end in time** |

        <sup>1</sup> no \| path

        ![A copy: seconds without progress at each failover](failover-copy-100-mbit-s-and-10-ms-on-each-path.svg)
        ");
        assert_eq!(part.charts.len(), 1);
    }
}
