//! Tests of a single limit.

use std::time::Duration;

use iscsi_shaper::{Class, RateLimit, TreeError};

use crate::simulated::{Client, Simulation, assert_near, class, rate, seconds};

const MIB: u64 = 1 << 20;

/// Creates a tree whose root has the rate `limit`, with one client in the default class.
fn limited_to(limit: RateLimit, len: u64) -> Simulation {
    let mut simulation = Simulation::new(Class::new(limit));
    let class = simulation.tree.default_class();
    simulation.clients.push(Client { class, len, depth: 4 });
    simulation
}

#[test]
fn forty_megabits_are_forty_megabits_whatever_the_length_of_requests() {
    for len in [MIB, 64 << 10, 4096] {
        let mut simulation = limited_to(rate("40mbit"), len);
        simulation.run(Duration::from_millis(100));
        let since = simulation.elapsed();
        simulation.run(seconds(10));
        assert_near(&simulation.rates_since(since), &[40.0], 0.02);
        let burst = 40e6 / 8.0 * 0.05;
        let excess = simulation.excess(40e6, |_| true);
        assert!(excess <= burst + len as f64 + 1.0, "{len}: {excess}");
    }
}

#[test]
fn over_ten_seconds_from_the_first_request_on_the_mean_is_right() {
    for len in [250_000, 64 << 10] {
        let mut simulation = limited_to(rate("40mbit"), len);
        simulation.run(seconds(10));
        assert_near(&simulation.rates_since(Duration::ZERO), &[40.0], 0.02);
    }
}

/// A class saves up at most its burst while it sends nothing.
#[test]
fn after_a_rest_no_more_than_the_burst_goes_at_once() {
    let root = Class::new(rate("8mbit")).with_burst(Some(100_000)).with_cburst(Some(100_000));
    let mut simulation = Simulation::new(root);
    let class = simulation.tree.default_class();
    simulation.clients.push(Client { class, len: 1000, depth: 4 });
    for _ in 0..3 {
        let before = simulation.sent.len();
        simulation.run(Duration::ZERO);
        assert_eq!(simulation.sent.len() - before, 101);
        simulation.pause(0);
        simulation.run(seconds(60));
        simulation.clients[0].depth = 4;
    }
}

#[test]
fn the_slowest_and_the_fastest_rates_hold() {
    let mut simulation = limited_to(rate("1kbit"), 4096);
    simulation.run(seconds(100_000));
    assert_near(&simulation.rates_since(Duration::ZERO), &[0.001], 0.001);
    let mut simulation = limited_to(rate("1tbit"), u64::from(u32::MAX));
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(seconds(1)), &[1e6], 0.01);
}

#[test]
fn without_a_limit_nothing_waits() {
    let mut simulation = limited_to(RateLimit::Unlimited, u64::MAX);
    simulation.run_at_most(Duration::ZERO, 1000);
    let statistics = simulation.tree.statistics(simulation.tree.root()).unwrap();
    assert_eq!(statistics.sent.requests, 1000);
    assert_eq!((statistics.waited.requests, statistics.waiting_time), (0, Duration::ZERO));
}

#[test]
fn what_was_not_moved_is_given_back() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let now = simulation.now;
    let tree = &mut simulation.tree;
    let copy = tree.add(tree.root(), class("1mbit", "8mbit"), now).unwrap();
    for _ in 0..3 {
        tree.request(copy, MIB, now);
    }
    let first = tree.poll_grant(now).unwrap();
    assert_eq!(tree.poll_grant(now), None);
    tree.correct(&first, 0, now);
    let second = tree.poll_grant(now).unwrap();
    assert_eq!(tree.poll_grant(now), None);
    tree.correct(&second, 2 * MIB, now);
    let statistics = tree.statistics(copy).unwrap();
    assert_eq!((statistics.sent.bytes, statistics.borrowed.bytes), (2 * MIB, 0));
    // The next request waits for the time that 2 MiB less the burst take at 8 Mbit/s.
    let ready = tree.poll_timeout().unwrap() - now;
    assert_eq!(ready, Duration::from_micros(2 * MIB - 50_000));
    assert!(tree.poll_grant(now + ready).is_some_and(|grant| grant.lender == tree.root()));
}

/// A class and its ancestors count the requests that were sent, borrowed, lent, and that waited.
#[test]
fn what_was_sent_borrowed_lent_and_waited_is_counted() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let now = simulation.now;
    let tree = &mut simulation.tree;
    let copy = tree.add(tree.root(), class("80kbit", "8mbit"), now).unwrap();
    for _ in 0..3 {
        tree.request(copy, 100_000, now);
    }
    assert!(tree.poll_grant(now).is_some_and(|grant| grant.lender == copy));
    assert_eq!(tree.poll_grant(now), None);
    let later = tree.poll_timeout().unwrap();
    assert!(tree.poll_grant(later).is_some_and(|grant| grant.lender == tree.root()));
    let of = |id| tree.statistics(id).unwrap();
    let (leaf, root) = (of(copy), of(tree.root()));
    assert_eq!((leaf.sent.requests, leaf.sent.bytes), (2, 200_000));
    assert_eq!((leaf.borrowed.requests, leaf.borrowed.bytes), (1, 100_000));
    assert_eq!((leaf.lent.requests, leaf.waiting), (0, 1));
    assert_eq!((leaf.waited.requests, leaf.waiting_time), (1, later - now));
    assert_eq!((root.sent, root.lent, root.waited), (leaf.sent, leaf.borrowed, leaf.waited));
    assert_eq!((root.borrowed.requests, root.waiting), (0, 0));
}

#[test]
fn a_request_should_be_no_longer_than_the_narrowest_ceil_passes_in_a_time_slice() {
    let mut simulation = Simulation::new(Class::new(rate("80mbit")));
    let now = simulation.now;
    let tree = &mut simulation.tree;
    let slow = tree.add(tree.root(), class("1mbit", "8mbit"), now).unwrap();
    let narrow = tree.add(slow, class("1mbit", "off"), now).unwrap();
    let max = |id| tree.max_request_len(id);
    assert_eq!((max(narrow), max(tree.default_class())), (Some(50_000), Some(500_000)));
    tree.remove(narrow, now).unwrap();
    assert_eq!(tree.max_request_len(narrow), Some(500_000), "that of the default class");
    tree.change(tree.root(), Class::new(RateLimit::Unlimited), now).unwrap();
    assert_eq!(tree.max_request_len(tree.default_class()), None);
}

#[test]
fn more_than_there_is_is_not_guaranteed() {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let now = simulation.now;
    let tree = &mut simulation.tree;
    let root = tree.root();
    let first = tree.add(root, class("6mbit", "10mbit"), now).unwrap();
    let refused = |result| matches!(result, Err(TreeError::Overcommitted { .. }));
    assert!(refused(tree.add(root, class("5mbit", "10mbit"), now).map(drop)));
    assert!(refused(tree.add(root, class("off", "off"), now).map(drop)));
    let second = tree.add(root, class("4mbit", "10mbit"), now).unwrap();
    assert!(refused(tree.change(second, class("5mbit", "10mbit"), now)));
    assert!(refused(tree.change(root, Class::new(rate("9mbit")), now)));
    tree.change(first, class("5mbit", "off"), now).unwrap();
    tree.change(second, class("5mbit", "10mbit"), now).unwrap();
    tree.change(root, Class::new(RateLimit::Unlimited), now).unwrap();
    tree.change(first, Class::new(RateLimit::Unlimited), now).unwrap();
    assert!(refused(tree.change(root, Class::new(rate("9mbit")), now)));
}
