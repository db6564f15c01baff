//! One page of Markdown for each result file, and the charts it shows.

use super::chart::Chart;
use super::table::{Table, escape};
use super::{Page, buffers, goals, section, text};
use crate::result::{Figure, ResultFile};

/// Where the charts of a page come from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// What the names of its files begin with.
    pub(super) name: String,
    /// What stands in the corner of each chart.
    pub(super) caption: String,
}

/// A stretch of a page: its Markdown, and the files of its charts by name.
#[derive(Clone, Debug)]
pub(super) struct Part {
    markdown: String,
    charts: Vec<(String, String)>,
}

impl Part {
    /// A part under a heading.
    pub(super) fn new(heading: &str) -> Self {
        Self { markdown: format!("## {}\n\n", escape(heading)), charts: Vec::new() }
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.markdown.push_str(&format!("{}\n\n", escape(text)));
    }

    /// Adds a table.
    pub(super) fn table(&mut self, table: &Table) {
        self.markdown.push_str(&format!("{table}\n"));
    }

    /// Adds a chart, which gets a file of its own.
    pub(super) fn chart(&mut self, source: &Source, name: &str, chart: &Chart) {
        let file = format!("{}.svg", text::slug(&format!("{} {name}", source.name)));
        self.markdown.push_str(&format!("![{}]({file})\n\n", escape(&chart.title)));
        self.charts.push((file, chart.svg()));
    }
}

/// All files of a page, the Markdown first.
pub(super) fn files(page: &Page) -> Vec<(String, String)> {
    let result = &page.result;
    let source = Source { name: page.name.clone(), caption: caption(result) };
    let (grid, others): (Vec<&Figure>, Vec<&Figure>) =
        result.figures.iter().partition(|figure| buffers::is_grid(figure));
    let mut parts: Vec<_> = goals::part(&result.figures, &page.goals).into_iter().collect();
    parts.extend(section::parts(&others, &source));
    parts.extend(buffers::parts(&grid, &source));
    let mut markdown = head(result);
    let mut charts = Vec::new();
    for part in parts {
        markdown.push_str(&part.markdown);
        charts.extend(part.charts);
    }
    let markdown = format!("{}\n", markdown.trim_end());
    std::iter::once((format!("{}.md", page.name), markdown)).chain(charts).collect()
}

/// What, where, when and how, before any figure.
fn head(result: &ResultFile) -> String {
    let machine = &result.machine;
    let mut markdown = format!("# {}\n\n", escape(&result.title));
    let size = text::bytes(machine.memory_bytes as f64);
    let place = match machine.place.as_str() {
        "guest" => "in a guest on this machine",
        "host" => "on this machine itself",
        other => other,
    };
    markdown.push_str(&rows(&[
        ("Machine", &format!("{}, {} processors, {size}", machine.processor, machine.processors)),
        ("Kernel of the machine", &machine.kernel),
        ("Kernel of link and target", &format!("{}, {place}", machine.lab_kernel)),
        ("Commit", &result.commit),
        ("Date", &result.date),
    ]));
    let command = result.command.replace("```", "");
    markdown.push_str(&format!("\n```sh\n{}\n```\n\n", command.trim()));
    let settings: Vec<_> =
        result.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    if !settings.is_empty() {
        let rows = rows(&settings);
        markdown.push_str(&format!(
            "<details><summary>Settings in force</summary>\n\n{rows}\n</details>\n\n"
        ));
    }
    markdown
}

/// A table of two columns, without a head to speak of.
fn rows(pairs: &[(&str, &str)]) -> String {
    let row = |(name, value): &(&str, &str)| format!("| {} | {} |\n", escape(name), escape(value));
    format!("| | |\n|---|---|\n{}", pairs.iter().map(row).collect::<String>())
}

/// The day and the commit, shortened.
fn caption(result: &ResultFile) -> String {
    let day = result.date.split('T').next().unwrap_or_default();
    let hash: String = result.commit.trim_end_matches('+').chars().take(12).collect();
    let changed = if result.commit.ends_with('+') { "+" } else { "" };
    format!("commit {hash}{changed}, {day}")
}
