//! Parses structs and blocks of methods, reduced to what the limits of `sizes.rs` need.

use proc_macro2::{Delimiter, Group, TokenTree};

use crate::tokens::{after_item, attribute, is_comma, is_for_tests, is_punct, word_at};

/// A struct with the number of its fields, except those that are compiled for tests only.
#[derive(Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: usize,
}

/// A block of methods, possibly of a trait.
#[derive(Debug, PartialEq)]
pub(crate) struct Impl {
    pub(crate) of_trait: Option<Vec<String>>,
    pub(crate) of_type: Vec<String>,
}

impl Struct {
    /// Parses the tokens after the word `struct`.
    pub(crate) fn read(tokens: &[TokenTree]) -> Option<Self> {
        let name = word_at(tokens, 0)?;
        let mut depth = Angles::default();
        for (at, token) in tokens.iter().enumerate().skip(1) {
            depth.pass(tokens, at);
            match token {
                TokenTree::Group(group) if depth.is_outside() && holds_fields(group) => {
                    let fields = group.stream().into_iter().collect::<Vec<_>>();
                    return Some(Self { name, fields: count_fields(&fields) });
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                TokenTree::Group(_)
                | TokenTree::Ident(_)
                | TokenTree::Punct(_)
                | TokenTree::Literal(_) => {}
            }
        }
        Some(Self { name, fields: 0 })
    }
}

impl Impl {
    /// Parses the tokens after the word `impl`.
    pub(crate) fn read(tokens: &[TokenTree]) -> Option<Self> {
        let mut paths = vec![vec![]];
        let mut depth = Angles::default();
        for (at, token) in tokens.iter().enumerate() {
            depth.pass(tokens, at);
            if !depth.is_outside() {
                continue;
            }
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                TokenTree::Ident(word) if word == "where" => break,
                TokenTree::Ident(word) if word == "for" => paths.push(vec![]),
                TokenTree::Ident(word) if word == "dyn" || word == "mut" => {}
                TokenTree::Ident(_) if at > 0 && is_punct(tokens, at - 1, '\'') => {}
                TokenTree::Ident(word) => paths.last_mut()?.push(word.to_string()),
                TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        let of_type = paths.pop().filter(|path| !path.is_empty())?;
        Some(Self { of_trait: paths.pop(), of_type })
    }
}

/// Number of open angle brackets.
#[derive(Debug, Default)]
struct Angles(usize);

impl Angles {
    /// Counts the token at `at`. The `>` of an arrow is not a bracket.
    fn pass(&mut self, tokens: &[TokenTree], at: usize) {
        let is_arrow = at > 0 && is_punct(tokens, at - 1, '-');
        if is_punct(tokens, at, '<') {
            self.0 += 1;
        } else if is_punct(tokens, at, '>') && !is_arrow {
            self.0 = self.0.saturating_sub(1);
        }
    }

    fn is_outside(&self) -> bool {
        self.0 == 0
    }
}

fn holds_fields(group: &Group) -> bool {
    matches!(group.delimiter(), Delimiter::Brace | Delimiter::Parenthesis)
}

/// Returns the number of parts between commas.
fn count_fields(tokens: &[TokenTree]) -> usize {
    let mut count = 0;
    let mut in_field = false;
    let mut depth = Angles::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let Some((attribute, after)) = attribute(tokens, at) {
            at = if is_for_tests(attribute) { after_item(tokens, after) } else { after };
            continue;
        }
        depth.pass(tokens, at);
        if depth.is_outside() && is_comma(token) {
            in_field = false;
        } else if !in_field {
            in_field = true;
            count += 1;
        }
        at += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<TokenTree> {
        text.parse::<proc_macro2::TokenStream>().unwrap().into_iter().collect()
    }

    fn fields(text: &str) -> usize {
        Struct::read(&tokens(text)).unwrap().fields
    }

    /// Returns the type of the block, followed by a colon and the trait if there is one.
    fn read_impl(text: &str) -> String {
        let Impl { of_trait, of_type } = Impl::read(&tokens(text)).unwrap();
        let of_trait = of_trait.map(|path| format!(": {}", path.join(".")));
        of_type.join(".") + &of_trait.unwrap_or_default()
    }

    #[test]
    fn fields_are_counted_whatever_their_types_and_without_those_for_tests() {
        assert_eq!(
            fields("S { a: HashMap<u8, Vec<u8>>, pub(crate) b: fn(u8, u8) -> (u8, u8) }"),
            2
        );
        assert_eq!(fields("S<T: Fn(u8) -> u8, U> where U: Copy { #[doc(hidden)] a: T, b: U, }"), 2);
        assert_eq!(fields("S { #[cfg(test)] a: u8, #[cfg(unix)] b: u8 }"), 1);
        assert_eq!(fields("S(u8, pub [u8; 2]);"), 2);
        assert_eq!(fields("S; struct T { a: u8 }"), 0);
    }

    #[test]
    fn a_block_is_known_by_its_type_and_its_trait() {
        assert_eq!(read_impl("A { fn f() {} }"), "A");
        assert_eq!(read_impl("<'a, T: for<'b> Fn(&'b u8) -> u8> b::A<'a, T> where T: C {}"), "b.A");
        assert_eq!(read_impl("<T> D<T> for &'a mut b::A {}"), "b.A: D");
        assert_eq!(read_impl("c::D for dyn A {}"), "A: c.D");
    }
}
