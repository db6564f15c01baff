//! Compares two initiators without a simulated link to the target: the cost of the same requests for each.

mod figures;
mod many_disks;

use super::bars::{Bar, Bars, Row};
use super::group::{direction, group, parameter};
use super::part::{Part, Source};
use super::table::Table;
use super::text;
use crate::result::Figure;
use crate::size::Size;
use figures::{
    BARE, CALLS, FAULTS, Goal, LATENCY, MIB_PER_S, OURS, PROCESSOR, SWITCHES, TARGET, THEIRS,
    WAITS, What, cell, median, number, ratio, ratio_words,
};

/// Name of the testkit's target in the figures. That target is faster than tgtd.
const TESTKIT: &str = "testkit";

/// Returns whether a figure is of a short link.
pub(super) fn is_short_link(figure: &Figure) -> bool {
    parameter(figure, "short_link").is_some()
}

/// Returns the part of a page about short links; `None` without any.
pub(super) fn part(figures: &[&Figure], source: &Source) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let of_kind = |kind: &str| -> Vec<&Figure> {
        let is_kind = |figure: &&Figure| parameter(figure, "short_link") == Some(kind);
        figures.iter().copied().filter(is_kind).collect()
    };
    let (runs, calls) = (of_kind("run"), of_kind("calls"));
    let mut part = Part::new("The same requests, beside libiscsi");
    part.paragraph(
        "Medians of all runs, with the lowest and the highest; the programs took turns, run by run. A ratio is ours by libiscsi's. Processor time is \
         that of the program alone, user and system, without login and warm-up. The target, tgtd unless another is named, runs on the same \
         processors, and so does the other end of the TCP stream.",
    );
    for runtime in runtimes(&runs) {
        let loads = loads(&runs, &calls, runtime);
        part.subheading(runtime_words(runtime));
        throughput(&mut part, &loads);
        processor(&mut part, &loads);
        latency(&mut part, &loads);
        events(&mut part, &loads);
        part.picture(source, runtime, "Ratios", chart(&loads, runtime, source).svg());
    }
    many_disks::add_table(&mut part, &of_kind("disks"), &of_kind("idle"));
    Some(part)
}

/// Returns the runtimes of this project's initiator.
fn runtimes<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    let ours: Vec<_> = figures.iter().copied().filter(|figure| figure.who == OURS).collect();
    let runtimes = group(&ours, |figure: &'a Figure| parameter(figure, "runtime"));
    runtimes.into_iter().filter_map(|(runtime, _)| runtime).collect()
}

fn runtime_words(runtime: &str) -> &str {
    match runtime {
        "current" => "The initiator on one thread",
        "multi" => "The initiator on a thread for each processor",
        other => other,
    }
}

/// A load, with the figures of each program.
struct Load<'a> {
    direction: &'a str,
    io: u64,
    depth: &'a str,
    digests: &'a str,
    ours: Vec<&'a Figure>,
    theirs: Vec<&'a Figure>,
    /// This project's figures of the load against the testkit's target.
    ours_on_testkit: Vec<&'a Figure>,
    theirs_on_testkit: Vec<&'a Figure>,
    bare: Vec<&'a Figure>,
    our_calls: Vec<&'a Figure>,
    their_calls: Vec<&'a Figure>,
}

type Key<'a> = [&'a str; 4];

fn key(figure: &Figure) -> Key<'_> {
    let word = |name| parameter(figure, name).unwrap_or_default();
    [direction(figure), word("io"), word("depth"), word("digests")]
}

fn loads<'a>(runs: &[&'a Figure], calls: &[&'a Figure], runtime: &str) -> Vec<Load<'a>> {
    let load = |(key, figures): (Key<'a>, Vec<&'a Figure>)| {
        let (on_testkit, figures): (Vec<_>, Vec<_>) =
            figures.into_iter().partition(|figure| parameter(figure, "target") == Some(TESTKIT));
        let same: Vec<_> =
            calls.iter().copied().filter(|figure| self::key(figure) == key).collect();
        let [direction, io, depth, digests] = key;
        Load {
            direction,
            io: io.parse::<Size>().map_or(0, |size| size.0),
            depth,
            digests,
            ours: by(OURS, &figures, runtime),
            theirs: by(THEIRS, &figures, runtime),
            ours_on_testkit: by(OURS, &on_testkit, runtime),
            theirs_on_testkit: by(THEIRS, &on_testkit, runtime),
            bare: by(BARE, &figures, runtime),
            our_calls: by(OURS, &same, runtime),
            their_calls: by(THEIRS, &same, runtime),
        }
    };
    group(runs, |figure: &'a Figure| key(figure)).into_iter().map(load).collect()
}

/// Returns the figures of a program. If it has figures on several runtimes, only those on `runtime`.
fn by<'a>(who: &str, figures: &[&'a Figure], runtime: &str) -> Vec<&'a Figure> {
    let is_own = |figure: &&Figure| {
        figure.who == who && parameter(figure, "runtime").is_none_or(|word| word == runtime)
    };
    figures.iter().copied().filter(is_own).collect()
}

