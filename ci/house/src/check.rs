//! Finds what is wrong with a crate, as sentences, and draws the crate as floors.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::graph::Graph;
use crate::modules::{Arrow, Arrows, Modules, Texts};
use crate::rules;

/// A crate, or one program of a crate, with the arrows between its files.
#[derive(Debug)]
pub(crate) struct Crate<'a> {
    folder: &'a str,
    root: &'a str,
    files: BTreeSet<String>,
    arrows: Arrows,
}

impl<'a> Crate<'a> {
    pub(crate) fn new(folder: &'a str, root: &'a str, modules: &Modules) -> Self {
        Self { folder, root, files: modules.files(), arrows: modules.arrows() }
    }

    /// Returns everything that is wrong with the crate, as sentences and lists.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = self.circles();
        complaints.extend(self.upward_between_crates(rules::may_use(self.folder)));
        if self.folder == rules::LAYERED {
            complaints.extend(self.upward_between_layers(rules::LAYERS));
        }
        complaints
    }

    fn circles(&self) -> Vec<String> {
        let circles = Graph::new(&self.files, &self.arrows.inside).circles();
        circles.into_iter().map(|circle| self.circle(&circle)).collect()
    }

    fn circle(&self, circle: &BTreeSet<&str>) -> String {
        let inside = |arrow: &&Arrow| {
            circle.contains(arrow.from.as_str()) && circle.contains(arrow.to.as_str())
        };
        let mut names = BTreeMap::<_, BTreeSet<_>>::new();
        for arrow in self.arrows.inside.iter().filter(inside) {
            names.entry((&arrow.from, &arrow.to)).or_default().insert(arrow.name.as_str());
        }
        let mut complaint = format!("{}: a circle of {} files:", self.folder, circle.len());
        for ((from, to), names) in names {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            complaint += &format!("\n  {from} uses {to}: {names}");
        }
        complaint
    }

    fn upward_between_crates(&self, allowed: Option<&[&str]>) -> Vec<String> {
        let Some(allowed) = allowed else { return vec![] };
        let up = |arrow: &Arrow| {
            let library = rules::library(&arrow.to).filter(|library| !allowed.contains(library))?;
            let Arrow { from, name, line, .. } = arrow;
            Some(format!(
                "{}/{from}:{line} uses {name}: {} may not use {library}",
                self.folder, self.folder
            ))
        };
        self.arrows.outside.iter().filter_map(up).collect()
    }

    fn upward_between_layers(&self, layers: &[(&str, &[&str])]) -> Vec<String> {
        let layer = |file: &str| {
            let below_src = file.strip_prefix("src/").unwrap_or(file);
            rules::layer(layers, below_src)
        };
        let nowhere = self.files.iter().filter(|file| layer(file).is_none()).map(|file| {
            format!(
                "{}/{file} is in no layer; the list of them is in ci/house/src/rules.rs",
                self.folder
            )
        });
        let up = |arrow: &Arrow| {
            let (from, to) = (layer(&arrow.from)?, layer(&arrow.to)?);
            let Arrow { from: file, to: used, name, line } = arrow;
            (to < from).then(|| {
                format!(
                    "{}/{file}:{line} ({}) uses {name} of {used} ({}), a layer above",
                    self.folder, layers[from].0, layers[to].0
                )
            })
        };
        nowhere.chain(self.arrows.inside.iter().filter_map(up)).collect()
    }

    /// Prints the floors from top to bottom, each with its files. A file has its number of lines above the
    /// tests, and the files that it uses.
    pub(crate) fn draw(&self, texts: &Texts, out: &mut impl Write) -> io::Result<()> {
        let floors = Graph::new(&self.files, &self.arrows.inside).floors();
        writeln!(out, "{}/{}", self.folder, self.root)?;
        let top = floors.values().max().copied().unwrap_or(0);
        for floor in (0..=top).rev() {
            writeln!(out, "  floor {floor}")?;
            for (file, _) in floors.iter().filter(|(_, at)| **at == floor) {
                let uses = self.arrows.inside.iter().filter(|arrow| arrow.from == **file);
                let uses: BTreeSet<&str> = uses.map(|arrow| arrow.to.as_str()).collect();
                let uses = uses.into_iter().map(short).collect::<Vec<_>>().join(" ");
                let lines = texts.get(*file).map_or(0, |text| production_lines(text));
                writeln!(out, "    {:<34} {lines:>4}  {uses}", short(file))?;
            }
        }
        writeln!(out)
    }
}

