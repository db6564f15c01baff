//! Parses one module: the modules and names that it declares, its imports, and the paths in its code.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

use crate::items::{Impl, Struct};
use crate::tokens::{
    after_item, attribute, is_comma, is_double_colon, is_for_tests, is_punct, word_at,
};

/// The parts of a module that arrows and sizes need, without code that is compiled for tests only.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Modules in files of their own.
    pub(crate) files: Vec<String>,
    /// Modules inside this one.
    pub(crate) inline: Vec<(String, Self)>,
    /// Functions, types, constants and macros.
    pub(crate) declared: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Paths of two segments or more outside of imports.
    pub(crate) paths: Vec<PathUse>,
    /// Words and first segments of paths, outside of imports.
    pub(crate) words: BTreeSet<String>,
    pub(crate) structs: Vec<Struct>,
    pub(crate) impls: Vec<Impl>,
}

/// An import by `use`: one name, or all names of a module (`*`).
#[derive(Debug, PartialEq)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name in this module; `None` imports everything.
    pub(crate) name: Option<String>,
    pub(crate) public: bool,
    pub(crate) line: usize,
}

/// A path in the code.
#[derive(Debug, PartialEq)]
pub(crate) struct PathUse {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

impl Source {
    /// Parses the text of a file or of an inline module.
    pub(crate) fn read(tokens: TokenStream) -> Self {
        let mut source = Self::default();
        source.scan(tokens, true);
        source
    }

    /// Parses the tokens of a module, or of a group in a module. `top` says whether the tokens are the
    /// module's own.
    fn scan(&mut self, tokens: TokenStream, top: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = self.step(&tokens, at, top);
        }
    }

