//! Compares the output on a page with the output of a command.

/// Stands for any number of lines, or for any part of a line.
const ANYTHING: &str = "...";

/// Returns whether `printed` matches `shown`. Runs of spaces count as one, since the width of columns depends
/// on their text. A number with a decimal point is a measurement: it matches any other measurement.
#[must_use]
pub fn is_as_shown(shown: &[String], printed: &str) -> bool {
    let shown: Vec<_> = shown.iter().map(|line| squeezed(line)).collect();
    let printed: Vec<_> = printed.lines().map(squeezed).collect();
    lines_match(&shown, &printed)
}

fn squeezed(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    words.join(" ")
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
    if let Some(later) = shown.strip_prefix(ANYTHING) {
        return printed
            .char_indices()
            .map(|(at, _)| at)
            .chain([printed.len()])
            .any(|skipped| printed.get(skipped..).is_some_and(|rest| line_matches(later, rest)));
    }
    let Some(first) = shown.chars().next() else { return printed.is_empty() };
    if first.is_ascii_digit() {
        let ((number, later), (found, rest)) = (split_number(shown), split_number(printed));
        let is_as_shown = number == found || is_measurement(number) && is_number(found);
        return is_as_shown && line_matches(later, rest);
    }
    let rest = printed.strip_prefix(first);
    rest.is_some_and(|rest| line_matches(&shown[first.len_utf8()..], rest))
}

/// Splits a text after the number, address or version with which it begins.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let number = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    text.split_at(number.len())
}

/// Returns whether a number has a decimal point. Addresses and versions have more than one point, and are no numbers.
fn is_measurement(number: &str) -> bool {
    is_number(number) && number.contains('.')
}

fn is_number(number: &str) -> bool {
    number.parse::<f64>().is_ok()
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
        check(&["0.5 MiB", "1.5..."], "8 MiB\n12.25 a\n", true);
        check(&["8 MiB"], "8.5 MiB\n", false);
        check(&["0.5 MiB"], "no MiB\n", false);
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
