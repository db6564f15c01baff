//! A stretch of a page: Markdown, and the charts in it.

use super::chart::Chart;
use super::table::{Table, escape};
use super::text;

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
    pub(super) markdown: String,
    pub(super) charts: Vec<(String, String)>,
}

impl Part {
    /// A part under a heading.
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

    /// Adds a chart, which gets a file of its own.
    pub(super) fn chart(&mut self, source: &Source, name: &str, chart: &Chart) {
        self.picture(source, name, &chart.title, chart.svg());
    }

    /// Adds a drawing, which gets a file of its own.
    pub(super) fn picture(&mut self, source: &Source, name: &str, title: &str, svg: String) {
        let file = format!("{}.svg", text::slug(&format!("{} {name}", source.name)));
        self.markdown.push_str(&format!("![{}]({file})\n\n", escape(title)));
        self.charts.push((file, svg));
    }
}
