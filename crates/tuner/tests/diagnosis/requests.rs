//! Tests of findings about requests: R2T, command window, queue depth; a slow target, a slow source.

use std::time::Duration;

use iscsi_tuner::{Activity, Limiter, TransferTerms};

use crate::{Case, assert_says, share, terms, waiting};

#[test]
fn r2t_round_trips_get_the_keys_with_their_numbers() {
    let mut case = Case::on(
        "1gbit",
        waiting(|a| {
            a.solicitation = 50;
        }),
    );
    let io_size = case.plan().io_size.value;
    let terms = case.measurement.terms.unwrap();
    assert!(terms.round_trips(io_size) > 1, "else there is nothing to wait for");
    let finding = case.blames(Limiter::Solicitation);
    assert_says(&finding, "2 round trips", &format!("FirstBurstLength={io_size}"));
    // The first burst must not exceed the others, and must not need an R2T (RFC 7143 §13.10, §13.14).
    assert_says(&finding, "256 KiB", &format!("MaxBurstLength={io_size}"));
    assert_says(&finding, "256 KiB", "InitialR2T=No");

    // A longer burst stays as it is.
    case.measurement.terms =
        Some(TransferTerms::new(0, 1 << 20, terms.bursts_at_once, terms.window));
    let finding = case.blames(Limiter::Solicitation);
    assert_says(&finding, "2 round trips", "MaxBurstLength=1048576");

    case.measurement.terms = None;
    assert_says(&case.blames(Limiter::Solicitation), "waited for an R2T", "");
}

#[test]
fn no_key_helps_a_write_that_is_never_asked_for_more() {
    let mut case = Case::on(
        "1gbit",
        waiting(|a| {
            a.solicitation = 50;
        }),
    );
    case.measurement.terms = Some(terms(|t| {
        t.unsolicited = 16 << 20;
    }));
    assert_says(&case.blames(Limiter::Solicitation), "1 round trips", "");
}

#[test]
fn a_command_window_gets_its_parameter_and_number() {
    let mut case = Case::on(
        "100mbit",
        waiting(|a| {
            a.command_window = 50;
        }),
    );
    let finding = case.blames(Limiter::CommandWindow);
    assert_says(&finding, "64 commands", "a window of 128 (LIO: attrib/default_cmdsn_depth)");

    // 11.25 MiB fill the link. With a window of 2 commands the plan has writes of 4 MiB, which take five
    // round trips each.
    case = Case::on(
        "1gbit",
        waiting(|a| {
            a.command_window = 50;
        }),
    );
    let terms = terms(|t| {
        t.window = Some(2);
        t.burst = 1 << 20;
    });
    case.measurement.terms = Some(terms);
    let io_size = case.plan().io_size.value;
    let in_flight = (11 << 20) + (256 << 10);
    let wanted = (in_flight * terms.round_trips(io_size)).div_ceil(io_size);
    let finding = case.blames(Limiter::CommandWindow);
    assert_says(&finding, "2 commands", &format!("a window of {wanted} "));
}

/// The Linux target refuses a window of more than 512 commands.
#[test]
fn no_larger_command_window_is_advised_than_can_be_had() {
    let mut case = Case::on(
        "100mbit",
        waiting(|a| {
            a.command_window = 50;
        }),
    );
    let shrunk = TransferTerms::new(0, 512, 1, Some(1));
    case.measurement.terms = Some(shrunk);
    let finding = case.blames(Limiter::CommandWindow);
    assert_says(&finding, "1 commands", "a window of 512 (LIO");

    case.measurement.terms = Some(terms(|t| {
        t.window = Some(512);
    }));
    let finding = case.blames(Limiter::CommandWindow);
    assert_says(&finding, "512 commands", "--io-size");
    assert!(!finding.remedy.unwrap().contains("default_cmdsn_depth"));
}

#[test]
fn a_shallow_queue_is_told_with_its_depth() {
    let case = Case::on(
        "100mbit",
        waiting(|a| {
            a.answers = 50;
        }),
    );
    let depth = case.plan().queue_depth.value;
    let finding = case.blames(Limiter::QueueDepth);
    assert_says(&finding, "on its way", &format!("--queue-depth above {depth}"));
}

