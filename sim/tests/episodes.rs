//! Episodes of the simulation: the same seed gives the same episode, and where nothing goes wrong nothing is wrong.

use std::io;

use iscsi_sim::{Settings, run};

/// The first seed of copies of a source in use; of other copies there is one among the first few.
const COPY_IN_USE: u64 = 128;

/// All that is left to chance comes from the seed: the hash covers every request, every answer and every
/// byte of a connection, with their times.
#[test]
fn a_seed_decides_everything() -> io::Result<()> {
    let settings = Settings { operations: 40, ..Settings::default() };
    for seed in (0..8).chain([COPY_IN_USE]) {
        let (first, second) = (run(seed, &settings)?, run(seed, &settings)?);
        assert_eq!((first.hash, first.elapsed), (second.hash, second.elapsed), "seed {seed}");
        assert_eq!(first.violation, second.violation, "seed {seed}");
        assert_ne!(first.hash, run(seed + 1, &settings)?.hash, "seed {seed}");
    }
    Ok(())
}

#[test]
fn where_nothing_goes_wrong_no_request_fails_and_every_read_is_right() -> io::Result<()> {
    let settings = Settings { operations: 100, ..Settings::default().without_faults() };
    for seed in 0..12 {
        assert_eq!(run(seed, &settings)?.violation, None, "seed {seed}");
    }
    Ok(())
}
