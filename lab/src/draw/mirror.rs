//! Draws disks in use that QEMU mirrored to a unit: the time until disk and unit were equal, and the progress
//! until then.

use serde::Deserialize;

use super::axis::{Axis, Position, Scale};
use super::chart::{Chart, Line, Point};
use super::group::{group, parameter};
use super::names::{link_slug, speed};
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use crate::mirror::MirrorFigure;
use crate::result::{Figure, Outcome};

/// Returns whether a figure is of a mirror.
pub(super) fn is_mirror(figure: &Figure) -> bool {
    parameter(figure, "mirror").is_some()
}

/// Returns the part of a page about mirrors; `None` without any.
pub(super) fn part(figures: &[&Figure], source: &Source) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let mut part = Part::new("The disk of a running machine");
    part.paragraph(
        "Ready: seconds from the order until disk and unit were equal for the first time (BLOCK_JOB_READY). Cut-over: \
         seconds from the last write that was asked for until the mirror had ended (BLOCK_JOB_COMPLETED), so what a \
         machine that moves waits at most. Copied: what the mirror wrote to the unit, with what was written again. \
         Sent: what crossed the link, with all headers. Load: what was written to the disk meanwhile, and what 99 % \
         of the writes took at most. Busy: the time in which the lab's only processor had something to do. Bytes: whether the unit held what the disk did, before it was flushed again.",
    );
    for (conditions, figures) in group(figures, conditions) {
        part.subheading(&conditions);
        part.table(&table(&figures));
        for sentence in verdict(&figures) {
            part.paragraph(&sentence);
        }
        part.chart(source, &file_name(&figures), &chart(&conditions, &figures, source));
    }
    Some(part)
}

/// Returns the conditions that the figures of one chart share.
fn conditions(figure: &Figure) -> String {
    let link = &figure.link;
    let rate = link.rate_mbit_per_s.map_or_else(String::new, |rate| format!("{}, ", speed(rate)));
    let load = match parameter(figure, "mirror") {
        None | Some("none") => "no writes".to_owned(),
        Some(load) => format!("written at {load}"),
    };
    let loss = if link.loss_percent > 0.0 {
        format!(", {} % lost", text::plain(link.loss_percent))
    } else {
        String::new()
    };
    let granularity = parameter(figure, "granularity").unwrap_or_default();
    format!("{rate}{} ms{loss}, {load}, granularity {granularity}", text::plain(link.rtt_ms))
}

/// Returns the part of a chart's file name that distinguishes it from other charts.
fn file_name(figures: &[&Figure]) -> String {
    let Some(first) = figures.first() else { return String::new() };
    let word = |name| parameter(first, name).unwrap_or_default();
    let rtt = text::plain(first.link.rtt_ms);
    format!("{} {rtt}ms {} {}", link_slug(&first.link), word("mirror"), word("granularity"))
}

fn mirror_figure(figure: &Figure) -> Option<MirrorFigure> {
    MirrorFigure::deserialize(&figure.detail).ok()
}

fn name(figure: &Figure) -> String {
    match parameter(figure, "args") {
        Some(args) => format!("{} {args}", figure.who),
        None => figure.who.clone(),
    }
}

fn is_ours(figure: &Figure) -> bool {
    figure.who == "block-serve"
}

fn table(figures: &[&Figure]) -> Table {
    let columns = ["Ready", "Cut-over", "Copied", "Left", "Sent", "Load", "99 %", "Busy", "Bytes"];
    let mut table = Table::new("Through", columns.map(str::to_owned).to_vec());
    for figure in figures {
        let cells = match mirror_figure(figure) {
            Some(told) => mirror_cells(&told, figure, &mut table),
            None => {
                let (end, reason) = match &figure.outcome {
                    Outcome::Failed(reason) => ("**failed**", reason.clone()),
                    Outcome::Skipped(reason) => ("skipped", reason.clone()),
                    Outcome::Complete | Outcome::TimedOut => {
                        ("-", "nothing was reported".to_owned())
                    }
                };
                let mut cells = vec![table.with_note(end, reason)];
                cells.resize(columns.len(), "-".to_owned());
                cells
            }
        };
        table.row(&name(figure), is_ours(figure), cells);
    }
    table
}

