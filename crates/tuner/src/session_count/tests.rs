//! Tests with transfers over simulated links.

use super::*;

/// A link: its rate, and the largest rate of each session over it, Mbit/s.
#[derive(Clone, Copy)]
struct Link {
    rate: f64,
    each: f64,
}

const TICK: Duration = Duration::from_millis(250);

/// Runs for `seconds`, and returns the number of sessions in each second.
fn run(link: Link, first: u32, planned: impl Fn(f64) -> u32, max: u32, seconds: u32) -> Vec<u32> {
    let mut sessions = SessionCount::new("planned", max);
    let (mut count, mut bytes, mut history) = (first, 0.0, Vec::new());
    for tick in 0..seconds * 4 {
        let rate = link.rate.min(f64::from(count) * link.each);
        bytes += rate * 1e6 / 8.0 * TICK.as_secs_f64();
        let reading = SessionsReading {
            time: TICK * tick,
            bytes: bytes as u64,
            sessions: count,
            planned: planned(rate),
            is_busy: true,
            has_queue: rate >= link.rate,
            round_trip: Duration::from_millis(100),
            ..SessionsReading::default()
        };
        count = match sessions.observe(&reading) {
            Step::Stay => count,
            Step::Add(more) => count + more,
            Step::Remove(fewer) => count - fewer,
        };
        assert!((1..=max).contains(&count), "{count}");
        if tick % 4 == 0 {
            history.push(count);
        }
    }
    assert!(!sessions.reason().is_empty());
    history
}

#[test]
fn one_that_fills_the_link_stays_alone() {
    let history = run(Link { rate: 100.0, each: 100.0 }, 1, |_| 1, 16, 120);
    assert!(history.iter().all(|count| *count == 1), "{history:?}");
}

/// At a loss of a thousandth each session could carry 4 Mbit/s. Sessions that carry far less are limited by
/// something else.
#[test]
fn what_carries_far_less_than_loss_allows_is_not_held_by_loss() {
    let mut sessions = SessionCount::new("planned", 64);
    for tick in 0..240 {
        let mut reading = SessionsReading { sessions: 4, planned: 4, ..busy() };
        (reading.time, reading.bytes) = (TICK * tick, 62_500 / 4 * u64::from(tick));
        (reading.loss, reading.round_trip) = (0.001, Duration::from_millis(100));
        assert_eq!(sessions.observe(&reading), Step::Stay, "{tick}");
    }
}

/// On a slow link data arrives in pieces, so that the rate varies at random. That must not add sessions.
#[test]
fn no_rate_of_a_slow_link_asks_for_more() {
    const PIECE: f64 = 32e3;
    for kbit in [64.0, 128.0, 512.0, 1500.0] {
        let mut sessions = SessionCount::new("planned", 16);
        for tick in 0..4 * 600 {
            let bytes = kbit * 1e3 / 8.0 * TICK.as_secs_f64() * f64::from(tick);
            let reading = SessionsReading {
                time: TICK * tick,
                bytes: ((bytes / PIECE).floor() * PIECE) as u64,
                sessions: 1,
                planned: 1,
                ..busy()
            };
            assert_eq!(sessions.observe(&reading), Step::Stay, "{kbit} kbit/s, {tick}");
        }
    }
}

#[test]
fn sessions_are_added_as_long_as_the_total_rises() {
    let link = Link { rate: 100.0, each: 4.0 };
    let history = run(link, 1, |_| 1, 32, 120);
    assert!(history.last().is_some_and(|count| *count >= 25), "{history:?}");
    let history = run(link, 1, |_| 16, 32, 120);
    assert!(history[5..].iter().all(|count| *count >= 16), "{history:?}");
}

#[test]
fn the_upper_bound_holds() {
    let history = run(Link { rate: 1000.0, each: 1.0 }, 1, |_| 64, 8, 60);
    assert_eq!(history.iter().max(), Some(&8));
}

/// Returns a reading with more work than the sessions take.
fn busy() -> SessionsReading {
    SessionsReading { is_busy: true, ..SessionsReading::default() }
}

/// Runs `ticks` readings, and applies the returned steps. Returns the number of sessions at the end, and the
/// ticks at which sessions were added.
fn follow(
    sessions: &mut SessionCount,
    mut count: u32,
    ticks: u32,
    mut observe: impl FnMut(u32, u32) -> SessionsReading,
) -> (u32, Vec<u32>) {
    let mut added = Vec::new();
    for tick in 0..ticks {
        let seen = observe(tick, count);
        let time = TICK * tick;
        match sessions.observe(&SessionsReading { time, sessions: count, ..seen }) {
            Step::Stay => {}
            Step::Add(more) => {
                count += more;
                added.push(tick);
            }
            Step::Remove(fewer) => count -= fewer,
        }
    }
    (count, added)
}

