//! Compares what a page shows with what a command printed.

/// Stands for any number of lines, or for any part of a line.
const ANYTHING: &str = "...";

/// Whether `printed` is what `shown` says. Runs of spaces count as one: columns are as wide as what is in them. A number with
/// a decimal point is a measurement: any other one may be in its place.
#[must_use]
pub fn is_as_shown(shown: &[String], printed: &str) -> bool {
    let shown: Vec<_> = shown.iter().map(|line| squeezed(line)).collect();
    let printed: Vec<_> = printed.lines().map(squeezed).collect();
    lines_match(&shown, &printed)
}

fn squeezed(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().map(without_measurements).collect();
    words.join(" ")
}

/// A word with `#` in the place of each number that has one decimal point. Addresses and versions have more.
fn without_measurements(word: &str) -> String {
    let is_of_number = |character: char| character.is_ascii_digit() || character == '.';
    let (mut text, mut rest) = (String::new(), word);
    while let Some(start) = rest.find(is_of_number) {
        let (before, from) = rest.split_at(start);
        let (number, after) = from.split_at(from.find(|c| !is_of_number(c)).unwrap_or(from.len()));
        let digits = number.trim_end_matches('.');
        let is_measurement = digits.split('.').count() == 2 && !digits.starts_with('.');
        text.push_str(before);
        text.push_str(if is_measurement { "#" } else { digits });
        text.push_str(&number[digits.len()..]);
        rest = after;
    }
    text + rest
}

fn lines_match(shown: &[String], printed: &[String]) -> bool {
    let Some((first, later)) = shown.split_first() else {
        return printed.is_empty();
    };
    if first == ANYTHING {
        return (0..=printed.len())
            .any(|skipped| printed.get(skipped..).is_some_and(|rest| lines_match(later, rest)));
    }
    printed
        .split_first()
        .is_some_and(|(line, rest)| line_matches(first, line) && lines_match(later, rest))
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split(ANYTHING);
    let start = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    let Some(end) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shown: &[&str], printed: &str, expected: bool) {
        let shown: Vec<_> = shown.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(is_as_shown(&shown, printed), expected);
    }

    #[test]
    fn without_dots_every_line_counts() {
        check(&[], "", true);
        check(&[], "a\n", false);
        check(&["a"], "a\n", true);
        check(&["a"], "a\nb\n", false);
        check(&["a", "b"], "a\n", false);
        check(&["a  b"], "a      b\n", true);
        check(&["ab"], "a b\n", false);
    }

    #[test]
    fn a_number_with_a_decimal_point_stands_for_any_such_number() {
        check(&["32 MiB in 0.4 s, 671.2 Mbit/s"], "32 MiB in 10.25 s, 26.8 Mbit/s\n", true);
        check(&["32 MiB in 0.4 s."], "33 MiB in 0.4 s.\n", false);
        check(&["(1.5 ms)"], "(22.5 ms)\n", true);
        check(&["192.0.2.5 1.0.85"], "192.0.2.7 1.0.85\n", false);
        check(&["... 0.5 s"], "a b 1.5 s\n", true);
    }

    #[test]
    fn dots_alone_are_any_number_of_lines() {
        check(&["..."], "", true);
        check(&["...", "b"], "a\na\nb\n", true);
        check(&["...", "b"], "a\nb\nc\n", false);
        check(&["...", "b", "..."], "b\nc\nb\nd\n", true);
        check(&["...", "b", "..."], "a\nc\n", false);
    }

    #[test]
    fn dots_in_a_line_are_a_part_of_it() {
        check(&["in ... s"], "in 0.5 s\n", true);
        check(&["in ... s"], "in 0.5 min\n", false);
        check(&["a ... c ... e"], "a b c d e\n", true);
        check(&["... c"], "a b c\n", true);
        check(&["a ..."], "a b c\n", true);
        check(&["a...a"], "a\n", false);
    }
}
