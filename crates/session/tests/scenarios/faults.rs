//! Tests of each kind of fault at each place: each command still ends exactly once, and none is GOOD without
//! its data.

use std::time::Duration;

use iscsi_session::Config;
use iscsi_testkit::config::TargetConfig;
use iscsi_testkit::fault::{Effect, Fault, Trigger};

use crate::pair::{Pair, config};
use crate::traffic::{Traffic, small_target, with_digests};

/// Longer than all time limits of a session together.
const LONG: Duration = Duration::from_secs(600);

fn disturbed(config: Config, target: TargetConfig, flip: Option<(usize, u8)>) -> Pair {
    let mut pair = Pair::new(config, target);
    pair.flip = flip;
    disturb(&mut pair);
    pair
}

fn disturb(pair: &mut Pair) {
    let traffic = Traffic::submit(pair);
    pair.drive();
    pair.advance(LONG);
    traffic.check(pair);
    traffic.check_disk(pair);
}

/// Returns the numbers of bytes in each direction without a fault: in the login, and in total.
fn undisturbed(config: &Config) -> ([usize; 2], [usize; 2]) {
    let login = Pair::logged_in(config.clone(), small_target()).passed;
    let mut pair = Pair::new(config.clone(), small_target());
    Traffic::submit(&mut pair);
    pair.drive();
    (login, pair.passed)
}

fn with_fault(fault: Fault) -> TargetConfig {
    let mut target = small_target();
    target.faults.push(fault);
    target
}

/// ERR-06, ER-I-01: the connection may break after any byte, in both directions.
#[test]
fn connection_cut_at_every_byte() {
    let (_, total) = undisturbed(&config());
    for at in 0..total[0].max(total[1]) as u64 {
        for fault in [Fault::cut_after_sent(at), Fault::cut_after_received(at)] {
            let pair = disturbed(config(), with_fault(fault), None);
            assert!(!matches!(pair.ended, Some(Ok(()))));
        }
    }
}

/// SEQ-16, SEQ-18, RD-08, TMF-06: any PDU of the target may be lost, or sent twice.
#[test]
fn each_pdu_lost_or_repeated() {
    for nth in 0..60 {
        for effect in [Effect::Swallow, Effect::Duplicate, Effect::Close] {
            let fault = Fault::new(Trigger::Sending(None, nth), effect);
            disturbed(config(), with_fault(fault), None);
        }
        let fault = Fault::new(Trigger::Receiving(None, nth), Effect::Swallow);
        let mut pair = Pair::new(config(), with_fault(fault));
        // The checker does not see the lost PDU, so it may report violations that the session did not make:
        // they are ignored.
        pair.is_its_own = |_| false;
        disturb(&mut pair);
    }
}

/// ERR-03: one bit of each byte after the login is flipped. Without digests the session may not notice
/// damaged data. So the test checks only that each command ends once, that nothing panics, and that nothing
/// is written out of bounds.
#[test]
fn flipped_bits_without_digests_do_no_harm_to_the_session() {
    let (login, total) = undisturbed(&config());
    for at in login[1]..total[1] {
        let mut pair = Pair::new(config(), small_target());
        pair.flip = Some((at, 1 << (at % 8)));
        // The session reacts to damaged PDUs, but the checker has seen the undamaged ones. So it may report
        // violations that the session did not make: they are ignored.
        pair.is_its_own = |_| false;
        let traffic = Traffic::submit(&mut pair);
        let submitted = pair.session.stats().tasks_ended;
        assert_eq!(submitted, 1, "only the command that was given up has ended");
        pair.drive();
        pair.advance(LONG);
        assert!(
            traffic.all_ended(&pair),
            "flip at {at}: {:?} {:?}",
            pair.session,
            pair.session.poll_timeout()
        );
    }
}

/// DIG-07, DIG-08, DIG-09, ER-I-02: with both digests every flipped bit is detected.
#[test]
fn flipped_bits_with_digests_are_never_believed() {
    let (login, total) = undisturbed(&with_digests());
    for at in login[1]..total[1] {
        disturbed(with_digests(), small_target(), Some((at, 0x80 >> (at % 8))));
    }
}