#[test]
fn what_brings_nothing_is_removed_and_not_tried_again_at_once() {
    // The total rate is 32 Mbit/s for any number of sessions, and no queue stands before the link.
    let mut sessions = SessionCount::new("planned", 16);
    let (count, added) = follow(&mut sessions, 2, 1200, |tick, _| SessionsReading {
        bytes: u64::from(tick) * 1_000_000,
        planned: 2,
        round_trip: Duration::from_millis(20),
        ..busy()
    });
    assert_eq!(count, 2);
    assert!((3..=6).contains(&added.len()), "{added:?}");
    let pauses: Vec<_> = added.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    assert!(sessions.reason().starts_with("2 carry"), "{}", sessions.reason());
}

#[test]
fn where_segments_are_lost_sessions_are_added_fast() {
    let mut sessions = SessionCount::new("planned", 64);
    let (mut bytes, mut counts) = (0, vec![]);
    let (count, added) = follow(&mut sessions, 4, 80, |_, count| {
        bytes += 45_000 * u64::from(count);
        counts.push(count);
        SessionsReading {
            bytes,
            planned: 4,
            loss: 0.01,
            round_trip: Duration::from_millis(100),
            ..busy()
        }
    });
    counts.dedup();
    assert_eq!((counts, count, added.len()), (vec![4, 16, 64], 64, 2));
}

/// Without loss there are at most 32 sessions, because more would displace other traffic.
#[test]
fn only_where_segments_are_lost_there_are_more_than_32() {
    let rate = |loss| {
        let mut sessions = SessionCount::new("planned", 64);
        let mut bytes = 0;
        let observe = |_: u32, count: u32| {
            bytes += 45_000 * u64::from(count);
            SessionsReading {
                bytes,
                planned: 64,
                loss,
                round_trip: Duration::from_millis(100),
                ..busy()
            }
        };
        follow(&mut sessions, 4, 400, observe).0
    };
    assert_eq!((rate(0.01), rate(0.0)), (64, 32));
}

/// Trials that bring nothing are followed by longer and longer pauses. If the rate falls and loss limits it,
/// the next trial begins before the end of the pause.
#[test]
fn a_rate_that_falls_ends_the_pause() {
    const FALL_AT: u32 = 400;
    let mut sessions = SessionCount::new("planned", 16);
    let mut bytes = 0;
    let (count, added) = follow(&mut sessions, 3, FALL_AT + 140, |tick, count| {
        // First, any number of sessions carries 96 Mbit/s in total. Then each carries 3.2 Mbit/s, which a loss of 1 % at 100 ms
        // explains: `loss_ceiling` is 1.4 Mbit/s, and up to `CEILING_SLACK` times that counts as limited by loss.
        let has_fallen = tick >= FALL_AT;
        bytes += if has_fallen { 100_000 * u64::from(count) } else { 3_000_000 };
        SessionsReading {
            bytes,
            planned: 1,
            loss: if has_fallen { 0.01 } else { 0.0 },
            round_trip: Duration::from_millis(100),
            ..busy()
        }
    });
    let (before, after): (Vec<u32>, Vec<u32>) = added.iter().partition(|tick| **tick < FALL_AT);
    assert!(before.len() > 1, "{added:?}");
    assert!(after.first().is_some_and(|tick| *tick < FALL_AT + 15), "{added:?}");
    assert!(count > 8, "{count}");
}

#[test]
fn too_many_for_a_slow_link_are_removed_one_after_the_other() {
    let link = Link { rate: 100.0, each: 100.0 };
    let history = run(link, 5, |rate| if rate > 90.0 { 1 } else { 5 }, 16, 120);
    assert_eq!(history.last(), Some(&1), "{history:?}");
}

#[test]
fn those_that_are_needed_come_back() {
    // The plan is wrong: it takes the rate of one session for the rate of the link.
    let history = run(Link { rate: 1000.0, each: 250.0 }, 5, |_| 1, 16, 60);
    let least = history.iter().min();
    assert!(least >= Some(&3), "{history:?}");
    assert!(history.last() >= Some(&4), "{history:?}");
}

#[test]
fn an_idle_caller_decides_nothing() {
    let mut sessions = SessionCount::new("planned", 16);
    for tick in 0..400 {
        let reading = SessionsReading {
            time: TICK * tick,
            bytes: u64::from(tick) * 1000,
            sessions: 1,
            planned: 16,
            is_busy: tick % 3 != 0,
            ..busy()
        };
        assert_eq!(sessions.observe(&reading), Step::Stay);
    }
}

