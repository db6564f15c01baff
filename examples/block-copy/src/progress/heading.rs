//! Renders the line that names the source and the destination of a copy.

use iscsi_pdu::keys::printable;

use crate::end::End;
use crate::progress::shortened::{both_shortened, width};

/// Columns that a name gets, if it needs them, before any details are shown.
const NAME: usize = 18;

/// Returns the line that names the source and the destination of a copy, with the size and sessions of each
/// unit as far as they fit in the columns. Without a limit the line has all details.
pub(crate) fn heading(source: &End, destination: &End, columns: Option<usize>) -> String {
    let names = [source, destination].map(|end| printable(&end.name()));
    let details = [source, destination].map(End::details);
    rendered([&names[0], &names[1]], &details, columns.unwrap_or(usize::MAX))
}

fn rendered(names: [&str; 2], details: &[Vec<String>; 2], columns: usize) -> String {
    let least: usize = names.iter().map(|name| width(name).min(NAME)).sum();
    let levels = details.iter().map(Vec::len).max().unwrap_or(0);
    let line = |[source, destination]: [&str; 2], level: usize| {
        let [from, to] = details.each_ref().map(|end| detail(end, level));
        format!("copying {source}{from} to {destination}{to}")
    };
    let fixed = |level| width(&line(["", ""], level));
    let fitting = (0..levels).find(|level| fixed(*level).saturating_add(least) <= columns);
    let level = fitting.unwrap_or(levels);
    let [source, destination] = both_shortened(names, columns.saturating_sub(fixed(level)));
    line([&source, &destination], level)
}

/// Returns the details of a source or destination. A higher level has a shorter text. After the last level
/// there is no text.
fn detail(end: &[String], level: usize) -> String {
    let text = end.get(level).map(|text| printable(text));
    text.map_or_else(String::new, |text| format!(" ({text})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0";

    fn details() -> [Vec<String>; 2] {
        let unit = ["LIO-ORG disk1, 10 GiB, 1 session", "10 GiB, 1 session", "10 GiB"];
        [vec!["4 GiB".to_owned(); 3], unit.map(str::to_owned).to_vec()]
    }

    #[test]
    fn the_line_has_as_much_of_both_ends_as_fits() {
        let line = |columns| rendered(["/images/disk.img", URL], &details(), columns);
        assert_eq!(
            [usize::MAX, 120, 80, 50, 40].map(line),
            [
                "copying /images/disk.img (4 GiB) to iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 (LIO-ORG disk1, 10 GiB, 1 session)",
                "copying /images/disk.img (4 GiB) to iscsi://10.0.0.5/iqn.2026-01.org.example:disk/0 (LIO-ORG disk1, 10 GiB, 1 session)",
                "copying /images/disk.img (4 GiB) to iscsi:/...example:disk/0 (10 GiB, 1 session)",
                "copying /images/disk.img to iscsi:...xample:disk/0",
                "copying /im...disk.img to isc...e:disk/0"
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "/a/path/of/some/length/".repeat(20);
        for names in [["a", "b"], [&*long, URL], [URL, &*long], [&*long, &*long]] {
            for columns in [40, 50, 80, 120, 200] {
                let line = rendered(names, &details(), columns);
                assert!(width(&line) <= columns, "{columns}: {line}");
                assert!(line.starts_with("copying ") && line.contains(" to "), "{line}");
            }
        }
        assert_eq!(rendered(["a", "b"], &[vec![], vec![]], 40), "copying a to b");
    }
}
