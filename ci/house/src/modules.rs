//! Finds the modules of a crate, and the file that defines the item of a path.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::{Impl, Struct};
use crate::rules;
use crate::source::{Import, PathUse, Source};

/// The sources of a crate: texts by their path below the root's folder.
pub(crate) type Texts = BTreeMap<String, String>;

/// The largest number of re-exports that are followed in a row.
const MAX_STEPS: usize = 32;

/// All modules that a root file leads to.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    list: Vec<Module>,
}

#[derive(Debug)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    declared: BTreeSet<String>,
    imports: Vec<Import>,
    paths: Vec<PathUse>,
    words: BTreeSet<String>,
    structs: Vec<Struct>,
    impls: Vec<Impl>,
}

/// A type of a crate, reduced to what its size needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Type {
    pub(crate) fields: usize,
    /// Files with an `impl` block of the type: of its methods, or of a trait of the workspace.
    pub(crate) files: BTreeSet<String>,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Module(usize),
    /// An item that the module defines.
    Item(usize),
    /// An item of another crate, or of the language.
    Foreign,
}

/// A use of an item in a file that does not define it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    /// A file of the same crate, or the first segment of a path that leaves it.
    pub(crate) to: String,
    pub(crate) name: String,
    pub(crate) line: usize,
}

/// The arrows of a crate.
#[derive(Debug, Default)]
pub(crate) struct Arrows {
    /// Arrows between files of the crate.
    pub(crate) inside: BTreeSet<Arrow>,
    /// Arrows to items that no module of the crate defines.
    pub(crate) outside: BTreeSet<Arrow>,
}

impl Modules {
    /// Reads the file `root` and all files that it leads to.
    ///
    /// # Errors
    ///
    /// The name of a file that is missing or is not Rust.
    pub(crate) fn read(texts: &Texts, root: &str) -> Result<Self, String> {
        let mut modules = Self::default();
        modules.add_file(texts, root.to_owned(), folder_of_root(root), None)?;
        Ok(modules)
    }

    /// Returns the files with a module of this crate.
    pub(crate) fn files(&self) -> BTreeSet<String> {
        self.list.iter().map(|module| module.file.clone()).collect()
    }

