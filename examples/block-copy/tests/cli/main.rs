//! Tests of the program as a process: its copies, its messages and its exit statuses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a test may panic"
)]

mod arguments;
mod bad_input;
mod control;
mod controller;
mod copy;
mod digests;
mod exchange;
mod exclusive;
mod exit_statuses;
mod guards;
mod hostile_text;
mod images;
mod in_use;
mod interrupt;
mod jobs;
mod json;
mod log;
mod part;
mod passes;
mod password;
mod processes;
mod progress;
mod resume;
mod sessions;
mod share;
mod side_files;
mod sparse;
mod stop;
mod support;
mod unreadable;
mod verify;
mod volumes;
