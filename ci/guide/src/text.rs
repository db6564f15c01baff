//! Finds links, headings and options in the text of a page.

/// Returns the targets of the Markdown links.
#[must_use]
pub fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// Returns the names by which mdBook links to the headings of a page.
#[must_use]
pub fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#').trim())).collect()
}

/// Returns the anchor of a heading: letters and digits in lower case, and hyphens instead of spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Returns the options that the text names as `--option`, without their values. Options of other programs
/// follow the name of their program, as in `nbdcopy --flush`, and are not included.
#[must_use]
pub fn options(text: &str) -> Vec<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .filter_map(|span| span.strip_prefix("--"))
        .map(|option| option.split([' ', '=', '[']).next().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found() {
        let text = "# Keep to a rate\n\nUse `--rate-limit RATE` or `--verify=read`, [see](a.md#b), `nbdcopy --flush`.\n";
        assert_eq!(links(text), ["a.md#b"]);
        assert_eq!(anchors(text), ["keep-to-a-rate"]);
        assert_eq!(options(text), ["rate-limit", "verify"]);
    }
}
