//! Draws the table of many disks in one process: the cost of a read by the number of disks.

use super::figures::{
    Goal, IDLE, OURS, PROCESSOR, THEIRS, USER, What, cell, median, ratio, ratio_words, requests,
};
use crate::draw::group::{group, parameter};
use crate::draw::part::Part;
use crate::draw::table::Table;
use crate::result::Figure;

/// The number of disks for which there is a goal: a read must cost little more than with one disk.
const MANY: &str = "1000";
const GOAL: Goal = Goal::AtMost(1.3);
const RATE: What = |figure| Some(requests(figure)? / figure.seconds?);

/// Adds the table of the disks, from runs in which they read and from runs in which they were idle.
pub(super) fn add_table(part: &mut Part, busy: &[&Figure], idle: &[&Figure]) {
    let all: Vec<_> = busy.iter().chain(idle).copied().collect();
    if all.is_empty() {
        return;
    }
    part.subheading("Many disks in one process");
    part.paragraph(
        "Each disk has a session of its own, or is a unit of a target to which one session leads for all, with reads of 4 KiB, four in flight: what a \
         read costs, how much of that is spent outside the kernel, and how it compares with a lone disk and with libiscsi, whose sessions share one \
         epoll(7). The session alone is this project's state machine \
         on the runtime's sockets, without paths, time limits and a tuner: an initiator on top of it comes to more. And the processor's seconds in a \
         second in which nothing is asked of the disks:",
    );
    let columns = [
        "µs of the processor a read",
        "outside the kernel",
        "times a lone disk's",
        "goal",
        "by libiscsi's",
        "reads a second",
        "idle, s/s",
    ];
    let mut table = Table::new("disks", columns.map(str::to_owned).into());
    for (who, figures) in group(&all, who) {
        let lone = median(&of(&figures, "disks", "1"), PROCESSOR);
        for (disks, figures) in group(&figures, disks) {
            let busy = of(&figures, "short_link", "disks");
            let theirs = |figure: &&Figure| figure.who == THEIRS && self::disks(figure) == disks;
            let theirs: Vec<_> = all.iter().copied().filter(theirs).collect();
            let cost = median(&busy, PROCESSOR);
            let by_lone = ratio((cost, lone));
            let has_goal =
                disks.starts_with(MANY) && figures.iter().any(|figure| figure.who == OURS);
            let cells = vec![
                cell(&mut table, &busy, PROCESSOR),
                cell(&mut table, &busy, USER),
                ratio_words(by_lone),
                if has_goal { GOAL.judge(by_lone) } else { "-".to_owned() },
                ratio_words(ratio((cost, median(&theirs, PROCESSOR)))),
                cell(&mut table, &busy, RATE),
                cell(&mut table, &of(&figures, "short_link", "idle"), IDLE),
            ];
            table.row(&format!("{disks}, {who}"), false, cells);
        }
    }
    part.table(&table);
}

/// Returns the program of a figure; for this project's program, the runtime.
fn who(figure: &Figure) -> String {
    if figure.who == OURS {
        format!("runtime {}", word(figure, "runtime"))
    } else {
        figure.who.clone()
    }
}

/// Returns the number of disks, and whether they share one session.
fn disks(figure: &Figure) -> String {
    let disks = word(figure, "disks");
    match parameter(figure, "sessions") {
        Some(_) => format!("{disks} over one session"),
        None => disks,
    }
}

fn word(figure: &Figure, name: &str) -> String {
    parameter(figure, name).unwrap_or_default().to_owned()
}

/// Returns the figures with this value of a parameter.
fn of<'a>(figures: &[&'a Figure], name: &str, value: &str) -> Vec<&'a Figure> {
    figures.iter().copied().filter(|figure| parameter(figure, name) == Some(value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::draw::sample;

    fn figure(who: &str, kind: &str, disks: &str, detail: Value) -> Figure {
        let words = [
            ("short_link", kind),
            ("io", "4K"),
            ("depth", "4"),
            ("runtime", "current"),
            ("disks", disks),
        ];
        let told = words.into_iter().filter(|(name, _)| *name != "runtime" || who == OURS);
        Figure {
            parameters: told.map(|(name, word)| (name.to_owned(), word.to_owned())).collect(),
            seconds: detail["seconds"].as_f64(),
            detail,
            ..sample::figure(who, 0.0, 0.0)
        }
    }

    fn busy(who: &str, disks: &str, cpu: f64) -> Figure {
        let detail = json!({ "seconds": 2.0, "cpu_seconds": cpu, "user_seconds": cpu / 4.0 });
        figure(who, "disks", disks, detail)
    }

    fn over_one_session(mut figure: Figure) -> Figure {
        figure.parameters.insert("sessions".to_owned(), "1".to_owned());
        figure
    }

    #[test]
    fn they_are_told_by_their_number() {
        let idle = figure(OURS, "idle", "1000", json!({ "seconds": 10.0, "cpu_seconds": 0.1 }));
        let figures = [
            busy(OURS, "1", 0.5),
            busy(THEIRS, "1", 0.6),
            busy("session alone", "1", 0.4),
            busy(OURS, "1000", 1.0),
            busy(THEIRS, "1000", 0.8),
            idle,
            over_one_session(busy(OURS, "1000", 0.6)),
        ];
        let mut part = Part::new("");
        let (idle, busy): (Vec<_>, Vec<_>) =
            figures.iter().partition(|figure| parameter(figure, "short_link") == Some("idle"));
        add_table(&mut part, &busy, &idle);
        let (_, page) = part.markdown.split_once("of the disks:\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        | disks | µs of the processor a read | outside the kernel | times a lone disk's | goal | by libiscsi's | reads a second | idle, s/s |
        |---|---:|---:|---:|---:|---:|---:|---:|
        | 1, runtime current | 30.5 | 7.63 | 1.00 | - | 0.83 | 8192 | - |
        | 1000, runtime current | 61.0 | 15.3 | 2.00 | at most 1.30: missed | 1.25 | 8192 | 0.0100 |
        | 1000 over one session, runtime current | 36.6 | 9.16 | 1.20 | at most 1.30: reached | - | 8192 | - |
        | 1, libiscsi | 36.6 | 9.16 | 1.00 | - | 1.00 | 8192 | - |
        | 1000, libiscsi | 48.8 | 12.2 | 1.33 | - | 1.00 | 8192 | - |
        | 1, session alone | 24.4 | 6.10 | 1.00 | - | 0.67 | 8192 | - |
        ");
    }
}
