//! Tests of the forecast, with tables of the bytes that are written while each pass runs.

use std::time::Duration;

use iscsi_copy::{Divergence, Forecast, Pass, Verdict};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GOAL: Duration = Duration::from_secs(1);

fn pass(copied: u64, secs: u64, dirtied: u64) -> Pass {
    Pass { copied: copied * MIB, time: Duration::from_secs(secs), dirtied: dirtied * MIB }
}

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

/// Each line has a pass over a link of 10 MiB/s, and the next step after it.
#[test]
fn each_pass_says_what_follows() {
    let again = |last, passes| Verdict::Again { last: secs(last), passes };
    let last = |last| Verdict::Last { last: secs(last) };
    let diverges = |last, why| Verdict::Diverges { last: secs(last), why };
    let dirtied = |before, now| Divergence::DirtiedAgain { before: before * MIB, now: now * MIB };
    for (name, passes, expected) in [
        ("nobody writes", vec![pass(1000, 100, 0)], vec![last(0.0)]),
        ("just short enough", vec![pass(1000, 100, 10)], vec![last(1.0)]),
        (
            "a tenth of the rate",
            vec![pass(1000, 100, 100), pass(100, 10, 10)],
            vec![again(10.0, 2), last(1.0)],
        ),
        (
            "half of the rate",
            vec![pass(1000, 100, 500), pass(500, 50, 250), pass(250, 25, 8)],
            vec![again(50.0, 7), again(25.0, 6), last(0.8)],
        ),
        (
            "as fast as it is copied",
            vec![pass(1000, 100, 1000), pass(1000, 100, 900)],
            vec![again(100.0, 100), diverges(90.0, dirtied(1000, 900))],
        ),
        (
            "slower, but not enough",
            vec![pass(1000, 100, 100), pass(100, 10, 89), pass(89, 8, 81)],
            vec![again(10.0, 2), again(8.9, 20), diverges(81.0 * 8.0 / 89.0, dirtied(89, 81))],
        ),
        (
            "too many passes",
            vec![pass(900, 90, 800), pass(800, 80, 700), pass(700, 70, 600)],
            vec![again(80.0, 39), again(70.0, 33), diverges(60.0, Divergence::MaxPasses(3))],
        ),
        (
            "nothing was copied, and something written",
            vec![pass(0, 1, 5)],
            vec![Verdict::Again { last: Duration::MAX, passes: 100 }],
        ),
        ("nothing was copied", vec![pass(0, 1, 0)], vec![last(0.0)]),
    ] {
        let mut forecast = Forecast::new(GOAL, 3);
        let told: Vec<_> = passes.into_iter().map(|pass| forecast.add_pass(pass)).collect();
        assert_eq!(told, expected, "{name}");
    }
}

#[test]
fn one_pass_is_made_in_any_case_and_the_reason_is_a_sentence() {
    let mut forecast = Forecast::new(GOAL, 0);
    let verdict = forecast.add_pass(pass(1000, 100, 500));
    let Verdict::Diverges { why, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(why.to_string(), "no further pass may follow on number 1");
    let why = Divergence::DirtiedAgain { before: 1000, now: 900 }.to_string();
    assert!(why.contains("900 bytes during this pass, 1000 during the one before"), "{why}");
}

proptest! {
    /// If writes have a constant share of the rate, the passes end, and the forecast is right.
    #[test]
    fn a_steady_source_is_foreseen(share in 1..85_u64, total in 1000..1_000_000_u64) {
        let rate = 10 * MIB;
        let mut forecast = Forecast::new(GOAL, 1000);
        let (mut left, mut promised) = (total * MIB, None);
        for count in 1_u32.. {
            let time = secs(left as f64 / rate as f64);
            let dirtied = left / 100 * share;
            match forecast.add_pass(Pass { copied: left, time, dirtied }) {
                Verdict::Again { passes, .. } => {
                    let end = count + passes;
                    // The first forecast is right up to rounding.
                    let first = *promised.get_or_insert(end);
                    prop_assert!(end.abs_diff(first) <= 1 || passes == 100, "{} {}", end, first);
                }
                Verdict::Last { last } => {
                    prop_assert!(last <= GOAL);
                    let is_foreseen = promised.is_none_or(|end| end.abs_diff(count + 1) <= 1);
                    prop_assert!(is_foreseen || count > 100, "{:?} {}", promised, count);
                    break;
                }
                other @ (Verdict::Diverges { .. } | _) => prop_assert!(false, "{:?}", other),
            }
            left = dirtied;
        }
    }
}
