//! Draws flows with a limited rate: a chart over time for each run, and the rate of each flow between
//! scripted changes.

use serde::Deserialize;

use super::axis::{Axis, Position, Scale};
use super::chart::{Chart, Line, Point};
use super::group::parameter;
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use crate::flows::FlowsFigure;
use crate::result::{Figure, Outcome};

/// Returns whether a figure is of flows with a limited rate. Their parameter `flows` is a name, whereas for
/// iperf3 it is a number.
pub(super) fn is_ruled(figure: &Figure) -> bool {
    parameter(figure, "flows").is_some_and(|flows| flows.parse::<u32>().is_err())
}

/// Returns the part of a page about flows with a limited rate; `None` without any.
pub(super) fn part(figures: &[&Figure], source: &Source) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let mut part = Part::new("Rates that are ruled");
    part.paragraph(
        "Mbit/s of TCP payload at the target's host, on average from a second after an order to the next one, \
         with the difference to what was to be. Beside it the largest and smallest of the steps of a quarter \
         of a second. The headers of Ethernet, IP and TCP, which tc counts as well, are 4.4 % of a full \
         segment.",
    );
    let columns = ["From", "Flow", "Should", "Mean", "Off by", "Steps"].map(str::to_owned);
    let mut table = Table::new("Run", columns.to_vec());
    let mut drawn = Vec::new();
    for figure in figures {
        let name = name(figure);
        match (&figure.outcome, FlowsFigure::deserialize(&figure.detail)) {
            (Outcome::Complete, Ok(told)) => {
                rows(&mut table, &name, &told);
                drawn.push((name, told));
            }
            (outcome, _) => {
                let reason = match outcome {
                    Outcome::Failed(reason) | Outcome::Skipped(reason) => reason.clone(),
                    Outcome::Complete | Outcome::TimedOut => "nothing was counted".to_owned(),
                };
                let failed = table.with_note("-", reason);
                table.row(
                    &name,
                    false,
                    vec!["-".into(), "-".into(), "-".into(), failed, "-".into(), "-".into()],
                );
            }
        }
    }
    part.table(&table);
    for (name, told) in &drawn {
        part.chart(source, name, &chart(name, told, source));
    }
    Some(part)
}

/// Returns the subject, the program and the direction of a figure of flows.
fn name(figure: &Figure) -> String {
    let word = |name| parameter(figure, name).unwrap_or_default();
    let who = if figure.who == "open-iscsi" { "open-iscsi, tc htb" } else { &figure.who };
    format!("{}, {who}, {}", word("flows"), word("direction"))
}

fn rows(table: &mut Table, name: &str, told: &FlowsFigure) {
    let begins = std::iter::once(0.0).chain(told.orders.iter().map(|(at, _)| *at));
    for (phase, begin) in begins.enumerate() {
        let end = told.orders.get(phase).map_or(f64::INFINITY, |(at, _)| *at);
        for (flow, flow_name) in told.flows.iter().enumerate() {
            let mean = told.means(flow).get(phase).copied().unwrap_or_default();
            let expected = told.expected.get(phase).and_then(|phase| phase.get(flow)).copied();
            let expected = expected.filter(|rate| *rate >= 0.0);
            let off = expected.filter(|rate| *rate > 0.0).map(|rate| (mean / rate - 1.0) * 100.0);
            let rates =
                told.rates(flow).into_iter().filter(|(at, _)| *at > begin + 1.25 && *at <= end);
            let (low, high) = rates.fold((f64::INFINITY, 0.0_f64), |(low, high), (_, rate)| {
                (low.min(rate), high.max(rate))
            });
            table.row(
                if phase == 0 && flow == 0 { name } else { "" },
                false,
                vec![
                    format!("{begin:.0} s"),
                    flow_name.clone(),
                    expected.map_or_else(|| "-".to_owned(), text::plain),
                    format!("{mean:.2}"),
                    off.map_or_else(|| "-".to_owned(), |off| format!("{off:+.1} %")),
                    format!("{low:.1} to {high:.1}"),
                ],
            );
        }
    }
}

fn chart(name: &str, told: &FlowsFigure, source: &Source) -> Chart {
    let lines = told.flows.iter().enumerate().map(|(flow, name)| Line {
        name: name.clone(),
        bold: false,
        points: means_of_two(&told.rates(flow)),
    });
    Chart {
        title: name.to_owned(),
        subtitle: "Mbit/s of TCP payload at the target, in steps of half a second".to_owned(),
        caption: source.caption.clone(),
        x: Axis {
            title: "seconds".to_owned(),
            scale: Scale::Linear { from: 0.0, to: told.seconds.last().copied().unwrap_or(1.0) },
            text: text::plain,
            before: None,
            after: None,
        },
        y_title: "Mbit/s".to_owned(),
        from_zero: true,
        lines: lines.collect(),
        levels: Vec::new(),
        marks: told.orders.iter().map(|(at, order)| (order.clone(), *at)).collect(),
    }
}

/// Returns a point for every two steps, with their mean: the chart has no room for more points.
fn means_of_two(rates: &[(f64, f64)]) -> Vec<Point> {
    let pairs = rates.chunks_exact(2).filter_map(|pair| match pair {
        [(_, one), (at, other)] => {
            Some(Point { position: Position::At(*at), y: Some((one + other) / 2.0) })
        }
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::draw::sample;

    #[test]
    fn each_flow_is_told_between_the_orders_with_what_was_expected() {
        let seconds: Vec<f64> = (0..=24).map(|step| f64::from(step) / 4.0).collect();
        // 8 Mbit/s for 3 s, then 4 Mbit/s.
        let bytes =
            |step: u32| if step <= 12 { 250_000 * step } else { 3_000_000 + 125_000 * (step - 12) };
        let detail = json!({
            "flows": ["one"],
            "seconds": seconds,
            "bytes": (0..=24).map(|step| [bytes(step)]).collect::<Vec<_>>(),
            "orders": [[3.0, "rate 4mbit"]],
            "expected": [[10.0], [-1.0]],
        });
        let mut ruled = sample::outcome("block-copy", 10.0, Outcome::Complete);
        let words = [("flows", "a limit"), ("direction", "write")];
        ruled.parameters = words.map(|(name, word)| (name.to_owned(), word.to_owned())).into();
        ruled.detail = detail;
        assert!(is_ruled(&ruled));
        let source = Source { name: "flows".to_owned(), caption: String::new() };
        let part = part(&[&ruled], &source).unwrap();
        let (_, table) = part.markdown.split_once("segment.\n\n").unwrap();
        insta::assert_snapshot!(table, @r"
        | Run | From | Flow | Should | Mean | Off by | Steps |
        |---|---:|---:|---:|---:|---:|---:|
        | a limit, block-copy, write | 0 s | one | 10 | 8.00 | -20.0 % | 8.0 to 8.0 |
        |  | 3 s | one | - | 4.00 | - | 4.0 to 4.0 |

        ![a limit, block-copy, write](flows-a-limit-block-copy-write.svg)
        ");
        assert_eq!(part.charts.len(), 1);
    }

    #[test]
    fn a_number_of_flows_rules_none() {
        let mut measured = sample::figure("iperf3", 100.0, 90.0);
        assert!(!is_ruled(&measured));
        measured.parameters.insert("flows".to_owned(), "16".to_owned());
        assert!(!is_ruled(&measured));
        // A failed figure appears in the same part.
        measured.parameters.insert("flows".to_owned(), "16 in flight".to_owned());
        assert!(is_ruled(&measured));
    }
}