fn mirror_cells(told: &MirrorFigure, figure: &Figure, table: &mut Table) -> Vec<String> {
    let dash = || "-".to_owned();
    let size = |bytes: u64| text::bytes(bytes as f64);
    let looked = told.samples.last().map_or(0.0, |(at, _, _)| *at);
    let rate = |bytes: u64| bytes as f64 * 8.0 / looked / 1e6;
    let ready = match told.ready_seconds {
        Some(seconds) => text::seconds(seconds),
        None => {
            let reason = format!(
                "not equal for once within {looked:.0} s, in which {} Mbit/s were copied",
                text::rate(rate(told.copied_bytes))
            );
            table.with_note("**never**", reason)
        }
    };
    let bytes = match (told.equal, &figure.outcome) {
        (Some(true), _) => "equal".to_owned(),
        (Some(false), _) => "**differ**".to_owned(),
        (None, _) => dash(),
    };
    let load = told.load.map(|load| {
        let mib = load.bytes as f64 / f64::from(1 << 20) / load.seconds;
        (
            format!("{mib:.1} MiB/s"),
            format!("{} ms", text::plain((load.p99_ms * 10.0).round() / 10.0)),
        )
    });
    let (load, late) = load.unwrap_or_else(|| (dash(), dash()));
    vec![
        ready,
        told.cut_over_seconds.map_or_else(dash, text::seconds),
        size(told.copied_bytes),
        size(told.left_bytes),
        told.sent_bytes.map_or_else(dash, size),
        load,
        late,
        told.busy.map_or_else(dash, |busy| format!("{:.0} %", busy * 100.0)),
        bytes,
    ]
}

/// Compares the time at which this project's mirror was ready with the times of other programs.
fn verdict(figures: &[&Figure]) -> Vec<String> {
    let ready = |figure: &Figure| mirror_figure(figure).and_then(|told| told.ready_seconds);
    let Some((ours, own)) =
        figures.iter().find(|figure| is_ours(figure)).and_then(|ours| Some((ours, ready(ours)?)))
    else {
        return Vec::new();
    };
    let others = figures.iter().filter(|figure| !is_ours(figure));
    let sentence = |other: &&Figure| match ready(other) {
        Some(seconds) => Some(format!(
            "{} was ready after {} s, {} after {} s: {:.1} times as long.",
            name(ours),
            text::seconds(own),
            name(other),
            text::seconds(seconds),
            seconds / own
        )),
        None => mirror_figure(other).map(|_| {
            format!(
                "{} was ready after {} s, {} never.",
                name(ours),
                text::seconds(own),
                name(other)
            )
        }),
    };
    others.filter_map(sentence).collect()
}

fn chart(conditions: &str, figures: &[&Figure], source: &Source) -> Chart {
    let drawn = figures.iter().filter_map(|figure| Some((figure, mirror_figure(figure)?)));
    let mut last = 1.0_f64;
    let mut lines = Vec::new();
    for (figure, told) in drawn {
        last = told.samples.last().map_or(last, |(at, _, _)| last.max(*at));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let point = |(at, _, left): &(f64, u64, u64)| Point {
            position: Position::At(*at),
            y: Some(mib(*left)),
        };
        lines.push(Line {
            name: name(figure),
            bold: is_ours(figure),
            points: thinned(&told.samples).map(point).collect(),
        });
    }
    Chart {
        title: "What the unit lacks".to_owned(),
        subtitle: conditions.to_owned(),
        caption: source.caption.clone(),
        x: Axis {
            title: "seconds".to_owned(),
            scale: Scale::Linear { from: 0.0, to: last },
            text: text::plain,
            before: None,
            after: None,
        },
        y_title: "MiB".to_owned(),
        from_zero: true,
        lines,
        levels: Vec::new(),
        marks: Vec::new(),
    }
}

