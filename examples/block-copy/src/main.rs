//! Block copy.

fn main() {}