impl Load<'_> {
    fn name(&self) -> String {
        let what = if self.direction == "read" { "Read" } else { "Write" };
        let digests = match self.digests {
            "header" => ", header digests",
            "both" => ", digests of all",
            _ => "",
        };
        format!("{what} {} x {}{digests}", text::bytes(self.io as f64), self.depth)
    }

    /// Returns the medians of this project and of the other program.
    fn pair(&self, what: What) -> (Option<f64>, Option<f64>) {
        (median(&self.ours, what), median(&self.theirs, what))
    }

    fn ratio(&self, what: What) -> Option<f64> {
        ratio(self.pair(what))
    }

    fn throughput_goal(&self) -> Goal {
        Goal::AtLeast(if (self.io, self.depth) == (4096, "32") { 1.4 } else { 1.0 })
    }

    fn processor_goal(&self) -> Option<Goal> {
        let most = match (self.digests, self.depth, self.direction) {
            ("both", ..) => 0.3,
            ("header", ..) => return None,
            (_, "1", _) => 1.0,
            (_, _, "read") if self.io >= 64 << 10 => 0.85,
            _ if self.io >= 64 << 10 => 0.45,
            _ => 0.6,
        };
        Some(Goal::AtMost(most))
    }
}

/// Returns a table that compares this project with another program.
fn versus(corner: &str, other: &str, share: &str) -> Table {
    Table::new(corner, [OURS, other, share, "goal"].map(str::to_owned).into())
}

