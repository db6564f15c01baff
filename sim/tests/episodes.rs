//! Episodes of the simulation: the same seed gives the same episode, and without faults there is no violation.

use std::collections::BTreeSet;
use std::io;

use iscsi_sim::{Class, Settings, run};

/// The first seed of copies of a source in use. Other copies are among the first few seeds.
const COPY_IN_USE: u64 = 128;
/// Seeds of episodes with repeated copies. Together they have every event that is counted.
const REPEATED_COPIES: [u64; 6] = [74, 69, 48, 17, 40, 45];

/// Seeds of episodes with a served unit. Together they have every event that is counted.
const SERVED: [u64; 2] = [98, 325];

/// The seed decides everything random: the hash covers every request, every response and every byte of a
/// connection, with their times.
#[test]
fn a_seed_decides_everything() -> io::Result<()> {
    let settings = Settings { operations: 40, ..Settings::default() };
    for seed in (0..8).chain([COPY_IN_USE, REPEATED_COPIES[0], SERVED[0]]) {
        let (first, second) = (run(seed, &settings)?, run(seed, &settings)?);
        assert_eq!((first.hash, first.elapsed), (second.hash, second.elapsed), "seed {seed}");
        assert_eq!(first.violation, second.violation, "seed {seed}");
        assert_ne!(first.hash, run(seed + 1, &settings)?.hash, "seed {seed}");
    }
    Ok(())
}

/// A seed whose connections lead through TLS tunnels; `a_seed_decides_everything` runs it as well.
const ENCRYPTED: u64 = 3;

/// Requests end well through a tunnel, which decrypts all that arrives.
#[test]
fn connections_are_encrypted_in_some_episodes() -> io::Result<()> {
    let report = run(ENCRYPTED, &Settings { is_traced: true, ..Settings::default() })?;
    assert_eq!(report.violation, None);
    assert!(report.counts.writes > 0 && report.counts.reads > 0);
    for event in ["encrypted to target", "encrypts for initiator", "encrypted to initiator"] {
        assert!(report.trace.iter().any(|line| line.contains(event)), "never: {event}");
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

/// These cases are no violations: a stream seeks after a write that the unit has refused, a unit shrinks
/// unnoticed, and a port still changes its state while a disk is closed.
#[test]
fn what_looks_wrong_and_is_not_is_no_violation() -> io::Result<()> {
    for seed in [8_023_720, 8_049_030, 8_050_850] {
        assert_eq!(run(seed, &Settings::default())?.violation, None, "seed {seed}");
    }
    Ok(())
}

/// Requests succeed and faults of each class take effect. Without that, an episode could never find a
/// violation.
#[test]
fn in_episodes_requests_end_well_and_faults_of_each_class_take_effect() -> io::Result<()> {
    let rules = [Class::EachHandle, Class::AfterClose];
    let mut missing: BTreeSet<_> = Class::ALL.into_iter().collect();
    rules.iter().for_each(|class| _ = missing.remove(class));
    let (mut writes, mut reads, mut flushes) = (0, 0, 0);
    for seed in 0..100 {
        let report = run(seed, &Settings { operations: 60, ..Settings::default() })?;
        assert_eq!(report.violation, None, "seed {seed}");
        writes += report.counts.writes;
        reads += report.counts.reads;
        flushes += report.counts.flushes;
        missing.retain(|class| !report.counts.faults.contains_key(class));
        if missing.is_empty() && writes > 0 && reads > 0 && flushes > 0 {
            return Ok(());
        }
    }
    panic!("{writes} writes, {reads} reads, {flushes} flushes, and never: {missing:?}");
}

/// Seeds of episodes that go on with a volume.
const VOLUMES: [u64; 2] = [28, 19];

/// One unit of a volume loses its cache, another one is late or away, and flushes report the loss.
#[test]
fn volumes_are_used_while_their_units_fail() -> io::Result<()> {
    let settings = Settings { is_traced: true, ..Settings::default() };
    let mut missing = BTreeSet::from(["flushed", "told of lost writes", "a unit is late"]);
    for seed in VOLUMES {
        let report = run(seed, &settings)?;
        assert_eq!(report.violation, None, "seed {seed}");
        let is_opening = |line: &&String| line.contains("opened a volume");
        let trace = report.trace.iter().skip_while(|line| !is_opening(line));
        let trace: Vec<_> = trace.collect();
        assert!(!trace.is_empty(), "seed {seed}");
        missing.retain(|what| !trace.iter().any(|line| line.contains(what)));
    }
    assert!(missing.is_empty(), "it never happens: {missing:?}");
    Ok(())
}

/// A run ends the sessions of a killed run, digests save writes, and after a mismatch the digests are dropped.
#[test]
fn repeated_copies_survive_killed_processes_and_use_their_files() -> io::Result<()> {
    let mut missing = BTreeSet::from([
        "a copy ends well",
        "a process is killed",
        "all is forgotten",
        "blocks are left out",
        "others write",
        "the host crashes",
        "what was left is ended",
        "passes end well",
    ]);
    for seed in REPEATED_COPIES {
        let report = run(seed, &Settings::default())?;
        assert_eq!(report.violation, None, "seed {seed}");
        missing.retain(|what| !report.counts.repeated_copies.contains_key(what));
        if missing.is_empty() {
            return Ok(());
        }
    }
    panic!("it never happens: {missing:?}");
}

/// Servers are killed and stopped, clients connect again, and flushes report the lost writes.
#[test]
fn a_served_unit_survives_killed_servers_and_lost_connections() -> io::Result<()> {
    let mut missing = BTreeSet::from([
        "a client comes",
        "a connection is lost",
        "a flush tells of a loss",
        "a server is killed",
        "a server is stopped",
        "an answered write fails",
    ]);
    for seed in SERVED {
        let report = run(seed, &Settings::default())?;
        assert_eq!(report.violation, None, "seed {seed}");
        missing.retain(|what| !report.counts.served.contains_key(what));
    }
    assert!(missing.is_empty(), "it never happens: {missing:?}");
    Ok(())
}
