//! Draws units that are joined to one device: the rate over several links beside the rate over one link.

use super::axis::{Axis, Position, Scale};
use super::chart::{Chart, Line, Point};
use super::group::{ascending, direction, group, parameter};
use super::names;
use super::part::{Part, Source};
use super::style::is_ours;
use super::table::Table;
use super::text;
use crate::result::{Figure, Outcome};

/// Returns whether a figure is of units that are joined to one device.
pub(super) fn is_stripe(figure: &Figure) -> bool {
    parameter(figure, "links").is_some()
}

/// Returns the part of a page about joined units; `None` without any.
pub(super) fn part(figures: &[&Figure], source: &Source) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let mut part = Part::new("Several links as one");
    part.paragraph(
        "Mbit/s, and beside it how many times what the same program had over one link. Each link has a unit of \
         its own, and moves as many bytes whatever the number of links. The time is that of the whole \
         process; of md it is that of fio's requests alone, without the login and the start of fio.",
    );
    for ((direction, link), figures) in group(figures, |figure| {
        let link = &figure.link;
        (direction(figure), (link.rtt_ms, link.rate_mbit_per_s, link.loss_percent))
    }) {
        let (rtt, rate, loss) = link;
        let flow = names::flow(direction, rate);
        let heading = format!("{flow} each, {} ms, {}", text::plain(rtt), names::loss(loss));
        let series = series(&figures);
        let links = ascending(figures.iter().filter_map(|figure| links_of(figure)));
        part.subheading(&heading);
        part.table(&table(&series, &links));
        let chart = chart(&heading, &series, &links, rate, source);
        part.chart(source, &format!("{direction} {} ms", text::plain(rtt)), &chart);
    }
    Some(part)
}

fn links_of(figure: &Figure) -> Option<f64> {
    parameter(figure, "links")?.parse().ok()
}

/// The figures of one program with the same words on its command line.
type Series<'a> = (String, Vec<&'a Figure>);

fn series<'a>(figures: &[&'a Figure]) -> Vec<Series<'a>> {
    group(figures, |figure: &'a Figure| match parameter(figure, "args") {
        Some(words) => format!("{} {words}", figure.who),
        None => figure.who.clone(),
    })
}

/// Returns whether a series is of this project's programs.
fn is_of_ours((_, figures): &Series<'_>) -> bool {
    figures.first().is_some_and(|figure| is_ours(&figure.who))
}

/// Selects a rate of a figure.
type Which = fn(&Figure) -> Option<f64>;

const WHOLE: Which = |figure| figure.goodput_mbit_per_s;
/// Selects the steady rate, for writes only. A copy that reads counts its bytes in the order of their
/// offsets, so bytes that arrived in the first seconds may be counted later.
const STEADY: Which = |figure| figure.steady_mbit_per_s.filter(|_| direction(figure) == "write");

