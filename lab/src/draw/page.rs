//! Makes a Markdown page for each result file, and its charts.

use std::path::Path;

use super::part::Source;
use super::table::escape;
use super::{buffers, failover, faults, flows, goals, mirror, section, short_link, stripe, text};
use crate::error::Error;
use crate::result::{Figure, ResultFile};
use crate::scenario::Goal;

/// A result file to draw, and the name of its page.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The name of the page's files, without an extension; letters, digits, dots and dashes.
    pub name: String,
    /// The result to draw.
    pub result: ResultFile,
    /// Goals of its figures; empty for a page without goals.
    pub goals: Vec<Goal>,
}

impl Page {
    /// Reads a result file. The page has the name of the file and no goals.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Result`] if it is not a result file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read(path).map_err(|cause| Error::File { path: path.to_owned(), cause })?;
        let result = serde_json::from_slice(&text)
            .map_err(|cause| Error::Result { path: path.to_owned(), cause })?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self { name: text::slug(&stem), result, goals: Vec::new() })
    }
}

/// Returns all files of a page, the Markdown first.
pub(super) fn files(page: &Page) -> Vec<(String, String)> {
    let result = &page.result;
    let source = Source { name: page.name.clone(), caption: caption(result) };
    let (faulty, rates): (Vec<&Figure>, Vec<&Figure>) =
        result.figures.iter().partition(|figure| faults::is_fault(figure));
    let (ruled, rates): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| flows::is_ruled(figure));
    let (mirrored, rates): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| mirror::is_mirror(figure));
    let (failovers, rates): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| failover::is_failover(figure));
    let (striped, rates): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| stripe::is_stripe(figure));
    let (beside, rates): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| short_link::is_short_link(figure));
    let (grid, others): (Vec<&Figure>, Vec<&Figure>) =
        rates.into_iter().partition(|figure| buffers::is_grid(figure));
    let mut parts: Vec<_> = goals::part(&result.figures, &page.goals).into_iter().collect();
    parts.extend(faults::part(&faulty));
    parts.extend(flows::part(&ruled, &source));
    parts.extend(mirror::part(&mirrored, &source));
    parts.extend(failover::part(&failovers, &source));
    parts.extend(stripe::part(&striped, &source));
    parts.extend(short_link::part(&beside, &source));
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

/// Returns the head of a page: subject, machine, time and command.
fn head(result: &ResultFile) -> String {
    let machine = &result.machine;
    let mut markdown = format!("# {}\n\n", escape(&result.title));
    let size = text::bytes(machine.memory_bytes as f64);
    let environment = match machine.environment.as_str() {
        "guest" => "in a guest on this machine",
        "host" => "on this machine itself",
        other => other,
    };
    let stolen = machine.stolen.map_or_else(
        || "not known".to_owned(),
        |share| format!("{:.0} % of the processors' time", share * 100.0),
    );
    markdown.push_str(&rows(&[
        ("Machine", &format!("{}, {} processors, {size}", machine.processor, machine.processors)),
        ("Kernel of the machine", &machine.kernel),
        ("Kernel of link and target", &format!("{}, {environment}", machine.lab_kernel)),
        ("Gone to others meanwhile", &stolen),
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

/// Returns a table of two columns with an empty header.
fn rows(pairs: &[(&str, &str)]) -> String {
    let row = |(name, value): &(&str, &str)| format!("| {} | {} |\n", escape(name), escape(value));
    format!("| | |\n|---|---|\n{}", pairs.iter().map(row).collect::<String>())
}

/// Returns the text in the corner of the charts: the day and the shortened commit.
fn caption(result: &ResultFile) -> String {
    let day = result.date.split('T').next().unwrap_or_default();
    let hash: String = result.commit.trim_end_matches('+').chars().take(12).collect();
    let changed = if result.commit.ends_with('+') { "+" } else { "" };
    format!("commit {hash}{changed}, {day}")
}
