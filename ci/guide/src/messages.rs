//! The page `docs/guide/src/messages.md`: every kind of message, with its cause and what to do, generated from
//! the code.
//!
//! Each message has a row of a table. Its text comes from a sample of the error, printed as a program prints
//! it. The cause is the doc comment of the variant in the source. [`complaints`] names each variant that has
//! no row.

mod copy;
mod initiator;
mod login;
mod source;
mod table;
mod url;
mod volume;

use std::fmt::Write;

pub use table::{Row, Table};

/// Path of the page in the project.
pub const PATH: &str = "docs/guide/src/messages.md";

/// Text above the tables.
const HEAD: &str = "\
# Messages

<!-- `cargo run -p guide -- --write-messages` writes this page from the source code. -->

This page lists the messages about targets, units, copies, NBD exports and volumes. Search it for the words of your message.
The programs print them as `PROGRAM: WHERE: MESSAGE; WHAT TO DO`. Names, numbers and addresses are examples.

Messages about the programs' own options and files are not listed, because each names the option or the file. See also
[Troubleshooting by message](troubleshooting.md), which shows the command behind the most common ones.
";

/// Returns all tables of the page of messages.
#[must_use]
pub fn tables() -> Vec<Table> {
    [url::tables(), login::tables(), initiator::tables(), copy::tables(), volume::tables()].concat()
}

/// Returns the page of messages in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for table in tables() {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n{table}");
    }
    page
}

/// Returns a sentence for each variant without a row, and for each row without a variant.
#[must_use]
pub fn complaints() -> Vec<String> {
    tables().iter().flat_map(Table::complaints).collect()
}
