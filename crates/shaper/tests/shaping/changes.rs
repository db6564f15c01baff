//! Tests of classes and requests that change or end while others wait.

use std::time::Duration;

use iscsi_shaper::{Class, RateLimit, Tree, TreeError};

use crate::simulated::{Client, Simulation, assert_near, class, rate, seconds};

const LEN: u64 = 64 << 10;

#[test]
fn a_limit_changes_without_a_pause_and_is_lifted() {
    let mut simulation = Simulation::new(Class::new(rate("20mbit")));
    let class = simulation.tree.default_class();
    simulation.clients.push(Client { class, len: LEN, depth: 4 });
    let root = simulation.tree.root();
    for (limit, gap) in [("20mbit", 27), ("40mbit", 14), ("10mbit", 53), ("20mbit", 27)] {
        simulation.tree.change(root, Class::new(rate(limit)), simulation.now).unwrap();
        let since = simulation.elapsed();
        simulation.run(seconds(5));
        let expected = limit.trim_end_matches("mbit").parse().unwrap();
        assert_near(&simulation.rates_since(since), &[expected], 0.03);
        let times: Vec<_> = simulation.sent.iter().map(|sent| sent.time).collect();
        let after = times.iter().position(|time| *time >= since).unwrap();
        let gaps = times[after..].windows(2).map(|pair| pair[1] - pair[0]);
        let gaps = gaps.chain([times[after] - since]);
        assert!(gaps.max() <= Some(Duration::from_millis(gap)), "{limit}");
    }
    simulation.tree.change(root, Class::new(RateLimit::Unlimited), simulation.now).unwrap();
    let (since, before) = (simulation.elapsed(), simulation.sent.len());
    simulation.run_at_most(Duration::ZERO, 1000);
    assert_eq!(simulation.sent.len() - before, 1000);
    assert_eq!(simulation.elapsed(), since);
    simulation.tree.change(root, Class::new(rate("20mbit")), simulation.now).unwrap();
    simulation.run(seconds(5));
    let sent = simulation.rates_since(since)[0] - 1000.0 * LEN as f64 * 8e-6 / 5.0;
    assert_near(&[sent], &[20.0], 0.03);
}

