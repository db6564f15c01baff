//! A part of a page: Markdown and its charts.

use super::chart::Chart;
use super::table::{Table, escape};
use super::text;

/// The origin of a page's charts.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Prefix of the file names.
    pub(super) name: String,
    /// Text in the corner of each chart.
    pub(super) caption: String,
}

/// A part of a page: its Markdown, and the files of its charts by name.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) markdown: String,
    pub(super) charts: Vec<(String, String)>,
}

impl Part {
    /// Returns a part with a heading.
    pub(super) fn new(heading: &str) -> Self {
        Self { markdown: format!("## {}\n\n", escape(heading)), charts: Vec::new() }
    }

    /// Adds a heading below the part's own.
    pub(super) fn subheading(&mut self, heading: &str) {
        self.markdown.push_str(&format!("### {}\n\n", escape(heading)));
    }

    /// Adds a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.markdown.push_str(&format!("{}\n\n", escape(text)));
    }

    /// Adds a table.
    pub(super) fn table(&mut self, table: &Table) {
        self.markdown.push_str(&format!("{table}\n"));
    }

    /// Adds a chart with a file of its own.
    pub(super) fn chart(&mut self, source: &Source, name: &str, chart: &Chart) {
        self.picture(source, name, &chart.title, chart.svg());
    }

    /// Adds a drawing with a file of its own.
    pub(super) fn picture(&mut self, source: &Source, name: &str, title: &str, svg: String) {
        let file = format!("{}.svg", text::slug(&format!("{} {name}", source.name)));
        self.markdown.push_str(&format!("![{}]({file})\n\n", escape(title)));
        self.charts.push((file, svg));
    }
}
