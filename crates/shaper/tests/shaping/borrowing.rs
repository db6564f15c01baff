//! Tests of guarantees and borrowing among classes.

use std::time::Duration;

use iscsi_shaper::{Class, ClassId, Grant, RateLimit};

use crate::simulated::{Simulation, assert_near, class, rate, seconds};

const LEN: u64 = 16 << 10;

/// Creates three classes with rates of 1, 3 and 6 Mbit/s and a ceil of 10 Mbit/s, under a root of 10 Mbit/s.
fn three_classes(len: u64) -> Simulation {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let root = simulation.tree.root();
    for of in ["1mbit", "3mbit", "6mbit"] {
        simulation.add(root, class(of, "10mbit"), len);
    }
    simulation
}

#[test]
fn classes_get_their_rates_when_all_are_busy_and_share_what_one_leaves_at_once() {
    let mut simulation = three_classes(LEN);
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(Duration::ZERO), &[1.0, 3.0, 6.0], 0.03);
    simulation.pause(2);
    let since = simulation.elapsed();
    simulation.run(seconds(2));
    assert_near(&simulation.rates_since(since)[..2], &[2.5, 7.5], 0.05);
    let since = simulation.elapsed();
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(since)[..2], &[2.5, 7.5], 0.01);
    simulation.clients[2].depth = 4;
    let since = simulation.elapsed();
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(since), &[1.0, 3.0, 6.0], 0.03);
}

/// A long request of another class delays the share of a class, but does not reduce it.
#[test]
fn a_guarantee_that_a_long_request_of_another_holds_up_is_not_lost() {
    let mut simulation = three_classes(LEN);
    simulation.clients[2].len = 2 << 20;
    simulation.run(seconds(100));
    assert_near(&simulation.rates_since(Duration::ZERO), &[1.0, 3.0, 6.0], 0.05);
    let excess = simulation.excess(10e6, |_| true);
    assert!(excess <= 62_500.0 + (2 << 20) as f64 + 1.0, "{excess}");
}

/// A client with one request at a time has the same share as a client with many.
#[test]
fn shares_do_not_depend_on_how_many_requests_wait() {
    let mut simulation = three_classes(LEN);
    for (client, depth) in simulation.clients.iter_mut().zip([64, 1, 1]) {
        client.depth = depth;
    }
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(Duration::ZERO), &[1.0, 3.0, 6.0], 0.03);
    simulation.pause(2);
    let since = simulation.elapsed();
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(since)[..2], &[2.5, 7.5], 0.02);
}

#[test]
fn what_is_borrowed_is_shared_by_weight() {
    let mut simulation = Simulation::new(Class::new(rate("100mbit")));
    let root = simulation.tree.root();
    for (weight, len) in [(1, 64 << 10), (2, 4096), (5, 10_000)] {
        let class = class("4mbit", "100mbit").with_weight(Some(weight));
        simulation.add(root, class, len);
    }
    simulation.run(seconds(20));
    // Beyond the three guaranteed rates, 88 Mbit/s are shared by weight.
    assert_near(&simulation.rates_since(Duration::ZERO), &[15.0, 26.0, 59.0], 0.02);
}

/// Returns the bytes that each of two classes without a rate moves in a minute. Every second request of the
/// first class is corrected from `charged` to `moved` bytes, four requests later.
fn moved_by_two(charged: u64, moved: u64) -> [f64; 2] {
    let (mut simulation, classes) = two_borrowers();
    let (tree, mut now) = (&mut simulation.tree, simulation.now);
    let end = now + seconds(60);
    let lens = [charged, LEN];
    for (class, len) in classes.iter().zip(lens).cycle().take(8) {
        tree.request(*class, len, now);
    }
    let mut under_way: Vec<Grant> = Vec::new();
    let mut is_other = false;
    while now < end {
        while let Some(grant) = tree.poll_grant(now) {
            let of = classes.iter().position(|class| *class == grant.class).unwrap();
            tree.request(grant.class, lens[of], now);
            is_other ^= of == 0;
            if of == 0 && is_other {
                under_way.push(grant);
            }
            if under_way.len() > 2 {
                tree.correct(&under_way.remove(0), moved, now);
            }
        }
        now = tree.poll_timeout().unwrap();
    }
    for grant in under_way {
        tree.correct(&grant, moved, now);
    }
    classes.map(|class| tree.statistics(class).unwrap().sent.bytes as f64)
}

/// Creates two classes without a guaranteed rate, which share the whole rate of the root.
fn two_borrowers() -> (Simulation, [ClassId; 2]) {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let root = simulation.tree.root();
    let classes = [1, 2].map(|_| simulation.tree.add(root, class("0", "10mbit"), simulation.now));
    (simulation, classes.map(Result::unwrap))
}

/// The shares follow the bytes that were moved, whatever the requests were charged with before the
/// correction.
#[test]
fn what_is_borrowed_is_shared_by_what_is_moved() {
    for (charged, moved) in [(LEN, 0), (LEN, LEN / 2), (LEN / 4, LEN), (0, LEN)] {
        let [first, second] = moved_by_two(charged, moved);
        assert_near(&[first], &[second], 0.05);
    }
}

