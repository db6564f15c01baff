//! Tests of hostile targets: the well-behaved test target sends one wrong answer at a given place, over TCP.
//!
//! Each test case (`Row`) names a wrong answer (a "lie") and its result. Either the session ends, or the
//! request fails and the session continues, each with one sentence that says whose fault it is. Or the wrong
//! answer has no effect. In all cases, a read that succeeds returns the target's bytes, a write that succeeds
//! is on the target's disk, nothing hangs, and nothing panics. To print the table of sentences: `cargo test
//! -p iscsi-initiator --test hostile -- --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    missing_docs,
    reason = "a test may panic, and prints its table"
)]

mod bench;
mod liar;
mod life;
mod line;
mod row;

mod chap;
mod close;
mod control;
mod digest;
mod discovery;
mod flood;
mod inquiry;
mod login;
mod management;
mod negotiation;
mod read;
mod recovery;
mod silence;
mod status;
mod write;

use bench::run;
use row::Row;

/// Returns the stages with their test cases.
fn stages() -> Vec<(&'static str, Vec<Row>)> {
    macro_rules! rows {
        ($($stage:ident),*) => { vec![$((stringify!($stage), $stage::rows())),*] };
    }
    rows!(
        login,
        negotiation,
        chap,
        discovery,
        inquiry,
        read,
        write,
        status,
        control,
        management,
        silence,
        close,
        digest,
        flood,
        recovery
    )
}

/// All test cases run concurrently, because most of them wait for something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lie_ends_in_a_sentence_or_is_survived() {
    run(stages()).await;
}

#[test]
fn there_are_hundreds_of_lies_and_no_two_of_one_name() {
    let mut names: Vec<_> = stages()
        .iter()
        .flat_map(|(stage, rows)| {
            rows.iter().map(move |row| format!("{stage} {:?} {}", row.job, row.name))
        })
        .collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(all >= 300, "{all} lies");
}
