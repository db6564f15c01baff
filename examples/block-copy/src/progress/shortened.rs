//! Shortens text to a number of columns.

use std::iter;

use console::measure_text_width;

const ELLIPSIS: &str = "...";

/// Returns the columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    measure_text_width(text)
}

/// Returns the text. If it is wider than `columns`, returns its beginning and its end.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let Some(room) = columns.checked_sub(ELLIPSIS.len()).filter(|room| *room > 1) else {
        return within(text.chars(), columns).into_iter().collect();
    };
    // The end of a name is more specific than its beginning: the file, or the target and the unit.
    let head = within(text.chars(), room / 3);
    let tail = within(text.chars().rev(), room - room / 3);
    head.into_iter().chain(ELLIPSIS.chars()).chain(tail.into_iter().rev()).collect()
}

/// Shortens two names to `columns` in total.
pub(crate) fn both_shortened(names: [&str; 2], columns: usize) -> [String; 2] {
    let [one, other] = names.map(width);
    let half = columns / 2;
    // The columns that one name does not need go to the other.
    let first = if one + other <= columns || one <= half {
        one
    } else {
        half.max(columns.saturating_sub(other))
    };
    [shortened(names[0], first), shortened(names[1], columns.saturating_sub(first))]
}

/// Returns as many of the characters as fit in the columns.
fn within(characters: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut taken = 0;
    let fits = |character: &char| {
        taken += width(character.encode_utf8(&mut [0; 4]));
        taken <= columns
    };
    characters.take_while(fits).collect()
}

/// Returns a bar of `cells` columns of which `done` of `total` are full.
pub(crate) fn bar(done: u64, total: u64, cells: usize) -> String {
    let full = u128::from(done.min(total)) * cells as u128 / u128::from(total.max(1));
    let full = usize::try_from(full).unwrap_or(cells);
    iter::repeat_n('█', full).chain(iter::repeat_n('░', cells - full)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_shortened_in_the_middle() {
        assert_eq!(shortened("disk.img", 8), "disk.img");
        assert_eq!(shortened("/a/long/path/disk.img", 16), "/a/l.../disk.img");
        for columns in 0..40 {
            for text in
                ["/a/long/path/to/an/image/disk.img", "磁碟磁碟磁碟磁碟磁碟磁碟磁碟磁碟磁碟磁碟"]
            {
                let short = shortened(text, columns);
                assert!(width(&short) <= columns, "{columns}: {short}");
            }
        }
    }

    #[test]
    fn two_names_share_the_columns() {
        let (short, long) = ("disk.img", "0123456789abcdefghijklmnopqrstuvwxyz");
        assert_eq!(both_shortened([short, long], 100), [short, long]);
        let [first, second] = both_shortened([short, long], 30);
        assert_eq!((&*first, width(&second)), (short, 22));
        let [first, second] = both_shortened([long, short], 30);
        assert_eq!((width(&first), &*second), (22, short));
        assert_eq!(both_shortened([long, long], 30).map(|name| width(&name)), [15, 15]);
    }

    #[test]
    fn a_bar_is_full_at_the_end_and_no_sooner() {
        assert_eq!(bar(0, 0, 4), "░░░░");
        assert_eq!(bar(99, 100, 4), "███░");
        assert_eq!(bar(100, 100, 4), "████");
        assert_eq!(bar(u64::MAX, 1, 4), "████", "more than there was to do");
    }
}