#[test]
fn a_slow_target_and_a_slow_source_are_told_apart() {
    let case = Case::on(
        "100mbit",
        waiting(|a| {
            a.target = 50;
        }),
    );
    assert_says(&case.blames(Limiter::Target), "it has all the data", "disks");
    let case = Case::on(
        "100mbit",
        waiting(|a| {
            a.source = 50;
        }),
    );
    assert_says(&case.blames(Limiter::Source), "nothing to write", "read the source faster");
    // Reads have no source at this host, so an idle connection means a slow destination.
    let mut case = Case::reading(50, 3 << 20);
    case.observation.activity = waiting(|a| a.source = 50);
    assert_says(&case.blames(Limiter::Destination), "no read", "destination");
}

/// The user's own rate limit is reported as the limiter, in either direction: neither a lack of work nor a
/// full link.
#[test]
fn a_class_is_blamed_by_its_rate() {
    let rate = "10mbit".parse().ok();
    for mut case in [Case::on("100mbit", Activity::default()), Case::reading(350, 32 << 20)] {
        case.observation.activity = waiting(|a| a.class = 50);
        assert_says(&case.blames(Limiter::Class), "waited in their class", "--rate-limit");
        case.observation.limits.rate = rate;
        assert_says(&case.blames(Limiter::Class), "lets 10 Mbit/s pass", "--rate-limit");
        // The class is reported even if the link is full for the rest of the time.
        case.observation.activity.socket = 50;
        case.after().smoothed_rtt = Some(Duration::from_millis(400));
        let diagnosis = case.diagnose();
        assert!((share(&diagnosis, Limiter::Class) - 0.5).abs() < 1e-9, "{diagnosis}");
        assert!((share(&diagnosis, Limiter::Link) - 0.5).abs() < 1e-9, "{diagnosis}");
    }
}

/// The user's limit of requests in flight is the limiter, not the queue depth, which is large enough, nor the
/// target.
#[test]
fn a_limit_of_what_may_be_in_flight_is_blamed_by_its_numbers() {
    let mut case = Case::on("100mbit", waiting(|a| a.in_flight_limit = 50));
    assert_says(&case.blames(Limiter::InFlightLimit), "waited for those in flight", "max_requests");
    case.observation.limits.requests = Some(4);
    case.observation.limits.bytes = Some(1 << 20);
    let finding = case.blames(Limiter::InFlightLimit);
    assert_says(&finding, "4 requests and 1 MiB of data may be", "max_bytes_in_flight");
    // All bytes that may be in flight arrive in a round trip of 100 ms, so the limit in flight holds back the
    // reads.
    let mut case = Case::reading(80, 32 << 20);
    case.observation.activity = waiting(|a| {
        (a.in_flight_limit, a.awaited_data) = (50, 50 << 20);
    });
    case.blames(Limiter::InFlightLimit);
    // With many more bytes in flight, the target is the limiter.
    case.observation.activity.awaited_data = 500 << 20;
    case.blames(Limiter::Target);
}

/// If a caller keeps fewer reads in flight than the plan has, as with --queue-depth 1, the remedy is a larger
/// queue depth, not a check of the target's disks.
#[test]
fn reads_are_judged_by_what_was_under_way() {
    let mut case = Case::reading(80, 32 << 20);
    case.observation.activity.awaited_data = 200 << 20;
    let depth = (1_u64 << 20).div_ceil(case.plan().read_size.value);
    assert!(depth < case.plan().read_depth.value.into());
    let finding = case.blames(Limiter::QueueDepth);
    assert_says(&finding, "on its way", &format!("--queue-depth above {depth})"));
}

/// If as many reads are in flight as the plan has, the remedy is a larger queue depth than that of the plan's
/// reads. Reads take one round trip each, so the plan has fewer reads than writes.
#[test]
fn reads_that_come_as_fast_as_they_are_asked_for_are_told_the_depth() {
    let plan = Case::reading(350, 32 << 20).plan();
    let (size, depth) = (plan.read_size.value, plan.read_depth.value);
    assert!(depth < plan.queue_depth.value, "else the two could be taken for one another");
    let in_100_ms = size * u64::from(depth) * 8 / 100_000;
    let finding = Case::reading(in_100_ms * 9 / 10, 32 << 20).blames(Limiter::QueueDepth);
    assert_says(&finding, "on its way", &format!("--queue-depth above {depth}"));
}

#[test]
fn slower_reads_are_the_targets_business() {
    let finding = Case::reading(50, 3 << 20).blames(Limiter::Target);
    assert_says(&finding, "50 Mbit/s", "net.ipv4.tcp_wmem");
}
