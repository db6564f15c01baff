//! Parses the variants of an enum, with their doc comments, from its source.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Variant {
    pub(super) name: String,
    /// The first sentence of the variant's doc comment, without links.
    pub(super) cause: String,
}

/// Returns the variants of the enum `name` in a source file; none if the file does not have the enum.
pub(super) fn variants(text: &str, name: &str) -> Vec<Variant> {
    let tokens: TokenStream = text.parse().unwrap_or_default();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let is_enum = matches!(&token, TokenTree::Ident(word) if word == "enum");
        if !is_enum || tokens.next().is_none_or(|next| next.to_string() != name) {
            continue;
        }
        if let Some(TokenTree::Group(body)) = tokens.next() {
            return in_body(&body);
        }
    }
    vec![]
}

fn in_body(body: &Group) -> Vec<Variant> {
    let (mut variants, mut doc) = (vec![], String::new());
    for token in body.stream() {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                doc.push_str(&line_of_doc(&group).unwrap_or_default());
            }
            TokenTree::Ident(name) => {
                let cause = first_sentence(&without_links(doc.trim()));
                variants.push(Variant { name: name.to_string(), cause });
                doc.clear();
            }
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    variants
}

/// Returns the text of a `#[doc = "..."]`.
fn line_of_doc(attribute: &Group) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(text)] = tokens.as_slice()
    else {
        return None;
    };
    let text = text.to_string();
    let text = text.trim_start_matches('r').trim_matches('"');
    (word == "doc").then(|| text.replace("\\\"", "\"").replace("\\'", "'"))
}

/// Replaces `[words](target)` by the words, and removes the backticks of code.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        plain.push_str(before);
        let link = behind
            .split_once("](")
            .and_then(|(words, behind)| behind.split_once(')').map(|(_, behind)| (words, behind)));
        let (words, behind) = link.or_else(|| behind.split_once(']')).unwrap_or(("", behind));
        plain.push_str(words);
        rest = behind;
    }
    plain.push_str(rest);
    plain.replace('`', "")
}

/// Returns the text up to the first full stop that ends a sentence.
fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or_else(|| text.to_owned(), |(first, _)| format!("{first}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_come_with_the_first_sentence_of_their_comment() {
        let source = r#"
            /// Another one.
            pub enum Other { X }
            #[derive(Debug)]
            pub enum Wanted {
                /// It is "so" ([`A::b`](crate::A::b)).
                /// And more.
                #[error("text {0}")]
                One(#[from] Other),
                /// Of [`two`] lines: the first
                /// and the second. A third.
                Two { /// A field.
                    a: u8 },
                Three,
            }
        "#;
        let found: Vec<_> =
            variants(source, "Wanted").into_iter().map(|v| (v.name, v.cause)).collect();
        let of = |name: &str, cause: &str| (name.to_owned(), cause.to_owned());
        assert_eq!(
            found,
            [
                of("One", "It is \"so\" (A::b)."),
                of("Two", "Of two lines: the first and the second."),
                of("Three", ""),
            ]
        );
        assert_eq!(variants(source, "None"), []);
    }
}