/// A class owes nothing to its siblings for a request that was not sent.
#[test]
fn who_drops_a_long_request_has_his_turn_again_at_once() {
    for before in [0, 10] {
        let (mut simulation, [first, second]) = two_borrowers();
        let (tree, mut now) = (&mut simulation.tree, simulation.now);
        tree.request(first, 1 << 30, now);
        let dropped = tree.poll_grant(now).unwrap();
        for _ in 0..1000 {
            tree.request(second, LEN, now);
        }
        for _ in 0..before {
            now = tree.poll_timeout().unwrap();
            assert!(tree.poll_grant(now).is_some_and(|grant| grant.class == second));
        }
        tree.correct(&dropped, 0, now);
        for _ in 0..1000 {
            tree.request(first, LEN, now);
        }
        for _ in before..40 {
            now = now.max(tree.poll_timeout().unwrap());
            assert!(tree.poll_grant(now).is_some());
        }
        let sent = [first, second].map(|class| tree.statistics(class).unwrap().sent.bytes);
        assert!(sent[0].abs_diff(sent[1]) <= 2 * LEN, "{sent:?} after {before}");
    }
}

#[test]
fn the_ceil_bounds_what_is_borrowed_and_the_others_have_the_rest() {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let root = simulation.tree.root();
    simulation.add(root, class("1mbit", "2mbit"), LEN);
    simulation.add(root, class("1mbit", "10mbit"), LEN);
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(Duration::ZERO), &[2.0, 8.0], 0.02);
}

#[test]
fn what_is_spare_goes_to_the_first_priority_and_no_class_gets_less_than_its_rate() {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let root = simulation.tree.root();
    for (of, priority) in [("1mbit", 2), ("1mbit", 0), ("2mbit", 1)] {
        simulation.add(root, class(of, "10mbit").with_priority(priority), LEN);
    }
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(Duration::ZERO), &[1.0, 7.0, 2.0], 0.03);
    simulation.pause(1);
    let since = simulation.elapsed();
    simulation.run(seconds(20));
    assert_near(&simulation.rates_since(since), &[1.0, 0.0, 9.0], 0.03);
}

/// The default class borrows only the rate that no other class uses, and can be limited by a ceil.
#[test]
fn what_has_no_class_gets_what_is_spare_and_is_not_free() {
    let mut simulation = three_classes(LEN);
    let nobody = simulation.tree.default_class();
    simulation.clients.push(crate::simulated::Client { class: nobody, len: LEN, depth: 4 });
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(Duration::ZERO)[..3], &[1.0, 3.0, 6.0], 0.05);
    (0..3).for_each(|client| simulation.pause(client));
    let since = simulation.elapsed();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(since), &[0.0, 0.0, 0.0, 10.0], 0.02);
    let modest = class("1mbit", "2mbit");
    let refused = simulation.tree.change(nobody, modest, simulation.now);
    assert!(refused.is_err(), "nothing is left to guarantee");
    let modest = Class::new(RateLimit::Zero).with_ceil(rate("2mbit"));
    simulation.tree.change(nobody, modest, simulation.now).unwrap();
    let since = simulation.elapsed();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(since)[3..], &[2.0], 0.02);
}

/// Creates a tree of three levels: the root, two groups, two classes in each group.
fn groups() -> (Simulation, [ClassId; 2]) {
    let mut simulation = Simulation::new(Class::new(rate("100mbit")));
    let root = simulation.tree.root();
    let groups = ["60mbit", "40mbit"]
        .map(|of| simulation.tree.add(root, class(of, "100mbit"), simulation.now).unwrap());
    for (group, of) in [(0, "20mbit"), (0, "10mbit"), (1, "10mbit"), (1, "10mbit")] {
        simulation.add(groups[group], class(of, "100mbit"), LEN);
    }
    (simulation, groups)
}

#[test]
fn classes_borrow_from_their_own_group_before_they_borrow_from_others() {
    let (mut simulation, _) = groups();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(Duration::ZERO), &[40.0, 20.0, 20.0, 20.0], 0.02);
    // If one class is idle, the other class of its group gets its rate.
    simulation.pause(0);
    let since = simulation.elapsed();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(since), &[0.0, 60.0, 20.0, 20.0], 0.02);
    // If both classes of a group are idle, the classes of the other group get the rate of the idle group, in
    // proportion to their own rates.
    simulation.pause(1);
    let since = simulation.elapsed();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(since), &[0.0, 0.0, 50.0, 50.0], 0.02);
}

#[test]
fn the_ceil_of_a_group_holds_for_all_below_it() {
    let (mut simulation, groups) = groups();
    simulation.tree.change(groups[0], class("60mbit", "60mbit"), simulation.now).unwrap();
    simulation.pause(2);
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(Duration::ZERO), &[40.0, 20.0, 0.0, 40.0], 0.02);
    simulation.pause(3);
    let since = simulation.elapsed();
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(since), &[40.0, 20.0, 0.0, 0.0], 0.02);
    let excess = simulation.excess(60e6, |client| client < 2);
    assert!(excess <= 60e6 / 8.0 * 0.05 + LEN as f64 + 1.0, "{excess}");
}

#[test]
fn a_class_without_a_limit_is_held_by_those_above_only() {
    let mut simulation = Simulation::new(Class::new(RateLimit::Unlimited));
    let root = simulation.tree.root();
    let group = simulation.tree.add(root, class("20mbit", "20mbit"), simulation.now).unwrap();
    simulation.add(group, class("5mbit", "off"), LEN);
    simulation.run(seconds(10));
    assert_near(&simulation.rates_since(Duration::ZERO), &[20.0], 0.02);
    let free = simulation.tree.add(root, Class::new(RateLimit::Unlimited), simulation.now).unwrap();
    let (tree, now) = (&mut simulation.tree, simulation.now);
    for _ in 0..100 {
        tree.request(free, 1 << 30, now);
        assert!(tree.poll_grant(now).is_some_and(|grant| grant.class == free));
    }
}
