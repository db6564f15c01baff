//! Tests of the plans of all policies, as a table over round-trip time, bandwidth and limits, and of
//! properties that every plan has.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::fmt::Write as _;
use std::time::Duration;

use iscsi_tuner::{
    Autotuning, Buffer, Limits, Measurement, Plan, Policy, Rate, Rtt, SegmentLimit, Sends,
    TransferTerms, Tuning, plan,
};
use proptest::prelude::*;

/// Returns the default limits of Linux.
fn stock() -> Limits {
    let controls = ["reno", "cubic"].map(str::to_owned);
    let mut limits = Limits::default();
    limits.wmem_max = Some(212_992);
    limits.rmem_max = Some(212_992);
    limits.tcp_wmem = Some(Autotuning { min: 4096, default: 16_384, max: 4 << 20 });
    limits.tcp_rmem = Some(Autotuning { min: 4096, default: 131_072, max: 6 << 20 });
    limits.available_congestion_controls = controls.to_vec();
    limits.allowed_congestion_controls = controls.to_vec();
    limits.congestion_control = Some("cubic".to_owned());
    limits
}

/// Returns the default limits of Linux, with CAP_NET_ADMIN and BBR.
fn privileged() -> Limits {
    let mut limits = stock();
    limits.may_force = true;
    limits.available_congestion_controls.push("bbr".to_owned());
    limits.allowed_congestion_controls.push("bbr".to_owned());
    limits
}

/// Returns the limits of a host that was tuned by hand for long links.
fn generous() -> Limits {
    let mut limits = stock();
    limits.wmem_max = Some(64 << 20);
    limits.rmem_max = Some(64 << 20);
    limits.tcp_wmem = Some(Autotuning { min: 4096, default: 16_384, max: 64 << 20 });
    limits.tcp_rmem = Some(Autotuning { min: 4096, default: 131_072, max: 64 << 20 });
    limits
}

fn stable(rtt: Duration) -> Rtt {
    Rtt::of([rtt; 10]).unwrap()
}

fn variable(rtt: Duration) -> Rtt {
    Rtt::of([rtt / 2, rtt * 3 / 2].repeat(10)).unwrap()
}

fn measured(rtt: Rtt) -> Measurement {
    let mut measurement = Measurement::default();
    measurement.rtt = Some(rtt);
    measurement.mss = Some(1448);
    measurement.terms = Some(TransferTerms::default());
    measurement
}

fn asking(policy: Policy, bandwidth: &str) -> Tuning {
    Tuning::default().with_policy(policy).with_bandwidth(Some(bandwidth.parse().unwrap()))
}

fn line(plan: &Plan) -> String {
    let nagle = if plan.no_delay.value { "-" } else { "Nagle" };
    let sends = match plan.sends.value {
        Sends::OnePage => "page",
        Sends::ManyPages => "many",
    };
    let depth = format!("{} x {} K", plan.queue_depth.value, plan.io_size.value >> 10);
    let control = plan.congestion_control.value.as_deref().unwrap_or("-");
    format!(
        "{:>16} {:>16} {nagle:>5} {sends:>4} {control:>4} {:>2} {depth:>11}",
        plan.send_buffer.value.to_string(),
        plan.receive_buffer.value.to_string(),
        plan.connections.value,
    )
}

const MILLIS: [f64; 10] = [0.3, 4.0, 12.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 600.0];

/// Returns a table with one line per round-trip time.
fn table(limits: &Limits, tuning: &Tuning, rtt: impl Fn(Duration) -> Rtt) -> String {
    let mut text =
        String::from("rtt ms      send buffer   receive buffer delay send  cc  n   in flight\n");
    for millis in MILLIS {
        let measurement = measured(rtt(Duration::from_secs_f64(millis / 1e3)));
        writeln!(text, "{millis:>6} {}", line(&plan(&measurement, limits, tuning))).unwrap();
    }
    text
}

