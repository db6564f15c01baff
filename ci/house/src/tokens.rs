//! Finds where items begin and end in a list of tokens.

use proc_macro2::{Delimiter, Group, Spacing, TokenTree};

const BEGINS_AN_ITEM: [&str; 14] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "macro_rules",
    "impl",
    "mod",
    "unsafe",
    "async",
    "extern",
];

/// Returns the attribute at `at`, and the position after it.
pub(crate) fn attribute(tokens: &[TokenTree], at: usize) -> Option<(&Group, usize)> {
    if !is_punct(tokens, at, '#') {
        return None;
    }
    let at = if is_punct(tokens, at + 1, '!') { at + 2 } else { at + 1 };
    match tokens.get(at) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((group, at + 1))
        }
        _ => None,
    }
}

/// Returns whether an attribute makes its item compile for tests only: `#[test]`, or a `cfg` that requires `test`.
pub(crate) fn is_for_tests(attribute: &Group) -> bool {
    let words: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match words.as_slice() {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(condition)] => {
            word == "cfg" && asks_for_tests(condition)
        }
        _ => false,
    }
}

/// Returns whether a condition requires tests: it is `test`, or an `all` with such a condition.
fn asks_for_tests(condition: &Group) -> bool {
    let words: Vec<TokenTree> = condition.stream().into_iter().collect();
    words.split(is_comma).any(|part| match part {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(parts)] => word == "all" && asks_for_tests(parts),
        _ => false,
    })
}

/// Returns the end of the item, field or statement that begins at `at`, possibly with further attributes.
pub(crate) fn after_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while let Some((_, after)) = attribute(tokens, at) {
        at = after;
    }
    if word_at(tokens, at).is_some_and(|word| word == "pub") {
        at += 1;
        if matches!(tokens.get(at), Some(TokenTree::Group(_))) {
            at += 1;
        }
    }
    let first = word_at(tokens, at).unwrap_or_default();
    let is_item = BEGINS_AN_ITEM.contains(&first.as_str());
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';' || !is_item && punct.as_char() == ',',
        TokenTree::Group(group) => first != "use" && group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    tokens.iter().skip(at).position(ends).map_or(tokens.len(), |end| at + end + 1)
}

/// Returns the word at `at`.
pub(crate) fn word_at(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

/// Returns whether `which` is at `at`.
pub(crate) fn is_punct(tokens: &[TokenTree], at: usize, which: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == which)
}

pub(crate) fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    let joint = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint);
    tokens.get(at).is_some_and(joint) && is_punct(tokens, at + 1, ':')
}

pub(crate) fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}