    /// Returns the arrows of the crate.
    pub(crate) fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::default();
        for (at, module) in self.list.iter().enumerate() {
            for import in &module.imports {
                self.import_arrow(at, import, &mut arrows);
            }
            for used in module.paths.iter().filter(|used| self.leads_away(at, &used.path)) {
                self.arrow(at, &used.path, used.line, &mut arrows);
            }
        }
        arrows
    }

    /// Returns the types that the crate defines, by file and name.
    pub(crate) fn types(&self) -> BTreeMap<(String, String), Type> {
        let mut types = BTreeMap::<_, Type>::new();
        for module in &self.list {
            for Struct { name, fields } in &module.structs {
                types.entry((module.file.clone(), name.clone())).or_default().fields = *fields;
            }
        }
        for (at, module) in self.list.iter().enumerate() {
            for Impl { of_trait, of_type } in &module.impls {
                let Some(name) = of_type.last() else { continue };
                let Found::Item(of) = self.resolve(at, of_type, MAX_STEPS) else { continue };
                let counts = of_trait.as_ref().is_none_or(|of_trait| self.is_ours(at, of_trait));
                if counts && self.list[of].declared.contains(name) {
                    let of = (self.list[of].file.clone(), name.clone());
                    types.entry(of).or_default().files.insert(module.file.clone());
                }
            }
        }
        types
    }

    /// Returns whether a path leads to an item of a crate in the workspace.
    fn is_ours(&self, at: usize, path: &[String]) -> bool {
        let imports = &self.list[at].imports;
        let import = imports.iter().find(|import| import.name.as_ref() == path.first());
        let path = import.map_or(path, |import| &import.path);
        matches!(self.resolve(at, path, MAX_STEPS), Found::Item(_))
            || path.first().is_some_and(|first| rules::library(first).is_some())
    }

    /// Adds the arrow of an import. A re-export from a module below is an arrow only if the module itself uses
    /// the name. An import of a module makes no arrow: the paths that begin with its name do.
    fn import_arrow(&self, at: usize, import: &Import, arrows: &mut Arrows) {
        let found = self.resolve(at, &import.path, MAX_STEPS);
        let from_below = match found {
            Found::Module(below) | Found::Item(below) => self.is_below(below, at),
            Found::Foreign => false,
        };
        let used = import.name.as_ref().is_some_and(|name| self.list[at].words.contains(name));
        if import.public && from_below && !used {
            return;
        }
        match (found, &import.name) {
            (Found::Module(module), None) => {
                self.push(at, module, &import.path, import.line, arrows)
            }
            _ => self.arrow(at, &import.path, import.line, arrows),
        }
    }

    /// Returns whether a path in the code makes an arrow. A path to an item of the module itself makes none,
    /// nor does a path that begins with an imported item: the import makes that arrow.
    fn leads_away(&self, at: usize, path: &[String]) -> bool {
        let module = &self.list[at];
        let Some(first) = path.first() else { return false };
        if first == "self" {
            return path.get(1).is_some_and(|second| module.children.contains_key(second));
        }
        let is_module = matches!(self.resolve(at, &path[..1], MAX_STEPS), Found::Module(_));
        is_module || first == "crate" || !self.knows(at, first, MAX_STEPS)
    }

    fn arrow(&self, at: usize, path: &[String], line: usize, arrows: &mut Arrows) {
        match self.resolve(at, path, MAX_STEPS) {
            Found::Item(module) => self.push(at, module, path, line, arrows),
            Found::Module(_) => {}
            Found::Foreign => {
                let to = path.first().cloned().unwrap_or_default();
                let from = self.list[at].file.clone();
                arrows.outside.insert(Arrow { from, to, name: path.join("::"), line });
            }
        }
    }

    fn push(&self, at: usize, to: usize, path: &[String], line: usize, arrows: &mut Arrows) {
        let (from, to) = (self.list[at].file.clone(), self.list[to].file.clone());
        if from != to {
            arrows.inside.insert(Arrow { from, to, name: path.join("::"), line });
        }
    }

    fn is_below(&self, module: usize, above: usize) -> bool {
        std::iter::successors(self.list[module].parent, |at| self.list[*at].parent)
            .any(|at| at == above)
    }

    /// Resolves a path in the module `at`.
    fn resolve(&self, at: usize, path: &[String], steps: usize) -> Found {
        let Some((first, rest)) = path.split_first() else { return Found::Module(at) };
        match first.as_str() {
            "crate" => self.walk(0, rest, steps),
            "self" => self.walk(at, rest, steps),
            "super" => match self.list[at].parent {
                Some(parent) => self.resolve_from(parent, rest, steps),
                None => Found::Foreign,
            },
            _ if self.knows(at, first, steps) => self.walk(at, path, steps),
            _ => Found::Foreign,
        }
    }

    /// Resolves the rest of a path after `super` in the module `at`.
    fn resolve_from(&self, at: usize, path: &[String], steps: usize) -> Found {
        match path.first().map(String::as_str) {
            Some("super") => self.resolve(at, path, steps),
            _ => self.walk(at, path, steps),
        }
    }

    /// Follows a path down from a module, through its imports.
    fn walk(&self, at: usize, path: &[String], steps: usize) -> Found {
        let (Some((first, rest)), Some(steps)) = (path.split_first(), steps.checked_sub(1)) else {
            return Found::Module(at);
        };
        let module = &self.list[at];
        if let Some(child) = module.children.get(first) {
            return self.walk(*child, rest, steps);
        }
        if module.declared.contains(first) {
            return Found::Item(at);
        }
        // `use bytes::Bytes` must not be resolved through itself.
        let named = module.imports.iter().find(|import| {
            import.name.as_ref() == Some(first) && import.path.first() != Some(first)
        });
        if let Some(import) = named {
            return match self.resolve(at, &import.path, steps) {
                Found::Module(module) => self.walk(module, rest, steps),
                found @ (Found::Item(_) | Found::Foreign) => found,
            };
        }
        match self.globs(at, steps).find(|from| self.knows(*from, first, steps)) {
            Some(from) => self.walk(from, path, steps),
            None => Found::Item(at),
        }
    }

    /// Returns whether a module has an item or an import of that name.
    fn knows(&self, at: usize, name: &str, steps: usize) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        let module = &self.list[at];
        module.children.contains_key(name)
            || module.declared.contains(name)
            || module.imports.iter().any(|import| {
                import.name.as_deref() == Some(name)
                    && import.path.first().map(String::as_str) != Some(name)
            })
            || self.globs(at, steps).any(|from| self.knows(from, name, steps))
    }

    /// Returns the modules of this crate that a module imports with `*`.
    fn globs(&self, at: usize, steps: usize) -> impl Iterator<Item = usize> {
        let globs = self.list[at].imports.iter().filter(|import| import.name.is_none());
        globs.filter_map(move |import| match self.resolve(at, &import.path, steps) {
            Found::Module(module) if module != at => Some(module),
            Found::Module(_) | Found::Item(_) | Found::Foreign => None,
        })
    }

    fn add_file(
        &mut self,
        texts: &Texts,
        file: String,
        folder: String,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let text = texts.get(&file).ok_or_else(|| format!("{file} is not there"))?;
        let tokens = text.parse().map_err(|error| format!("{file}: {error}"))?;
        self.add(texts, Source::read(tokens), file, folder, parent)
    }

    /// Adds a module and the modules below it. `folder` has the files of its children.
    fn add(
        &mut self,
        texts: &Texts,
        source: Source,
        file: String,
        folder: String,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let at = self.list.len();
        let Source { files, inline, declared, imports, paths, words, structs, impls } = source;
        let children = BTreeMap::new();
        self.list.push(Module {
            file: file.clone(),
            parent,
            children,
            declared,
            imports,
            paths,
            words,
            structs,
            impls,
        });
        for name in files {
            let flat = format!("{folder}{name}.rs");
            let child =
                if texts.contains_key(&flat) { flat } else { format!("{folder}{name}/mod.rs") };
            let id = self.add_file(texts, child, format!("{folder}{name}/"), Some(at))?;
            self.list[at].children.insert(name, id);
        }
        for (name, source) in inline {
            let id = self.add(texts, source, file.clone(), format!("{folder}{name}/"), Some(at))?;
            self.list[at].children.insert(name, id);
        }
        Ok(at)
    }
}