/// Returns at most `POINTS` samples at about equal distances, including the last sample.
fn thinned<T>(samples: &[T]) -> impl Iterator<Item = &T> {
    samples.iter().rev().step_by(samples.len() / POINTS + 1).collect::<Vec<_>>().into_iter().rev()
}

/// Largest number of points of a line.
const POINTS: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::draw::sample;

    fn figure(who: &str, outcome: Outcome, detail: serde_json::Value) -> Figure {
        let words = [("mirror", "5M/s, 4K to 64K, 4 in flight"), ("granularity", "4K")];
        let parameters = words.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Figure { parameters, detail, ..sample::outcome(who, 100.0, outcome) }
    }

    #[test]
    fn who_is_never_ready_is_told_with_what_it_reached() {
        let load =
            json!({ "bytes": 5_242_880 * 10, "seconds": 10.0, "mean_ms": 0.5, "p99_ms": 2.04 });
        let ready = json!({
            "ready_seconds": 25.0, "cut_over_seconds": 1.25, "load_end_seconds": 0.5,
            "copied_bytes": 300 << 20, "left_bytes": 0, "sent_bytes": 320 << 20, "equal": true, "busy": 0.955,
            "load": load, "samples": [[0.5, 0, 256 << 20], [25.0, 290 << 20, 0]],
        });
        let never = json!({
            "ready_seconds": null, "cut_over_seconds": null, "load_end_seconds": null,
            "copied_bytes": 125_000_000, "left_bytes": 100 << 20, "sent_bytes": 150 << 20,
            "equal": null, "busy": null, "load": load, "samples": [[50.0, 125_000_000, 100 << 20]],
        });
        let figures = [
            figure("block-serve", Outcome::Complete, ready),
            figure("qemu-iscsi", Outcome::TimedOut, never),
            figure("qemu-iscsi", Outcome::Failed("no | disk".to_owned()), json!(null)),
        ];
        assert!(figures.iter().all(is_mirror));
        let source = Source { name: "mirror".to_owned(), caption: String::new() };
        let part = part(&figures.iter().collect::<Vec<_>>(), &source).unwrap();
        let (_, page) = part.markdown.split_once("flushed again.\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        ### 100 Mbit/s, 100 ms, written at 5M/s, 4K to 64K, 4 in flight, granularity 4K

        | Through | Ready | Cut-over | Copied | Left | Sent | Load | 99 % | Busy | Bytes |
        |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
        | **block-serve** | 25.0 | 1.25 | 300 MiB | 0 B | 320 MiB | 5.0 MiB/s | 2 ms | 96 % | equal |
        | qemu-iscsi | **never**<sup>1</sup> | - | 119 MiB | 100 MiB | 150 MiB | 5.0 MiB/s | 2 ms | - | - |
        | qemu-iscsi | **failed**<sup>2</sup> | - | - | - | - | - | - | - | - |

        <sup>1</sup> not equal for once within 50 s, in which 20.0 Mbit/s were copied

        <sup>2</sup> no \| disk

        block-serve was ready after 25.0 s, qemu-iscsi never.

        ![What the unit lacks](mirror-100mbit-100ms-5m-s-4k-to-64k-4-in-flight-4k.svg)
        ");
        assert_eq!(part.charts.len(), 1);
    }

    #[test]
    fn a_line_keeps_its_end_and_not_too_many_points() {
        for (len, kept) in [(0, 0), (3, 3), (100, 50), (350, 88)] {
            let samples: Vec<usize> = (0..len).collect();
            let points: Vec<_> = thinned(&samples).collect();
            assert_eq!((points.len(), points.last().copied()), (kept, samples.last()), "{len}");
        }
    }
}
