//! Tests that the page of all messages agrees with the source code.

use guide::messages::{PATH, complaints, page};

use crate::folder;

#[test]
fn every_kind_of_error_has_a_row() {
    assert_eq!(complaints(), [""; 0]);
}

#[test]
fn the_page_is_what_the_code_says() {
    let found = folder::source("messages");
    assert!(found == page(), "{PATH} is old: cargo run -p guide -- --write-messages");
}