/// Returns the folder with the files of the root's children, which is the folder of the root itself.
fn folder_of_root(root: &str) -> String {
    root.rfind('/').map_or(String::new(), |slash| root[..=slash].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arrows between files as `from -> to`, with the paths that cause them.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let arrows = Modules::read(&texts.collect(), "lib.rs").unwrap().arrows();
        arrows
            .inside
            .iter()
            .map(|arrow| format!("{} -> {}: {}", arrow.from, arrow.to, arrow.name))
            .collect()
    }

    #[test]
    fn a_module_is_no_arrow_and_an_import_is() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod c; pub struct A;"),
            ("a/c.rs", "use super::A; use crate::b::B;"),
            ("b/mod.rs", "pub struct B;"),
        ]);
        assert_eq!(found, ["a/c.rs -> a.rs: super::A", "a/c.rs -> b/mod.rs: crate::b::B"]);
    }

    #[test]
    fn a_re_export_counts_for_the_file_that_defines() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b; pub use a::C;"),
            ("a.rs", "mod c; mod d; pub(crate) use c::{C, D as E}; pub use d::*;"),
            ("a/c.rs", "pub struct C; pub struct D;"),
            ("a/d.rs", "use super::C; pub fn f() {}"),
            ("b.rs", "use crate::a::{E, f}; use crate::C;"),
        ]);
        let expected = [
            "a/d.rs -> a/c.rs: super::C",
            "b.rs -> a/c.rs: crate::C",
            "b.rs -> a/c.rs: crate::a::E",
            "b.rs -> a/d.rs: crate::a::f",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_re_export_that_its_own_file_uses_is_an_arrow() {
        let found = arrows(&[
            ("lib.rs", "mod a; pub use a::A; struct Holds(A);"),
            ("a.rs", "pub struct A;"),
        ]);
        assert_eq!(found, ["lib.rs -> a.rs: a::A"]);
    }

    #[test]
    fn paths_in_code_are_arrows() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b; pub fn g() { b::h(); crate::b::i::J::new(); String::new(); }"),
            ("b.rs", "pub mod i { pub struct J; } pub fn h() { std::mem::drop(1) }"),
        ]);
        assert_eq!(found, ["a.rs -> b.rs: b::h", "a.rs -> b.rs: crate::b::i::J::new"]);
    }

    #[test]
    fn a_module_that_calls_its_children_by_their_paths_uses_them() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod c;"),
            ("a.rs", "mod b; pub struct A; fn f() { b::g(); self::A::new(); }"),
            ("a/b.rs", "use super::A; pub fn g() { A::new() }"),
            ("c.rs", "mod d; fn f() { self::d::g(); self::f() }"),
            ("c/d.rs", "pub fn g() {}"),
        ]);
        let expected =
            ["a.rs -> a/b.rs: b::g", "a/b.rs -> a.rs: super::A", "c.rs -> c/d.rs: self::d::g"];
        assert_eq!(found, expected);
    }

    #[test]
    fn everything_of_a_module_is_an_arrow_to_it() {
        let found = arrows(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "use crate::a::*; fn f() -> A { A::new() }"),
        ]);
        assert_eq!(found, ["b.rs -> a.rs: crate::a"]);
    }

    #[test]
    fn a_crate_and_an_import_of_the_same_name_are_told_apart() {
        let texts = [(
            "lib.rs",
            "use bytes; use bytes::Bytes; use iscsi_pdu::Lun as L; fn f() { L::ZERO; }",
        )];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let arrows = Modules::read(&texts, "lib.rs").unwrap().arrows();
        assert!(arrows.inside.is_empty());
        let outside: Vec<_> = arrows.outside.iter().map(|arrow| arrow.to.as_str()).collect();
        assert_eq!(outside, ["bytes", "bytes", "iscsi_pdu"]);
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let texts = [("src/lib.rs".to_owned(), "mod a;".to_owned())].into();
        assert_eq!(Modules::read(&texts, "src/lib.rs").unwrap_err(), "src/a/mod.rs is not there");
    }
}
