//! Tests of requests that end each session that carries them, and of links that drop.

use super::*;

fn poisoned(links: usize, poison: &[u64]) -> Links {
    let mut world = Links::new(vec![link(50.0, 10); links]);
    world.replacement = Some(|_| link(50.0, 10));
    world.unit.poison = poison.to_vec();
    world
}

#[test]
fn a_request_that_ends_each_session_is_sent_a_few_times() {
    let mut world = poisoned(1, &[0]);
    let ended = world.run(2, 1, READ);
    assert!(matches!(ended[0].result, Err(Failure::EndsSessions { cause: LOST, .. })));
    assert!(ended[1].result.is_ok() && world.tries[&0] <= 8, "{}", world.tries[&0]);
}

/// A request that ends sessions fails. All other requests on these sessions complete.
#[test]
fn the_guilty_are_found_among_many() {
    for (links, poison) in [(1, &[70][..]), (4, &[70]), (1, &[70, 71, 90]), (4, &[70, 71, 72])] {
        let mut world = poisoned(links, poison);
        let ended = world.run(400, 64, READ);
        let mut guilty: Vec<_> = failed(&ended).iter().map(|ended| ended.number).collect();
        assert!(failed(&ended).iter().all(|ended| {
            matches!(ended.result, Err(Failure::EndsSessions { cause: LOST, .. }))
        }));
        guilty.sort_unstable();
        assert_eq!(guilty, poison);
        let most = world.tries.values().max().unwrap();
        assert!(*most <= 24, "{most}");
    }
}

/// On a link that drops every few seconds, no request fails, in spite of hundreds of losses.
#[test]
fn a_line_that_drops_again_and_again_costs_no_request() {
    for (links, requests) in [(1, 15_000), (3, 6_000)] {
        // Each link lives between 0.5 and 3.5 seconds.
        let live = |number: u32| link(4.0, 10).dying(millis(500 + u64::from(number) * 7919 % 3000));
        let mut world = Links::new((0..links).map(live));
        world.replacement = Some(live);
        assert!(failed(&world.run(requests, 64, READ)).is_empty());
        assert!(world.losses > 100, "{}", world.losses);
    }
}