    /// Parses the item or token at `at`. Returns the position after it.
    fn step(&mut self, tokens: &[TokenTree], at: usize, top: bool) -> usize {
        if let Some((attribute, after)) = attribute(tokens, at) {
            return if is_for_tests(attribute) { after_item(tokens, after) } else { after };
        }
        match &tokens[at] {
            TokenTree::Group(group) => self.scan(group.stream(), false),
            TokenTree::Ident(word) if word == "use" && !is_punct(tokens, at + 1, '<') => {
                let end = (at..tokens.len()).find(|end| is_punct(tokens, *end, ';'));
                let end = end.unwrap_or(tokens.len());
                self.import(&tokens[at + 1..end], is_public(tokens, at), vec![]);
                return end + 1;
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let Some(name) = word_at(tokens, at + 1) {
                    return self.module(name, tokens, at + 2);
                }
            }
            TokenTree::Ident(word) => {
                if top && word == "struct" {
                    self.structs.extend(Struct::read(&tokens[at + 1..]));
                }
                if top && word == "impl" {
                    self.impls.extend(Impl::read(&tokens[at + 1..]));
                }
                return self.path(tokens, at, top);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at + 1
    }

    /// Parses a module whose text or semicolon is at `at`.
    fn module(&mut self, name: String, tokens: &[TokenTree], at: usize) -> usize {
        match tokens.get(at) {
            Some(TokenTree::Group(group)) => {
                self.inline.push((name, Self::read(group.stream())));
            }
            Some(TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_)) | None => {
                self.files.push(name);
            }
        }
        at + 1
    }

    /// Adds the imports of a tree below `prefix`.
    fn import(&mut self, tree: &[TokenTree], public: bool, prefix: Vec<String>) {
        let mut path = prefix;
        let mut name = None;
        let mut line = 0;
        let mut at = 0;
        while let Some(token) = tree.get(at) {
            line = token.span().start().line;
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    name = word_at(tree, at + 1);
                    at += 1;
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) => {
                    let leaves: Vec<TokenTree> = group.stream().into_iter().collect();
                    for leaf in leaves.split(is_comma).filter(|leaf| !leaf.is_empty()) {
                        self.import(leaf, public, path.clone());
                    }
                    return;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.imports.push(Import { path, name: None, public, line });
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
        let name = name.or_else(|| path.last().cloned());
        self.imports.push(Import { path, name, public, line });
    }

    /// Parses a word, or a path of several words.
    fn path(&mut self, tokens: &[TokenTree], at: usize, top: bool) -> usize {
        let line = tokens[at].span().start().line;
        let mut path: Vec<String> = word_at(tokens, at).into_iter().collect();
        let mut end = at + 1;
        while is_double_colon(tokens, end) {
            let Some(word) = word_at(tokens, end + 2) else { break };
            path.push(word);
            end += 3;
        }
        if path.len() > 1 {
            self.words.extend(path.first().cloned());
            self.paths.push(PathUse { path, line });
            return end;
        }
        let Some(word) = path.pop() else { return end };
        if top {
            let name = if word == "macro_rules" { at + 2 } else { at + 1 };
            if DECLARES.contains(&word.as_str()) {
                self.declared.extend(word_at(tokens, name));
            }
        }
        self.words.insert(word);
        end
    }
}

const DECLARES: [&str; 9] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"];
/// Returns whether the `use` at `at` follows `pub` or `pub(...)`.
fn is_public(tokens: &[TokenTree], at: usize) -> bool {
    let before = |steps: usize| at.checked_sub(steps).and_then(|at| tokens.get(at));
    let is_pub =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Ident(word)) if word == "pub");
    is_pub(before(1)) || matches!(before(1), Some(TokenTree::Group(_))) && is_pub(before(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        Source::read(text.parse().unwrap())
    }

    /// Returns the imports as `path = name`, imports of everything as `path = *`. A plus marks public imports.
    fn imports(text: &str) -> Vec<String> {
        let show = |import: &Import| {
            let sign = if import.public { "+" } else { "" };
            format!("{sign}{} = {}", import.path.join("."), import.name.as_deref().unwrap_or("*"))
        };
        read(text).imports.iter().map(show).collect()
    }

    #[test]
    fn a_tree_of_imports_has_its_leaves() {
        assert_eq!(
            imports("use a::{b::{C, d::*}, self, e as f};"),
            ["a.b.C = C", "a.b.d = *", "a = a", "a.e = f"]
        );
        assert_eq!(
            imports("use super::super::X; use self::y::Z;"),
            ["super.super.X = X", "self.y.Z = Z"]
        );
    }

    #[test]
    fn a_re_export_is_told_from_an_import() {
        assert_eq!(
            imports("pub use a::B; pub(crate) use c::D; use e::F;"),
            ["+a.B = B", "+c.D = D", "e.F = F"]
        );
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        let source = read(
            "#[cfg(test)] mod tests; #[cfg(all(test, unix))] mod more { use a::B; } #[cfg(test)] use c::{D, E};
             #[test] fn f<A, B>() { g::h() } struct S { #[cfg(test)] x: i::J, y: k::L }
             #[cfg(not(test))] mod kept; #[cfg(feature = \"test\")] mod kept_too;",
        );
        assert_eq!(source.files, ["kept", "kept_too"]);
        assert!(source.inline.is_empty() && source.imports.is_empty());
        assert_eq!(
            source.paths.iter().map(|path| path.path.join(".")).collect::<Vec<_>>(),
            ["k.L"]
        );
    }

    #[test]
    fn paths_are_found_in_code_and_in_macros_but_not_in_comments_and_strings() {
        let source = read(
            "/// See a::b::C.\nfn f() -> impl Sized + use<> { let s = \"d::e\"; // g::h
             println!(\"{}\", crate::i::j(s)); super::k::<u8>() }",
        );
        let found: Vec<_> =
            source.paths.iter().map(|path| (path.path.join("."), path.line)).collect();
        assert_eq!(found, [("crate.i.j".to_owned(), 3), ("super.k".to_owned(), 3)]);
    }

    #[test]
    fn names_of_a_module_are_those_at_its_top() {
        let source = read(
            "pub struct S; impl S { fn inner() {} } macro_rules! m { () => {} } const N: u8 = 1;",
        );
        assert_eq!(source.declared.into_iter().collect::<Vec<_>>(), ["N", "S", "m"]);
    }
}