/// After a change from 1 Gbit/s to 8 kbit/s, the debt of an earlier request delays the next one no longer than before.
#[test]
fn a_debt_takes_no_longer_after_a_change() {
    let mut simulation = Simulation::new(Class::new(rate("1gbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    for _ in 0..2 {
        tree.request(tree.default_class(), 125_000_000, now);
    }
    assert!(tree.poll_grant(now).is_some());
    tree.change(tree.root(), Class::new(rate("8kbit")), now).unwrap();
    let wait = tree.poll_timeout().unwrap() - now;
    assert!(wait <= seconds(1), "{wait:?}");
}

#[test]
fn requests_of_a_class_that_is_removed_go_on_in_the_default_class() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let copy = tree.add(tree.root(), class("4mbit", "8mbit"), now).unwrap();
    let first = tree.request(copy, 1 << 20, now);
    let second = tree.request(tree.default_class(), 1 << 20, now);
    let third = tree.request(copy, 1 << 20, now);
    let fourth = tree.request(copy, 1 << 20, now);
    assert!(tree.poll_grant(now).is_some_and(|grant| grant.ticket == first));
    tree.remove(copy, now).unwrap();
    assert_eq!(tree.statistics(copy), None);
    assert!(tree.cancel(third, now), "it is found where it waits now");
    assert!(!tree.cancel(third, now));
    let fifth = tree.request(copy, 1, now);
    // The remaining requests are granted in the order in which they came, at the rate of the root.
    let mut granted = Vec::new();
    while let Some(next) = tree.poll_timeout() {
        while let Some(grant) = tree.poll_grant(next) {
            assert_eq!(grant.class, tree.default_class());
            granted.push(grant.ticket);
        }
    }
    assert_eq!(granted, [second, fourth, fifth]);
    let again = tree.add(tree.root(), class("4mbit", "8mbit"), now).unwrap();
    assert_ne!(again, copy, "a name is not used again");
    assert_eq!(tree.change(copy, Class::new(RateLimit::Unlimited), now), Err(TreeError::Unknown));
}

/// If a class is removed, a correction still reaches its ancestors, which were charged as well.
#[test]
fn what_a_class_has_not_sent_comes_back_after_it_was_removed() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let group = tree.add(tree.root(), class("4mbit", "8mbit"), now).unwrap();
    for (own, len) in [("0", 1 << 30), ("4mbit", 1 << 30), ("4mbit", 0)] {
        let copy = tree.add(group, class(own, "8mbit"), now).unwrap();
        tree.request(copy, len, now);
        let grant = tree.poll_grant(now).unwrap();
        tree.remove(copy, now).unwrap();
        // The new class takes the index of the removed one. The correction must not reach it.
        let next = tree.add(group, class("0", "8mbit"), now).unwrap();
        tree.correct(&grant, 0, now);
        for class in [next, tree.default_class()] {
            tree.request(class, 1, now);
            let granted = tree.poll_grant(now);
            assert!(granted.is_some_and(|grant| grant.class == class), "after {own}");
        }
        let of = |id| tree.statistics(id).unwrap().sent.bytes;
        assert_eq!(of(tree.root()), of(group) + of(tree.default_class()));
        assert_eq!(of(next), 1);
        tree.remove(next, now).unwrap();
    }
    // If a request moves more bytes than were granted, the classes above the removed class are charged as well.
    let copy = tree.add(group, class("4mbit", "8mbit"), now).unwrap();
    tree.request(copy, 1, now);
    let grant = tree.poll_grant(now).unwrap();
    tree.remove(copy, now).unwrap();
    tree.remove(group, now).unwrap();
    tree.correct(&grant, 1 << 20, now);
    tree.request(tree.default_class(), 1, now);
    assert_eq!(tree.poll_grant(now), None);
    assert!(tree.poll_timeout().unwrap() > now + Duration::from_millis(900));
}

