//! Finds the tests of one file: their names, doc comments and strings.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A function that the test harness runs.
#[derive(Debug, PartialEq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The test's doc comment, the ids in its name and the strings of its body, joined.
    pub(crate) text: String,
}

/// Returns the tests of a file, including those in modules and macros.
pub(crate) fn tests(tokens: TokenStream) -> Vec<Test> {
    let mut tests = vec![];
    scan(tokens, &mut tests);
    tests
}

/// Parses the tokens of a file or of a group in it.
fn scan(tokens: TokenStream, tests: &mut Vec<Test>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut above = Attributes::default();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                if let Some(TokenTree::Group(group)) =
                    tokens.next_if(|next| matches!(next, TokenTree::Group(_)))
                {
                    above.add(&group);
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => above = Attributes::default(),
            TokenTree::Ident(word) if word == "fn" && above.is_test => {
                let Some(TokenTree::Ident(name)) = tokens.next() else { continue };
                let mut text = std::mem::take(&mut above).doc;
                add(&mut text, &ids(&name.to_string()));
                let is_body = |group: &Group| group.delimiter() == Delimiter::Brace;
                let body = tokens.by_ref().find_map(|token| group(token).filter(is_body));
                if let Some(body) = body {
                    strings(body.stream(), &mut text);
                }
                tests.push(Test { name: name.to_string(), text });
            }
            TokenTree::Group(group) => {
                // Groups such as the parentheses of `pub(crate)` stand between an attribute and its item, and
                // do not end the attributes.
                if group.delimiter() != Delimiter::Parenthesis {
                    above = Attributes::default();
                }
                scan(group.stream(), tests);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn group(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(group) => Some(group),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}

/// The attributes of an item.
#[derive(Default)]
struct Attributes {
    doc: String,
    is_test: bool,
}

impl Attributes {
    fn add(&mut self, attribute: &Group) {
        let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
        match tokens.as_slice() {
            [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Literal(text)]
                if word == "doc" =>
            {
                add(&mut self.doc, &text.to_string());
            }
            // `#[test]`, `#[tokio::test]`, `#[tokio::test(...)]`
            _ => {
                let path = tokens.iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
                let last = path.last().map(ToString::to_string);
                self.is_test |= last.is_some_and(|last| last == "test");
            }
        }
    }
}

/// Returns the ids in a name: `LAY-13` of `lay_13_function_codes`, `MC-I-06` of `mc_i_06_wrong_portal_group`.
fn ids(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split('_').collect();
    let is_number = |word: &str| word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_digit());
    let id = |(at, number): (usize, &&str)| match words.get(..at)? {
        [.., family, "I"] => Some(format!("{family}-I-{number}")),
        [.., family] => Some(format!("{family}-{number}")),
        [] => None,
    };
    let numbers = words.iter().enumerate().filter(|(_, word)| is_number(word));
    numbers.filter_map(id).collect::<Vec<_>>().join(" ")
}

/// Adds the strings among the tokens, at any depth.
fn strings(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => add(text, &literal.to_string()),
            TokenTree::Group(group) => strings(group.stream(), text),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Adds a literal as it is in the code. Numbers are added too, which does no harm: none is an id.
fn add(text: &mut String, literal: &str) {
    let literal = literal.trim_start_matches('"').trim_end_matches('"');
    text.push_str(literal);
    // A space separates the ids of different strings, and the lines of a doc comment.
    text.push(' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names and texts of the tests, with single spaces in the texts.
    fn read(text: &str) -> Vec<(String, String)> {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        tests(text.parse().unwrap())
            .iter()
            .map(|test| (test.name.clone(), words(&test.text)))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn tests_have_the_comment_right_above() {
        let file = "/// Of a helper.\nfn helper() {}\n/// One,\n/// two.\n#[test]\nfn a() {}\n
            /// Async.\n#[tokio::test(start_paused = true)]\npub(crate) async fn b() -> Result<(), E> {}\n#[test] fn c() {}";
        assert_eq!(read(file), pairs(&[("a", "One, two."), ("b", "Async."), ("c", "")]));
    }

    #[test]
    fn tests_in_modules_and_macros_count() {
        let file = "//! Of the file.\n#[cfg(test)] mod tests { /// Of the constant.\nconst A: u8 = 1;\n#[test] fn a() {} }
            proptest! { #![proptest_config(config())] /// Any.\n#[test]\nfn b(x in any::<u8>()) {} }";
        assert_eq!(read(file), pairs(&[("a", ""), ("b", "Any.")]));
    }

    #[test]
    fn ids_in_names_count() {
        assert_eq!(ids("nam_01_and_nam_03_forms"), "NAM-01 NAM-03");
        assert_eq!(ids("mc_i_06_wrong_portal_group"), "MC-I-06");
        assert_eq!(ids("10_of_100_in_8"), "");
        assert_eq!(read("#[test] fn seq_01_starts() {}"), pairs(&[("seq_01_starts", "SEQ-01")]));
    }

    #[test]
    fn what_no_harness_runs_does_not_count() {
        assert_eq!(
            read("/// Doc.\nfn test() {} #[cfg(test)] fn a() {} #[doc(test)] fn b() {}"),
            []
        );
    }

    #[test]
    fn strings_count_and_comments_in_the_body_do_not() {
        let file = "#[test] fn a() { // A remark.\n assert_eq!(f(&[\"one\"]), [\"two\"]); }";
        assert_eq!(read(file), pairs(&[("a", "one two")]));
    }
}
