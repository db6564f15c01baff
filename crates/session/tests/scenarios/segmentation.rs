//! Tests that the session does not depend on how TCP splits the bytes.

use std::time::Duration;

use iscsi_session::Config;

use crate::pair::{Cut, Pair, config};
use crate::traffic::{Traffic, small_target, with_digests};

fn run(config: Config, cut: Cut) -> (String, [usize; 2]) {
    let mut pair = Pair::new(config, small_target());
    pair.cut = cut;
    pair.drive();
    let traffic = Traffic::submit(&mut pair);
    pair.drive();
    pair.session.logout(pair.now);
    pair.drive();
    pair.advance(Duration::from_secs(60));
    traffic.check(&pair);
    traffic.check_disk(&pair);
    pair.assert_no_violations();
    assert_eq!(pair.ended, Some(Ok(())));
    (traffic.outcome(&pair), pair.passed)
}

fn sweep(config: &Config) {
    let (whole, passed) = run(config.clone(), Cut::Whole);
    for at in 1..passed[0].max(passed[1]) {
        let (outcome, _) = run(config.clone(), Cut::After(at));
        assert_eq!(outcome, whole, "cut after {at} bytes");
    }
    for size in [1, 2, 3, 47, 48, 49, 511] {
        let (outcome, _) = run(config.clone(), Cut::Every(size));
        assert_eq!(outcome, whole, "pieces of {size} bytes");
    }
}

#[test]
fn cut_at_every_byte_without_digests() {
    sweep(&config());
}

#[test]
fn cut_at_every_byte_with_digests() {
    sweep(&with_digests());
}