/// Returns the name of a file without the prefix and the suffix that all files have.
fn short(file: &str) -> &str {
    let file = file.strip_prefix("src/").unwrap_or(file);
    file.strip_suffix(".rs").unwrap_or(file)
}

/// Returns the number of lines above the first inline test module.
fn production_lines(text: &str) -> usize {
    text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Modules::read(&texts.collect(), "src/lib.rs").unwrap()
    }

    #[test]
    fn a_circle_is_told_with_the_names_that_close_it() {
        let modules = modules(&[
            ("src/lib.rs", "mod a; mod b; pub use a::A;"),
            ("src/a.rs", "use crate::b::B; pub struct A(B);"),
            ("src/b.rs", "use crate::A; pub struct B; fn f(_: A) {}"),
        ]);
        let told = Crate::new("crates/tuner", "src/lib.rs", &modules).complaints();
        let expected = "crates/tuner: a circle of 2 files:\n  src/a.rs uses src/b.rs: crate::b::B\n  src/b.rs uses src/a.rs: crate::A";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn an_arrow_up_between_crates_is_told() {
        let modules =
            modules(&[("src/lib.rs", "\nuse iscsi_session::Session; use iscsi_pdu::Lun;")]);
        let told = Crate::new("crates/pdu", "src/lib.rs", &modules).complaints();
        let expected = "crates/pdu/src/lib.rs:2 uses iscsi_session::Session: crates/pdu may not use crates/session";
        assert!(told.contains(&expected.to_owned()), "{told:?}");
        let session = Crate::new("crates/initiator", "src/lib.rs", &modules);
        assert_eq!(session.upward_between_crates(rules::may_use("crates/initiator")), [""; 0]);
        let program = Crate::new("lab", "src/lib.rs", &modules);
        assert_eq!(program.complaints(), [""; 0]);
    }

    #[test]
    fn an_arrow_up_between_layers_is_told_also_through_a_re_export() {
        let modules = modules(&[
            ("src/lib.rs", "mod disk; mod driver; mod url; pub use disk::Disk;"),
            ("src/disk.rs", "use crate::driver::Driver; pub struct Disk(Driver);"),
            ("src/driver/mod.rs", "pub struct Driver; mod links;"),
            ("src/driver/links.rs", "fn f(_: crate::Disk) {}"),
            ("src/url.rs", ""),
        ]);
        let layers: &[(&str, &[&str])] =
            &[("root", &["lib.rs"]), ("handles", &["disk.rs"]), ("driver", &["driver/"])];
        let told =
            Crate::new("crates/initiator", "src/lib.rs", &modules).upward_between_layers(layers);
        let expected = [
            "crates/initiator/src/url.rs is in no layer; the list of them is in ci/house/src/rules.rs",
            "crates/initiator/src/driver/links.rs:1 (driver) uses crate::Disk of src/disk.rs (handles), a layer above",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_drawing_has_the_users_above_the_used() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::B;"),
            ("src/b.rs", "pub struct B;\n"),
        ];
        let mut out = vec![];
        let texts = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        Crate::new("lab", "src/lib.rs", &modules(&files)).draw(&texts, &mut out).unwrap();
        let drawn = String::from_utf8(out).unwrap();
        let words: Vec<_> = drawn.split_whitespace().collect();
        assert_eq!(
            words,
            ["lab/src/lib.rs", "floor", "1", "a", "1", "b", "floor", "0", "b", "1", "lib", "1"]
        );
    }
}
