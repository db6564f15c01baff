//! One of several units. It is behind the link of its number, and can be reached over this link only.

use crate::testbed::{TARGET, address};

pub(super) fn portal(link: u8) -> String {
    format!("{}:3260", address(link))
}

pub(super) fn url(link: u8) -> String {
    format!("iscsi://{}/{TARGET}/{link}", portal(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_has_the_number_of_its_link() {
        assert_eq!(url(2), format!("iscsi://10.99.2.2:3260/{TARGET}/2"));
    }
}
