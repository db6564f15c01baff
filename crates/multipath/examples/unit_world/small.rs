//! The small worlds that are searched as a whole.

use crate::world::{Budget, Settings, Wish};

/// Two paths, three writes over two blocks, of which the second overlaps both others, and a flush.
fn small(budget: Budget) -> Settings {
    Settings {
        disks: 1,
        paths_of_each: 2,
        blocks: 2,
        is_known: false,
        prefers: false,
        has_unsent: false,
        attends_login: false,
        has_time: false,
        is_ordered: true,
        budget,
        wishes: vec![Wish::Write(0..1), Wish::Write(0..2), Wish::Write(1..2), Wish::Flush],
        credit: 64,
    }
}

/// The worlds by their names, the smallest first.
pub fn worlds() -> Vec<(&'static str, Settings)> {
    let none = Budget::default();
    let reset = Budget { resets: 1, ..none };
    let loss = Budget { losses: 1, ..none };
    let hedge = Budget { timers: 1, ..none };
    let all = Budget { losses: 1, resets: 1, timers: 1, ..none };
    vec![
        ("nothing", small(none)),
        ("reset", small(reset)),
        ("loss", small(loss)),
        ("hedge", small(hedge)),
        ("loss-reset", small(Budget { losses: 1, resets: 1, ..none })),
        ("reset-hedge", small(Budget { resets: 1, timers: 1, ..none })),
        ("loss-hedge", small(Budget { losses: 1, timers: 1, ..none })),
        ("loss-reset-hedge", small(all)),
    ]
}