fn throughput(part: &mut Part, loads: &[Load<'_>]) {
    part.paragraph("Throughput, MiB/s:");
    let mut table = versus("MiB/s", THEIRS, "ratio");
    for load in loads {
        row(&mut table, load, MIB_PER_S, Some(load.throughput_goal()));
    }
    part.table(&table);
    on_testkit(part, loads);
    beside_a_stream(part, loads);
}

/// Adds the comparison against the testkit's target, which is faster than tgtd.
fn on_testkit(part: &mut Part, loads: &[Load<'_>]) {
    let loads: Vec<_> = loads.iter().filter(|load| !load.ours_on_testkit.is_empty()).collect();
    if loads.is_empty() {
        return;
    }
    part.paragraph(
        "The same against the testkit's target, in a process of its own, with a unit that keeps nothing: it sends without a copy what is read, \
         throws away what is written, and checks every PDU. Throughput, MiB/s; processor time of a request; and the share of one processor \
         that the target took, each ours and libiscsi's:",
    );
    let columns =
        [OURS, THEIRS, "ratio", "goal", "µs of the processor a request", "target's processor"];
    let mut table = Table::new("MiB/s", columns.map(str::to_owned).into());
    for load in loads {
        let (ours, theirs) = (&load.ours_on_testkit, &load.theirs_on_testkit);
        let pair = |what| (median(ours, what), median(theirs, what));
        let throughput = ratio(pair(MIB_PER_S));
        let cells = vec![
            cell(&mut table, ours, MIB_PER_S),
            cell(&mut table, theirs, MIB_PER_S),
            ratio_words(throughput),
            load.throughput_goal().judge(throughput),
            pair_words(pair(PROCESSOR)),
            pair_words(pair(TARGET)),
        ];
        table.row(&load.name(), false, cells);
    }
    part.table(&table);
}

/// Compares this project, against the testkit's target, with TCP without iSCSI.
fn beside_a_stream(part: &mut Part, loads: &[Load<'_>]) {
    let is_there = |load: &&Load<'_>| !load.ours_on_testkit.is_empty() && !load.bare.is_empty();
    let loads: Vec<_> = loads.iter().filter(is_there).collect();
    if loads.is_empty() {
        return;
    }
    part.paragraph(
        "Against that target, beside a TCP stream that sends a header and as much data each time, to a thread that throws it away, MiB/s. \
         What it reads comes into as many buffers as there are requests in flight:",
    );
    let mut table = versus("MiB/s", BARE, "share");
    for load in loads {
        let ours = &load.ours_on_testkit;
        let share = ratio((median(ours, MIB_PER_S), median(&load.bare, MIB_PER_S)));
        let cells = vec![
            cell(&mut table, ours, MIB_PER_S),
            cell(&mut table, &load.bare, MIB_PER_S),
            ratio_words(share),
            Goal::AtLeast(0.9).judge(share),
        ];
        table.row(&load.name(), false, cells);
    }
    part.table(&table);
}

fn processor(part: &mut Part, loads: &[Load<'_>]) {
    part.paragraph(
        "Processor time of a request, microseconds; the ratio is as well that of the processor time of a byte:",
    );
    let mut table = versus("µs a request", THEIRS, "ratio");
    for load in loads {
        row(&mut table, load, PROCESSOR, load.processor_goal());
    }
    part.table(&table);
}

fn latency(part: &mut Part, loads: &[Load<'_>]) {
    let loads: Vec<_> = loads.iter().filter(|load| load.pair(LATENCY) != (None, None)).collect();
    if loads.is_empty() {
        return;
    }
    part.paragraph(
        "From a request to its end with one in flight, microseconds; the median of each run:",
    );
    let mut table = versus("µs", THEIRS, "ratio");
    for load in loads {
        row(&mut table, load, LATENCY, Some(Goal::AtMost(1.0)));
    }
    part.table(&table);
}

fn row(table: &mut Table, load: &Load<'_>, what: What, goal: Option<Goal>) {
    let ratio = load.ratio(what);
    let cells = vec![
        cell(table, &load.ours, what),
        cell(table, &load.theirs, what),
        ratio_words(ratio),
        goal.map_or_else(|| "-".to_owned(), |goal| goal.judge(ratio)),
    ];
    table.row(&load.name(), false, cells);
}

/// Adds the table of kernel events, such as system calls.
fn events(part: &mut Part, loads: &[Load<'_>]) {
    part.paragraph(
        "Of a request, ours and libiscsi's, with the ratio: page faults; switches because the program waited, and because it \
         had to give way; system calls of a run of its own, from the program's start to its end. Beside them, the share of \
         one processor that the target took: near 1, it sets the rate.",
    );
    let columns = ["page faults", "waits", "gave way", "system calls", "target's processor"];
    let mut table = Table::new("a request", columns.map(str::to_owned).into());
    for load in loads {
        let calls = (median(&load.our_calls, CALLS), median(&load.their_calls, CALLS));
        let pairs =
            [load.pair(FAULTS), load.pair(WAITS), load.pair(SWITCHES), calls, load.pair(TARGET)];
        table.row(&load.name(), false, pairs.map(pair_words).into());
    }
    part.table(&table);
}

fn pair_words(pair: (Option<f64>, Option<f64>)) -> String {
    let word = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let words = format!("{} / {}", word(pair.0), word(pair.1));
    ratio(pair).map_or_else(|| words.clone(), |ratio| format!("{words} ({ratio:.2})"))
}

fn chart(loads: &[Load<'_>], runtime: &str, source: &Source) -> Bars {
    let bar = |value: Option<f64>| value.map_or(Bar::None, Bar::Good);
    let row = |load: &Load<'_>| Row {
        name: load.name(),
        bars: vec![bar(load.ratio(MIB_PER_S)), bar(load.ratio(PROCESSOR))],
        mark: Some(1.0),
    };
    Bars {
        title: "Ours by libiscsi's".to_owned(),
        subtitle: format!("{}; medians", runtime_words(runtime)),
        caption: source.caption.clone(),
        x_title: "ratio".to_owned(),
        series: vec!["throughput".to_owned(), "processor time of a request".to_owned()],
        mark: "as libiscsi".to_owned(),
        rows: loads.iter().filter(|load| load.ratio(MIB_PER_S).is_some()).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::draw::sample;
    use crate::result::Outcome;

    fn figure(kind: &str, who: &str, load: [&str; 4], detail: Value) -> Figure {
        let [direction, io, depth, digests] = load;
        let words = [
            ("short_link", kind),
            ("direction", direction),
            ("io", io),
            ("depth", depth),
            ("digests", digests),
            ("runtime", "current"),
        ];
        let told = words.into_iter().filter(|(name, _)| *name != "runtime" || who == OURS);
        let seconds = detail["seconds"].as_f64();
        Figure {
            parameters: told.map(|(name, word)| (name.to_owned(), word.to_owned())).collect(),
            seconds,
            goodput_mbit_per_s: seconds.map(|seconds| f64::from(64 << 20) * 8e-6 / seconds),
            detail,
            ..sample::figure(who, 0.0, 0.0)
        }
    }

    fn run(who: &str, load: [&str; 4], seconds: f64) -> Figure {
        let detail = json!({
            "seconds": seconds, "cpu_seconds": seconds / 2.0, "minor_faults": 512,
            "voluntary_switches": 1024, "involuntary_switches": 0, "target_busy": 0.98,
        });
        figure("run", who, load, detail)
    }

    fn on_testkit(who: &str, seconds: f64) -> Figure {
        let mut figure = run(who, LARGE, seconds);
        figure.parameters.insert("target".to_owned(), TESTKIT.to_owned());
        figure
    }

    const LARGE: [&str; 4] = ["read", "64K", "32", "none"];
    const ALL: [&str; 4] = ["write", "64K", "32", "both"];

    fn page(figures: &[Figure]) -> Part {
        let source = Source { name: "short-link".to_owned(), caption: String::new() };
        assert!(figures.iter().all(is_short_link));
        part(&figures.iter().collect::<Vec<_>>(), &source).unwrap()
    }

    #[test]
    fn two_initiators_stand_side_by_side() {
        let missing = Outcome::Skipped("this libiscsi has no data digests".to_owned());
        let slow = figure("run", OURS, ["read", "4K", "1", "none"], json!({ "latency_us": 30.0 }));
        let part = page(&[
            run(OURS, LARGE, 0.5),
            run(THEIRS, LARGE, 1.0),
            run(BARE, LARGE, 0.4),
            on_testkit(OURS, 0.5),
            on_testkit(OURS, 0.4),
            on_testkit(THEIRS, 0.5),
            run(OURS, LARGE, 0.3),
            run(THEIRS, LARGE, 0.6),
            run(OURS, ALL, 1.0),
            Figure { outcome: missing, ..figure("run", THEIRS, ALL, Value::Null) },
            slow,
            figure("calls", OURS, LARGE, json!({ "system_calls": 2048 })),
            figure("calls", THEIRS, LARGE, json!({ "system_calls": 4096 })),
        ]);
        let (_, page) = part.markdown.split_once("TCP stream.\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        ### The initiator on one thread

        Throughput, MiB/s:

        | MiB/s | iscsi-initiator | libiscsi | ratio | goal |
        |---|---:|---:|---:|---:|
        | Read 64 KiB x 32 | 171 (128..213) | 85.3 (64.0..107) | 2.00 | at least 1.00: reached |
        | Write 64 KiB x 32, digests of all | 64.0 | unsupported<sup>1</sup> | - | at least 1.00 |
        | Read 4 KiB x 1 | - | - | - | at least 1.00 |

        <sup>1</sup> this libiscsi has no data digests

        The same against the testkit's target, in a process of its own, with a unit that keeps nothing: it sends without a copy what is read, throws away what is written, and checks every PDU. Throughput, MiB/s; processor time of a request; and the share of one processor that the target took, each ours and libiscsi's:

        | MiB/s | iscsi-initiator | libiscsi | ratio | goal | µs of the processor a request | target's processor |
        |---|---:|---:|---:|---:|---:|---:|
        | Read 64 KiB x 32 | 144 (128..160) | 128 | 1.12 | at least 1.00: reached | 220 / 244 (0.90) | 0.98 / 0.98 (1.00) |

        Against that target, beside a TCP stream that sends a header and as much data each time, to a thread that throws it away, MiB/s. What it reads comes into as many buffers as there are requests in flight:

        | MiB/s | iscsi-initiator | TCP stream | share | goal |
        |---|---:|---:|---:|---:|
        | Read 64 KiB x 32 | 144 (128..160) | 160 | 0.90 | at least 0.90: reached |

        Processor time of a request, microseconds; the ratio is as well that of the processor time of a byte:

        | µs a request | iscsi-initiator | libiscsi | ratio | goal |
        |---|---:|---:|---:|---:|
        | Read 64 KiB x 32 | 195 (146..244) | 391 (293..488) | 0.50 | at most 0.85: reached |
        | Write 64 KiB x 32, digests of all | 488 | unsupported<sup>1</sup> | - | at most 0.30 |
        | Read 4 KiB x 1 | - | - | - | at most 1.00 |

        <sup>1</sup> this libiscsi has no data digests

        From a request to its end with one in flight, microseconds; the median of each run:

        | µs | iscsi-initiator | libiscsi | ratio | goal |
        |---|---:|---:|---:|---:|
        | Read 4 KiB x 1 | 30.0 | - | - | at most 1.00 |

        Of a request, ours and libiscsi's, with the ratio: page faults; switches because the program waited, and because it had to give way; system calls of a run of its own, from the program's start to its end. Beside them, the share of one processor that the target took: near 1, it sets the rate.

        | a request | page faults | waits | gave way | system calls | target's processor |
        |---|---:|---:|---:|---:|---:|
        | Read 64 KiB x 32 | 0.50 / 0.50 (1.00) | 1.00 / 1.00 (1.00) | 0 / 0 | 2.00 / 4.00 (0.50) | 0.98 / 0.98 (1.00) |
        | Write 64 KiB x 32, digests of all | 0.50 / - | 1.00 / - | 0 / - | - / - | 0.98 / - |
        | Read 4 KiB x 1 | - / - | - / - | - / - | - / - | - / - |

        ![Ratios](short-link-current.svg)
        ");
        assert_eq!(part.charts.len(), 1);
        assert!(part.charts[0].1.contains(">2.00<"), "the throughput's ratio");
    }
}