/// Returns the rate of a program over `count` links, Mbit/s: the median of its repetitions.
fn rate((_, figures): &Series<'_>, count: f64, which: Which) -> Option<f64> {
    let of = figures.iter().filter(|figure| links_of(figure) == Some(count));
    let mut rates: Vec<_> = of.filter_map(|figure| which(figure)).collect();
    rates.sort_by(f64::total_cmp);
    let (low, high) = (rates.get(rates.len().saturating_sub(1) / 2)?, rates.get(rates.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

fn table(all: &[Series<'_>], links: &[f64]) -> Table {
    let column = |count: &f64| match *count {
        1.0 => "1 link".to_owned(),
        count => format!("{} links", text::plain(count)),
    };
    let mut table = Table::new("Mbit/s", links.iter().map(column).collect());
    for series in all {
        let cells = links.iter().map(|count| cell(series, *count, WHOLE, &mut table)).collect();
        table.row(&series.0, is_of_ours(series), cells);
        if links.iter().any(|count| rate(series, *count, STEADY).is_some()) {
            let name = format!("{}, from the fifth second on", series.0);
            let cells =
                links.iter().map(|count| cell(series, *count, STEADY, &mut table)).collect();
            table.row(&name, is_of_ours(series), cells);
        }
    }
    table
}

fn cell(series: &Series<'_>, count: f64, which: Which, table: &mut Table) -> String {
    if let Some(own) = rate(series, count, which) {
        let times = rate(series, 1.0, which).filter(|_| count > 1.0).map(|one| own / one);
        let times = times.map_or_else(String::new, |times| format!(" ({times:.2} times)"));
        return text::rate(own) + &times;
    }
    let of = series.1.iter().find(|figure| links_of(figure) == Some(count));
    match of.map(|figure| &figure.outcome) {
        Some(Outcome::Failed(reason)) => table.with_note("failed", reason.clone()),
        Some(Outcome::Skipped(reason)) => table.with_note("skipped", reason.clone()),
        Some(Outcome::TimedOut) => "no end in time".to_owned(),
        Some(Outcome::Complete) | None => "-".to_owned(),
    }
}

fn chart(
    heading: &str,
    all: &[Series<'_>],
    links: &[f64],
    link_rate: Option<f64>,
    source: &Source,
) -> Chart {
    let line = |series: &Series<'_>| Line {
        name: series.0.clone(),
        bold: is_of_ours(series),
        points: links
            .iter()
            .filter(|count| series.1.iter().any(|figure| links_of(figure) == Some(**count)))
            .map(|count| Point { position: Position::At(*count), y: rate(series, *count, WHOLE) })
            .collect(),
    };
    let most = links.last().copied().unwrap_or(1.0);
    let levels = links.iter().filter_map(|count| {
        let rate = link_rate? * count;
        Some((format!("{} x link rate", text::plain(*count)), rate))
    });
    Chart {
        title: heading.to_owned(),
        subtitle: "Mbit/s of all links together, by their number".to_owned(),
        caption: source.caption.clone(),
        x: Axis {
            title: "links, each with a unit of its own".to_owned(),
            scale: Scale::Linear { from: 0.0, to: most },
            text: text::plain,
            before: None,
            after: None,
        },
        y_title: "Mbit/s".to_owned(),
        from_zero: true,
        lines: all.iter().map(line).collect(),
        levels: levels.collect(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::sample;

    fn figure(who: &str, links: &str, rate: f64) -> Figure {
        let words = [("links", links), ("chunk", "512K"), ("direction", "write")];
        let parameters = words.map(|(name, word)| (name.to_owned(), word.to_owned())).into();
        Figure { parameters, ..sample::figure(who, 100.0, rate) }
    }

    fn figure_of(links: &str, rate: f64) -> Figure {
        let mut figure = figure("block-copy", links, rate);
        figure.parameters.insert("args".to_owned(), "--sessions 1".to_owned());
        figure
    }

    #[test]
    fn several_links_are_told_beside_one() {
        let missing = Outcome::Skipped("`mdadm` is missing".to_owned());
        let figures = [
            Figure { steady_mbit_per_s: Some(95.0), ..figure("block-copy", "1", 90.0) },
            figure("block-copy", "2", 178.2),
            figure("block-copy", "2", 176.4),
            figure("md-raid0", "1", 50.0),
            Figure { goodput_mbit_per_s: None, outcome: missing, ..figure("md-raid0", "2", 0.0) },
            figure_of("1", 91.0),
            figure_of("2", 182.0),
        ];
        assert!(figures.iter().all(is_stripe));
        let source = Source { name: "stripe".to_owned(), caption: String::new() };
        let part = part(&figures.iter().collect::<Vec<_>>(), &source).unwrap();
        let (_, page) = part.markdown.split_once("start of fio.\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        ### Writes over 100 Mbit/s each, 100 ms, no loss

        | Mbit/s | 1 link | 2 links |
        |---|---:|---:|
        | **block-copy** | 90.0 | 177 (1.97 times) |
        | **block-copy, from the fifth second on** | 95.0 | - |
        | md-raid0 | 50.0 | skipped<sup>1</sup> |
        | **block-copy --sessions 1** | 91.0 | 182 (2.00 times) |

        <sup>1</sup> \`mdadm\` is missing

        ![Writes over 100 Mbit/s each, 100 ms, no loss](stripe-write-100-ms.svg)
        ");
        assert_eq!(part.charts.len(), 1);
    }

    #[test]
    fn reads_have_no_rate_of_their_own_without_the_start() {
        let mut read = Figure { steady_mbit_per_s: Some(95.0), ..figure("block-copy", "1", 90.0) };
        read.parameters.insert("direction".to_owned(), "read".to_owned());
        assert_eq!([WHOLE, STEADY].map(|which| which(&read)), [Some(90.0), None]);
    }
}