#[test]
fn a_change_reaches_requests_that_wait() {
    let mut simulation = Simulation::new(Class::new(rate("80mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let copy = tree.add(tree.root(), class("8kbit", "8kbit"), now).unwrap();
    for _ in 0..3 {
        tree.request(copy, 10_000, now);
    }
    assert!(tree.poll_grant(now).is_some());
    assert_eq!(tree.poll_grant(now), None);
    assert!(tree.poll_timeout().unwrap() > now + seconds(9));
    tree.change(copy, class("8mbit", "8mbit"), now).unwrap();
    let next = tree.poll_timeout().unwrap();
    assert!(next <= now + Duration::from_millis(10));
    assert!(tree.poll_grant(next).is_some());
}

#[test]
fn a_request_that_is_cancelled_costs_nothing_and_lets_the_next_one_pass() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let class = tree.default_class();
    let first = tree.request(class, 1 << 20, now);
    let second = tree.request(class, 1 << 30, now);
    let third = tree.request(class, 1, now);
    assert!(tree.poll_grant(now).is_some_and(|grant| grant.ticket == first));
    assert!(!tree.cancel(first, now), "it is granted");
    assert!(tree.cancel(second, now));
    let next = tree.poll_timeout().unwrap();
    assert!(tree.poll_grant(next).is_some_and(|grant| grant.ticket == third));
    assert_eq!((tree.poll_grant(next), tree.poll_timeout()), (None, None));
    assert_eq!(tree.statistics(class).unwrap().sent.bytes, (1 << 20) + 1);
}

/// An idle class saves up at most its burst, even after a ceil has held it back.
#[test]
fn what_a_ceil_has_held_back_does_not_grow_while_nobody_waits() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let copy = tree.add(tree.root(), class("4mbit", "8mbit"), now).unwrap();
    let other = tree.add(tree.root(), class("4mbit", "8mbit"), now).unwrap();
    tree.request(other, 1 << 20, now);
    assert!(tree.poll_grant(now).is_some());
    let held = tree.request(copy, 1, now);
    assert_eq!(tree.poll_grant(now), None);
    assert!(tree.cancel(held, now));
    let later = now + seconds(3600);
    for _ in 0..1000 {
        tree.request(copy, 1000, later);
    }
    let granted = std::iter::from_fn(|| tree.poll_grant(later));
    let own = granted.filter(|grant| grant.lender == copy).count();
    assert!(own <= 26, "{own}: a burst of 25,000 bytes");
}

/// The next poll comes an hour late, as in a process that was stopped. Of that hour, only the time for which the
/// ceil of the root held the class back brings tokens beyond the burst.
#[test]
fn only_the_time_that_a_ceil_has_held_a_class_back_counts() {
    let mut simulation = Simulation::new(Class::new(rate("10mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let copy = tree.add(tree.root(), class("4mbit", "4mbit"), now).unwrap();
    tree.request(tree.default_class(), 1 << 20, now);
    assert!(tree.poll_grant(now).is_some_and(|grant| grant.lender == tree.root()));
    for _ in 0..10_000 {
        tree.request(copy, 10_000, now);
    }
    assert_eq!(tree.poll_grant(now), None);
    let held = tree.poll_timeout().unwrap() - now;
    let mut now = now + seconds(3600);
    let (end, mut sent) = (now + seconds(10), 0);
    while now <= end {
        while let Some(grant) = tree.poll_grant(now) {
            sent += grant.bytes;
        }
        now = tree.poll_timeout().unwrap();
    }
    // A timer may be late by a time slice, so that time also counts as held back.
    let held = (held + Class::TIME_SLICE).as_millis() * 500;
    assert!(u128::from(sent) <= 5_000_000 + 25_000 + 10_000 + held, "{sent}");
    assert!(u128::from(sent) >= 5_000_000 + held, "{sent}");
}

#[test]
fn requests_wait_in_classes_without_children_only() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let settings = class("1mbit", "8mbit");
    let group = tree.add(tree.root(), settings, now).unwrap();
    let ticket = tree.request(group, 1, now);
    assert_eq!(tree.add(group, settings, now), Err(TreeError::HoldsRequests));
    assert!(tree.cancel(ticket, now));
    let child = tree.add(group, settings, now).unwrap();
    assert_eq!(tree.remove(group, now), Err(TreeError::HasChildren));
    tree.request(group, 1, now);
    tree.request(tree.root(), 1, now);
    assert_eq!(tree.statistics(tree.default_class()).unwrap().waiting, 2);
    let default = tree.default_class();
    assert_eq!(tree.add(default, settings, now), Err(TreeError::HoldsRequests));
    tree.remove(child, now).unwrap();
    tree.remove(group, now).unwrap();
    for permanent in [tree.root(), default] {
        assert_eq!(tree.remove(permanent, now), Err(TreeError::Permanent));
    }
}

#[test]
fn a_tree_has_eight_levels_at_most() {
    let mut simulation = Simulation::new(Class::new(rate("8mbit")));
    let (tree, now) = (&mut simulation.tree, simulation.now);
    let mut parent = tree.root();
    for _ in 1..Tree::MAX_LEVELS {
        parent = tree.add(parent, class("1mbit", "8mbit"), now).unwrap();
    }
    assert_eq!(tree.add(parent, class("1mbit", "8mbit"), now), Err(TreeError::TooDeep));
    tree.request(parent, 1 << 20, now);
    assert!(tree.poll_grant(now).is_some_and(|grant| grant.lender == parent));
    tree.request(parent, 1, now);
    assert!(tree.poll_timeout().is_some_and(|next| next > now));
}
