//! Tests that the checks of pages report wrong pages.

use guide::page::Page;

use crate::shell::complaints;

/// Checks the complaints about a page. `expected` has a part of each complaint, in order.
async fn check(source: &str, expected: &[&str]) {
    let found = complaints("a page", &Page::parse(source).unwrap()).await;
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (complaint, part) in found.iter().zip(expected) {
        assert!(complaint.contains(part), "{complaint:?} does not say {part:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_output() {
    check("```console\n$ echo a\nb\n$ echo a\na\n$ echo a\n```\n", &["$ echo a", "line 6"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_the_page_does_not_show() {
    check("```console\n$ false\n$ true\n```\n", &["line 2: the status is Some(1)"]).await;
    check("```console\n$ false\n$ echo $?\n1\n```\n", &[]).await;
    check("<!-- setup\nfalse\n-->\n", &["the setup failed"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_stops_early() {
    let page = "```console\n$ exit 0\n$ true\n```\n";
    check(
        page,
        &["line 2: the status is None", "line 3: the status is None", "did not come to its end"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_are_left() {
    check("```console\n$ sleep 600 &\n```\n", &["leaves programs running: sleep 600"]).await;
    check("```console\n$ sleep 600 &\n$ kill %1; wait\n```\n", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_those_of_the_page() {
    let url = "iscsi://192.0.2.6";
    let page = format!(
        "```console\n$ iscsi-util discover {url}\n...\n  iscsi://192.0.2.6:3260/...\n```\n"
    );
    check(&page, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_left_out() {
    check("```console ignore: no reason\n$ false\n```\n", &[]).await;
    check("```console needs=no-such-program\n$ false\n```\n", &[]).await;
}
