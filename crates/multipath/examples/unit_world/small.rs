//! Defines the small worlds that are searched completely.

use crate::world::{Budget, Settings, Wish};

const NONE: Budget = Budget {
    losses: 0,
    resets: 0,
    timers: 0,
    cancels: 0,
    troubles: 0,
    exchanges: 0,
    access: 0,
    closes: 0,
    destages: 0,
};

/// Creates a world with two paths, three writes over two blocks, and a flush. The second write overlaps the
/// two others.
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
        is_unordered: false,
        is_ordered: true,
        budget,
        wishes: vec![Wish::Write(0..1), Wish::Write(0..2), Wish::Write(1..2), Wish::Flush],
        credit: 64,
    }
}

/// Returns the worlds that are searched within the time of a test.
pub fn quick() -> Vec<(&'static str, Settings)> {
    let reset = Budget { resets: 1, ..NONE };
    let loss = Budget { losses: 1, ..NONE };
    let hedge = Budget { timers: 1, ..NONE };
    vec![
        ("nothing", small(NONE)),
        ("reset", small(reset)),
        ("loss", small(loss)),
        ("hedge", small(hedge)),
        ("cancel", small(Budget { cancels: 1, ..NONE })),
        ("close", small(Budget { closes: 1, ..NONE })),
        ("loss, some unsent", Settings { has_unsent: true, ..small(loss) }),
        ("loss, reports of the login", Settings { attends_login: true, ..small(loss) }),
        ("reset, any path", Settings { prefers: true, ..small(reset) }),
        ("reset, several connections", Settings { is_unordered: true, ..small(reset) }),
        ("reset, known unit", Settings { is_known: true, ..small(reset) }),
        ("reset, hedge", small(Budget { resets: 1, timers: 1, ..NONE })),
    ]
}

/// Returns the worlds whose search takes minutes.
pub fn long() -> Vec<(&'static str, Settings)> {
    let loss_reset = Budget { losses: 1, resets: 1, ..NONE };
    let loss_hedge = Budget { losses: 1, timers: 1, ..NONE };
    let other_order = vec![Wish::Write(0..2), Wish::Write(0..1), Wish::Write(1..2), Wish::Flush];
    let two_flushes = vec![Wish::Write(0..1), Wish::Flush, Wish::Write(0..2), Wish::Flush];
    let two_disks = vec![Wish::Write(0..1), Wish::Write(0..1), Wish::Flush];
    vec![
        ("loss, reset", small(loss_reset)),
        ("loss, hedge", small(loss_hedge)),
        ("loss, cancel", small(Budget { losses: 1, cancels: 1, ..NONE })),
        ("two flushes, reset", Settings { wishes: two_flushes, ..small(loss_reset) }),
        (
            "two disks, loss, reset",
            Settings { disks: 2, paths_of_each: 1, wishes: two_disks, ..small(loss_reset) },
        ),
        ("loss, reset, known unit", Settings { is_known: true, ..small(loss_reset) }),
        ("loss, reset, several connections", Settings { is_unordered: true, ..small(loss_reset) }),
        ("loss, reset, any path", Settings { prefers: true, ..small(loss_reset) }),
        ("loss, hedge, other order", Settings { wishes: other_order, ..small(loss_hedge) }),
        ("another unit", {
            let budget = Budget { exchanges: 2, ..NONE };
            Settings { is_known: true, ..small(budget) }
        }),
        ("loss, reset, hedge", small(Budget { losses: 1, resets: 1, timers: 1, ..NONE })),
        ("two resets, hedge", small(Budget { resets: 2, timers: 1, ..NONE })),
    ]
}
