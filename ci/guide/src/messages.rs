//! The page `docs/guide/src/messages.md`: every kind of message, with its cause and what to do, from the code.
//!
//! A row is an error that was made for it, as a program prints it; the cause is the doc comment of its variant in the source.
//! [`complaints`] names each variant that has no row.

mod copy;
mod initiator;
mod login;
mod source;
mod table;
mod url;
mod volume;

use std::fmt::Write;

pub use table::{Row, Table};

/// Where the page is, in the project.
pub const PATH: &str = "docs/guide/src/messages.md";

/// The words above the tables.
const HEAD: &str = "\
# Messages

<!-- `cargo run -p guide -- --write-messages` writes this page from the source code. -->

This page lists the messages about targets, units, copies, NBD exports and volumes. Search it for the words of your message.
The programs print them as `PROGRAM: WHERE: MESSAGE; WHAT TO DO`. Names, numbers and addresses are examples.

Messages about the programs' own options and files are not listed, because each names the option or the file. See also
[Troubleshooting by message](troubleshooting.md), which shows the command behind the most common ones.
";

/// All tables of the page.
#[must_use]
pub fn tables() -> Vec<Table> {
    [url::tables(), login::tables(), initiator::tables(), copy::tables(), volume::tables()].concat()
}

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for table in tables() {
        // Writing to a string does not fail.
        let _ = write!(page, "\n{table}");
    }
    page
}

/// Lists the variants without a row, and the rows without a variant: a sentence each.
#[must_use]
pub fn complaints() -> Vec<String> {
    tables().iter().flat_map(Table::complaints).collect()
}
