//! Tests of the pages of docs/guide: their commands run and print what the pages show, their links lead
//! somewhere, and the options that they name exist.
//!
//! The programs are those beside this test in the target folder. Build them with `cargo build --workspace
//! --bins`, in the profile of the test.
#![allow(clippy::unwrap_used, reason = "a page that cannot be run fails its test")]

mod bites;
mod folder;
mod messages;
mod odd_inputs;
mod pages;
mod shell;
mod text;
mod world;
