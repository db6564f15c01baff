//! Draws the table of copies through faults: how each copy ended, and the longest time without progress.

use serde::Deserialize;

use super::group::parameter;
use super::part::Part;
use super::table::Table;
use super::text;
use crate::faults::FaultFigure;
use crate::result::{Figure, Outcome};

/// Returns whether a figure is of a copy through a fault.
pub(super) fn is_fault(figure: &Figure) -> bool {
    parameter(figure, "fault").is_some()
}

/// Returns the part of a page about copies through faults; `None` without any.
pub(super) fn part(figures: &[&Figure]) -> Option<Part> {
    if figures.is_empty() {
        return None;
    }
    let is_right = |figure: &&&Figure| figure.outcome == Outcome::Complete;
    let right = figures.iter().filter(is_right).count();
    let mut part = Part::new("Faults");
    part.paragraph(&format!(
        "{right} of {} ended as they should. Stalled: the longest time without a byte more, by what \
         the program tells each second. Whole: from its start to its end. Both in seconds.",
        figures.len()
    ));
    part.table(&table(figures));
    Some(part)
}

fn table(figures: &[&Figure]) -> Table {
    let columns = ["Job", "Over", "Fault at", "Exit", "Bytes", "Stalled", "Whole", "Verdict"];
    let mut table = Table::new("Fault", columns.map(str::to_owned).to_vec());
    for figure in figures {
        let cells = cells(figure, &mut table);
        table.row(parameter(figure, "fault").unwrap_or_default(), false, cells);
    }
    table
}

fn cells(figure: &Figure, table: &mut Table) -> Vec<String> {
    let word = |name| parameter(figure, name).unwrap_or("-").to_owned();
    let mut cells = vec![word("job"), word("over")];
    match FaultFigure::deserialize(&figure.detail) {
        Ok(told) => cells.extend(fault_cells(&told, table)),
        Err(_) => cells.extend(std::iter::repeat_n("-".to_owned(), 5)),
    }
    cells.push(match &figure.outcome {
        Outcome::Complete => "right".to_owned(),
        Outcome::TimedOut => "**no end in time**".to_owned(),
        Outcome::Failed(reason) => table.with_note("**wrong**", reason.clone()),
        Outcome::Skipped(reason) => table.with_note("skipped", reason.clone()),
    });
    cells
}

fn fault_cells(told: &FaultFigure, table: &mut Table) -> [String; 5] {
    let copied = &told.copied;
    let end = copied.status.map_or_else(|| "a signal".to_owned(), |status| status.to_string());
    let end = match &copied.error {
        Some(error) => table.with_note(&end, error.clone()),
        None => end,
    };
    let bytes = match (told.held.equal, told.held.other_untouched) {
        (true, _) => "equal",
        (false, Some(true)) => "differ, the other unit's as before",
        (false, Some(false)) => "differ, the other unit's too",
        (false, None) => "differ",
    };
    [
        format!("{} %", copied.fault_at_percent),
        end,
        bytes.to_owned(),
        text::seconds(copied.stalled_seconds),
        text::seconds(copied.seconds),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample;
    use super::*;

    fn figure(fault: &str, outcome: Outcome, detail: serde_json::Value) -> Figure {
        let words = [("fault", fault), ("job", "write"), ("over", "one session")];
        let parameters = words.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Figure { parameters, detail, ..sample::outcome("block-copy", 10.0, outcome) }
    }

    fn detail(status: i32, error: Option<&str>, equal: bool) -> serde_json::Value {
        json!({
            "status": status, "error": error, "reconnects": 1, "fault_at_percent": 43,
            "stalled_seconds": 5.21, "seconds": 14.48, "equal": equal, "other_untouched": null,
            "expected": null,
        })
    }

    #[test]
    fn each_end_is_told_with_its_error_and_verdict() {
        let wrong = Outcome::Failed("it ended well, but the bytes differ".to_owned());
        let figures = [
            figure("link dark, 2 s", Outcome::Complete, detail(0, None, true)),
            figure("unit full", Outcome::Complete, detail(1, Some("no room | left"), false)),
            figure("unit replaced", wrong, detail(0, None, false)),
            figure("target killed, 5 s", Outcome::TimedOut, json!({ "limit_seconds": 60 })),
        ];
        assert!(figures.iter().all(is_fault));
        let part = part(&figures.iter().collect::<Vec<_>>()).unwrap();
        let (_, page) = part.markdown.split_once("Both in seconds.\n\n").unwrap();
        insta::assert_snapshot!(page, @r"
        | Fault | Job | Over | Fault at | Exit | Bytes | Stalled | Whole | Verdict |
        |---|---:|---:|---:|---:|---:|---:|---:|---:|
        | link dark, 2 s | write | one session | 43 % | 0 | equal | 5.21 | 14.5 | right |
        | unit full | write | one session | 43 % | 1<sup>1</sup> | differ | 5.21 | 14.5 | right |
        | unit replaced | write | one session | 43 % | 0 | differ | 5.21 | 14.5 | **wrong**<sup>2</sup> |
        | target killed, 5 s | write | one session | - | - | - | - | - | **no end in time** |

        <sup>1</sup> no room \| left

        <sup>2</sup> it ended well, but the bytes differ
        ");
        assert!(part.markdown.contains("2 of 4 ended as they should."));
    }
}