#[test]
fn none_that_come_are_not_asked_for_again_and_again() {
    let mut sessions = SessionCount::new("planned", 16);
    let mut asked = 0;
    for tick in 0..240u32 {
        let reading = SessionsReading {
            time: TICK * tick,
            bytes: u64::from(tick) * 1_000_000,
            sessions: 4,
            planned: 12,
            is_busy: true,
            round_trip: Duration::from_millis(100),
            ..busy()
        };
        asked += u32::from(matches!(sessions.observe(&reading), Step::Add(_)));
    }
    assert!((1..=4).contains(&asked), "{asked}");
}

#[test]
fn more_than_the_cap_are_removed_one_after_the_other() {
    let mut sessions = SessionCount::new("planned", 16);
    sessions.cap(1, "the target takes no more");
    let (count, added) = follow(&mut sessions, 3, 400, |tick, _| SessionsReading {
        bytes: u64::from(tick) * 1_000_000,
        planned: 9,
        has_queue: true,
        round_trip: Duration::from_millis(100),
        ..busy()
    });
    assert_eq!((count, added.len()), (1, 0));
}

#[test]
fn a_cap_ends_the_search() {
    let mut sessions = SessionCount::new("planned", 16);
    sessions.cap(1, "the target takes no second session");
    for tick in 0..400 {
        let reading = SessionsReading {
            time: TICK * tick,
            bytes: u64::from(tick) * 1000,
            sessions: 1,
            planned: 16,
            is_busy: true,
            ..SessionsReading::default()
        };
        assert_eq!(sessions.observe(&reading), Step::Stay);
    }
    assert_eq!(sessions.reason(), "the target takes no second session");
}

/// A target may refuse sessions only while it is reconfigured, so the cap ends after ten minutes.
#[test]
fn a_cap_holds_for_ten_minutes_of_work() {
    let mut sessions = SessionCount::new("planned", 16);
    sessions.cap(1, "the target admits nobody");
    let mut ticks = 0..;
    let asked = ticks.by_ref().find(|tick| {
        let mut reading = busy();
        (reading.time, reading.bytes) = (TICK * *tick, u64::from(*tick) * 1_000_000);
        (reading.sessions, reading.planned) = (1, 4);
        matches!(sessions.observe(&reading), Step::Add(_))
    });
    let time = TICK * asked.expect("the plan still asks for more");
    let minutes = Duration::from_secs(600)..Duration::from_secs(610);
    assert!(minutes.contains(&time), "{time:?}");
    sessions.cap(64, "more than were allowed");
    assert_eq!(sessions.max, 16);
}

/// A member of a volume waits for the slowest member again and again, so that it never has work for a whole
/// interval.
#[test]
fn a_trial_that_cannot_be_judged_is_given_up() {
    let end = |loss| {
        let mut sessions = SessionCount::new("planned", 16);
        let (count, added) = follow(&mut sessions, 1, 120, |tick, _| SessionsReading {
            bytes: u64::from(tick) * 1_000_000,
            planned: 1,
            // Enough work for a trial to begin, but not for it to end.
            is_busy: tick < 10 || tick % 2 == 0,
            // Too little loss to be what limits the session.
            loss: if tick < 10 { 0.0 } else { loss },
            round_trip: Duration::from_millis(100),
            ..SessionsReading::default()
        });
        (added.len(), count, sessions.reason().to_owned())
    };
    assert_eq!(end(0.0), (1, 1, "1 do what there is to do".to_owned()));
    // Under loss, too many sessions do no harm.
    let (trials, count, _) = end(MIN_LOSS_FOR_SESSIONS);
    assert_eq!((trials, count), (1, 2));
}

#[test]
fn what_the_plan_does_without_goes_where_the_link_is_full_whoever_waits() {
    let end = |planned, has_queue, loss| {
        let mut sessions = SessionCount::new("planned", 16);
        let (count, added) = follow(&mut sessions, 4, 200, |tick, _| SessionsReading {
            bytes: u64::from(tick) * 1_000_000,
            planned,
            is_busy: tick % 2 == 0,
            has_queue,
            loss,
            round_trip: Duration::from_millis(100),
            ..SessionsReading::default()
        });
        assert!(added.is_empty(), "{added:?}");
        count
    };
    assert_eq!(end(1, true, 0.0), 1);
    assert_eq!(end(3, true, 0.0), 3);
    assert_eq!(end(4, true, 0.0), 4);
    // Without a queue it is unknown whether the link is full, and loss is a reason for many sessions.
    assert_eq!(end(1, false, 0.0), 4);
    assert_eq!(end(1, true, 0.01), 4);
}
