//! Tests of the machine of a logical unit with a model of targets: all states of small worlds, and random
//! episodes of larger worlds. To search larger ones, run the same code by hand: `cargo run --release -p
//! iscsi-multipath --example unit_world`.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a model, of which the example uses more"
)]

#[path = "../../examples/unit_world/random.rs"]
mod random;
#[path = "../../examples/unit_world/search.rs"]
mod search;
#[path = "../../examples/unit_world/small.rs"]
mod small;
#[path = "../../examples/unit_world/world.rs"]
mod world;

mod worlds;