#[test]
fn every_policy_at_every_point() {
    let mut text = String::new();
    for policy in Policy::ALL {
        for bandwidth in ["100mbit", "1gbit", "10gbit"] {
            for (name, limits) in
                [("stock", stock()), ("privileged", privileged()), ("generous", generous())]
            {
                let table = table(&limits, &asking(policy, bandwidth), stable);
                write!(text, "{policy}, {bandwidth}, {name} limits\n{table}\n").unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}

/// Table 4.3 of the thesis, all four rows and both columns.
#[test]
fn the_scheme_of_the_thesis() {
    let mut text = String::new();
    let free = asking(Policy::Thesis, "100mbit");
    let restricted = free.clone().with_memory(Some(256 << 10));
    for (memory, tuning) in [("free", free), ("restricted to 256 K", restricted)] {
        let stable = table(&generous(), &tuning, stable);
        let variable = table(&generous(), &tuning, variable);
        write!(text, "memory {memory}, stable\n{stable}\nmemory {memory}, variable\n{variable}\n")
            .unwrap();
    }
    insta::assert_snapshot!(text);
}

#[test]
fn loss_asks_for_another_congestion_control_or_for_more_connections() {
    let mut text = String::new();
    for loss in [0.0, 0.000_01, 0.000_1, 0.001, 0.01] {
        for (name, limits) in [("cubic alone", stock()), ("with bbr", privileged())] {
            let mut measurement = measured(stable(Duration::from_millis(100)));
            measurement.loss = Some(loss);
            let plan = plan(&measurement, &limits, &asking(Policy::Auto, "100mbit"));
            writeln!(text, "{loss:>7} {name:<11} {}", line(&plan)).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn the_table_for_people() {
    let measurement = measured(stable(Duration::from_millis(100)));
    let plan = plan(&measurement, &stock(), &asking(Policy::Auto, "1gbit"));
    insta::assert_snapshot!(plan.to_string());
}

#[test]
fn calls_are_short_over_a_short_link() {
    let send_size = |micros, policy, sends| {
        let mut tuning = asking(policy, "10gbit");
        tuning = tuning.with_sends(sends);
        plan(&measured(stable(Duration::from_micros(micros))), &stock(), &tuning).send_size.value
    };
    for policy in [Policy::Auto, Policy::Static, Policy::Autotune] {
        assert_eq!(send_size(1000, policy, None), Some(112 << 10));
        assert_eq!(send_size(1001, policy, None), None);
        assert_eq!(send_size(1000, policy, Some(Sends::OnePage)), None);
    }
    for policy in [Policy::Off, Policy::Thesis] {
        assert_eq!(send_size(100, policy, None), None);
    }
}

#[test]
fn a_segment_is_waited_for_as_long_as_the_link_permits() {
    let low_water = |micros, bandwidth, limits: &Limits| {
        let measurement = measured(stable(Duration::from_micros(micros)));
        plan(&measurement, limits, &asking(Policy::Auto, bandwidth)).receive_low_water.value
    };
    let kib = |kib: u32| Some(kib << 10);
    assert_eq!(low_water(100, "10mbit", &stock()), kib(256));
    assert_eq!(low_water(100_000, "1gbit", &generous()), kib(256));
    assert_eq!(low_water(100_000, "1gbit", &stock()), kib(96));
    assert_eq!(low_water(100_000, "40mbit", &stock()), Some(50_000));
    assert_eq!(low_water(100_000, "10mbit", &stock()), None);
    let measurement = measured(stable(Duration::from_millis(100)));
    for policy in [Policy::Off, Policy::Thesis] {
        let plan = plan(&measurement, &stock(), &asking(policy, "1gbit"));
        assert_eq!(plan.receive_low_water.value, None);
    }
    // With a small buffer, a low-water mark would be most of the window, so it is not set.
    let mut tuning = asking(Policy::Auto, "1gbit");
    tuning = tuning.with_receive_buffer(Some(64 << 10));
    assert_eq!(plan(&measurement, &stock(), &tuning).receive_low_water.value, None);
}

#[test]
fn a_congestion_control_that_cannot_be_had_is_explained() {
    let measurement = measured(stable(Duration::from_millis(20)));
    let mut tuning = Tuning::default();
    let mut limits = stock();
    limits.available_congestion_controls.push("bbr".to_owned());
    for (name, value, part) in [
        ("reno", Some("reno"), "as asked for"),
        ("bbr", None, "not permitted"),
        ("vegas", None, "modprobe tcp_vegas"),
    ] {
        tuning = tuning.with_congestion_control(Some(name.to_owned()));
        let choice = plan(&measurement, &limits, &tuning).congestion_control;
        assert_eq!(choice.value.as_deref(), value);
        assert!(choice.reason.contains(part), "{}", choice.reason);
    }
}

#[test]
fn a_target_that_shrinks_everything_still_gets_a_plan() {
    let mut measurement = measured(stable(Duration::from_millis(100)));
    measurement.terms = Some(TransferTerms::new(0, 512, 1, Some(1)));
    let plan = plan(&measurement, &stock(), &asking(Policy::Auto, "100mbit"));
    assert_eq!(plan.queue_depth.value, 1);
    assert!(plan.queue_depth.reason.contains("all that the peer accepts"));
}

#[test]
fn nothing_known_is_left_to_the_kernel() {
    for policy in Policy::ALL {
        let tuning = Tuning::default().with_policy(policy);
        let plan = plan(&Measurement::default(), &Limits::default(), &tuning);
        assert_eq!(plan.send_buffer.value, Buffer::Autotuned);
        assert_eq!(plan.receive_buffer.value, Buffer::Autotuned);
        assert_eq!(plan.connections.value, 1);
        assert!(plan.rows().iter().all(|row| !row.reason.is_empty()), "{plan}");
    }
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let size = || prop_oneof![Just(0), 1..=u64::MAX, 4096_u64..=1 << 28];
    let range = move || {
        proptest::option::of((size(), size(), size()).prop_map(|(min, default, max)| Autotuning {
            min,
            default,
            max,
        }))
    };
    (proptest::option::of(size()), proptest::option::of(size()), range(), range(), any::<bool>())
        .prop_map(|(wmem_max, rmem_max, tcp_wmem, tcp_rmem, may_force)| {
            let mut limits = stock();
            (limits.wmem_max, limits.rmem_max) = (wmem_max, rmem_max);
            (limits.tcp_wmem, limits.tcp_rmem) = (tcp_wmem, tcp_rmem);
            limits.may_force = may_force;
            limits
        })
}

fn any_measurement() -> impl Strategy<Value = Measurement> {
    let rtt = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>());
    let terms = (any::<u64>(), any::<u64>(), any::<u32>(), proptest::option::of(any::<u32>()));
    let rest = (any::<Option<f64>>(), any::<Option<u32>>(), any::<Option<u64>>());
    (proptest::option::of(rtt), proptest::option::of(terms), rest).prop_map(
        |(rtt, terms, (loss, mss, peer_window))| {
            let mut measurement = Measurement::default();
            measurement.rtt = rtt.map(|(min, smoothed, deviation, samples)| {
                let mut rtt = Rtt::first(Duration::from_nanos(smoothed));
                rtt.min = Duration::from_nanos(min);
                rtt.deviation = Duration::from_nanos(deviation);
                rtt.samples = samples;
                rtt
            });
            measurement.terms = terms.map(|(unsolicited, burst, at_once, window)| {
                TransferTerms::new(unsolicited, burst, at_once, window)
            });
            (measurement.loss, measurement.mss) = (loss, mss);
            measurement.peer_window = peer_window;
            measurement
        },
    )
}

fn any_policy() -> impl Strategy<Value = Policy> {
    proptest::sample::select(Policy::ALL.to_vec())
}

fn any_tuning() -> impl Strategy<Value = Tuning> {
    let bandwidth =
        (1_000_u64..=1_000_000_000_000).prop_map(|bits| Rate::from_bits_per_second(bits).unwrap());
    let sizes = (any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>());
    (any_policy(), proptest::option::of(bandwidth), sizes).prop_map(
        |(policy, bandwidth, (memory, send_buffer, receive_buffer))| {
            Tuning::default()
                .with_policy(policy)
                .with_bandwidth(bandwidth)
                .with_memory(memory)
                .with_send_buffer(send_buffer)
                .with_receive_buffer(receive_buffer)
        },
    )
}

/// Returns the data in flight that autotuning allows: half of what the kernel counts.
fn autotuned(limits: &Limits) -> u64 {
    limits.tcp_wmem.map_or(2 << 20, |range| range.max / 2)
}

proptest! {
    /// There is a plan for any input, and its numbers are usable.
    #[test]
    fn total(m in any_measurement(), limits in any_limits(), tuning in any_tuning()) {
        let plan = plan(&m, &limits, &tuning);
        prop_assert!((1..=16).contains(&plan.connections.value));
        prop_assert!((1..=256).contains(&plan.queue_depth.value));
        prop_assert!((32 << 10..=4 << 20).contains(&plan.io_size.value));
        prop_assert_eq!(plan.io_size.value % 4096, 0);
        prop_assert!(plan.rows().iter().all(|row| !row.reason.is_empty() && !row.value.is_empty()));
        let in_flight = u64::from(plan.queue_depth.value) * plan.io_size.value;
        prop_assert!(in_flight <= 68 << 20, "{}", in_flight);
        let window = m.terms.and_then(|terms| terms.window);
        prop_assert!(window.is_none_or(|window| plan.queue_depth.value <= window.max(1)));
    }

    /// A buffer that is set lies within the kernel's limit for users, or is forced where that is permitted.
    #[test]
    fn within_caps(m in any_measurement(), limits in any_limits(), mut tuning in any_tuning()) {
        tuning = tuning.with_send_buffer(None).with_receive_buffer(None);
        let plan = plan(&m, &limits, &tuning);
        for (buffer, cap) in [
            (plan.send_buffer.value, limits.wmem_max),
            (plan.receive_buffer.value, limits.rmem_max),
        ] {
            match buffer {
                Buffer::Autotuned => {}
                Buffer::Set(bytes) => prop_assert!(bytes <= cap.unwrap_or(0)),
                Buffer::Forced(_) => prop_assert!(limits.may_force),
            }
        }
    }

    /// Unless the user restricted memory, a buffer that is set holds at least what the link needs, or at
    /// least what the kernel's own tuning allows.
    #[test]
    fn never_worse_than_autotuning(
        m in any_measurement(),
        limits in any_limits(),
        mut tuning in any_tuning(),
    ) {
        tuning = tuning.with_send_buffer(None).with_memory(None);
        let plan = plan(&m, &limits, &tuning);
        if let Some(bytes) = plan.send_buffer.value.bytes() {
            let need = plan.link.max_benefit().min(1 << 30);
            prop_assert!(bytes >= need.min(autotuned(&limits)), "{} of {}", bytes, need);
        }
    }

    /// For a link with a larger capacity, a plan has no smaller send buffer, no fewer connections, and not
    /// much fewer bytes in flight: at least half, and at least a sixth from 300 ms on.
    #[test]
    fn monotone(
        millis in 1_u64..2_000,
        longer in 0_u64..2_000,
        mbit in 1_u64..10_000,
        faster in 0_u64..10_000,
        policy in any_policy(),
        limits in any_limits(),
        terms in proptest::option::of((0_u64..1 << 25, 512_u64..1 << 24, 1_u32..64, 1_u32..512)),
    ) {
        let at = |millis, mbit: u64| {
            let mut measurement = measured(stable(Duration::from_millis(millis)));
            measurement.terms = terms.map(|(unsolicited, burst, at_once, window)| {
 TransferTerms::new(unsolicited, burst, at_once, Some(window))
});
            let tuning = Tuning::default().with_policy(policy).with_bandwidth(Rate::from_bits_per_second(mbit * 1_000_000).ok());
            plan(&measurement, &limits, &tuning)
        };
        let (less, more) = (at(millis, mbit), at(millis + longer, mbit + faster));
        prop_assert!(less.connections.value <= more.connections.value);
        let in_flight = |plan: &Plan| {
            let terms = terms.map_or_else(TransferTerms::default, |(unsolicited, burst, at_once, window)| {
 TransferTerms::new(unsolicited, burst, at_once, Some(window))
});
            u64::from(plan.queue_depth.value) * plan.io_size.value
                / terms.round_trips(plan.io_size.value)
        };
        // The link with the larger capacity may have half of the bytes in flight, because a transfer takes
        // whole round trips, and a longer transfer may waste a part of one. If its round trip is 300 ms or
        // more, a sixth is allowed: `TransferTerms::write_queue` then prefers unsolicited writes, even if
        // they have only a third as many bytes on the link as requested ones. A link of 1 ms counts as local,
        // where round trips are not counted.
        let part = if millis + longer < 300 { 2 } else { 6 };
        prop_assert!(
            millis == 1 || in_flight(&less) <= in_flight(&more) * part,
            "{} {}", in_flight(&less), in_flight(&more)
        );
        let sent = |plan: &Plan| plan.send_buffer.value.bytes();
        if let (Some(less), Some(more)) = (sent(&less), sent(&more)) {
            prop_assert!(less <= more);
        }
    }
}

/// The limit is independent of the policy: no other setting helps where data does not arrive.
#[test]
fn segments_are_limited_only_where_the_path_swallows_longer_ones() {
    for policy in Policy::ALL {
        let tuning = Tuning::default().with_policy(policy);
        let mut measurement = Measurement::default();
        let shown = |measurement: &Measurement| {
            let plan = plan(measurement, &Limits::default(), &tuning);
            let row = plan.rows().into_iter().find(|row| row.name == "longest segment");
            (plan.segment.value, row.map(|row| (row.value, row.reason)))
        };
        assert_eq!(shown(&measurement), (None, None));
        measurement.segment_limit = Some(SegmentLimit::new(1200, 1500, None));
        let (segment, row) = shown(&measurement);
        let reason = "packets of 1500 bytes do not arrive, and no ICMP message says so";
        assert_eq!(segment, Some(1200));
        assert_eq!(row, Some(("1200 bytes".to_owned(), reason.to_owned())));
    }
}
