//! Tests that a diagnosis has certain properties for any input, even an impossible one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

use std::time::Duration;

use iscsi_tuner::{
    Activity, Autotuning, Diagnosis, Interface, Limits, Measurement, Observation, Policy, TcpInfo,
    TransferTerms, Tuning, plan,
};
use proptest::prelude::*;

/// Returns any report of a kernel, including reports with another layout.
fn any_info() -> impl Strategy<Value = TcpInfo> {
    prop_oneof![
        Just(TcpInfo::default()),
        proptest::collection::vec(any::<u8>(), 0..280).prop_map(|bytes| TcpInfo::parse(&bytes)),
        proptest::collection::vec(0_u8..2, 0..280).prop_map(|bytes| TcpInfo::parse(&bytes)),
    ]
}

fn any_activity() -> impl Strategy<Value = Activity> {
    let count = prop_oneof![Just(0), 0_u32..100, any::<u32>()];
    proptest::array::uniform6(count).prop_map(
        |[socket, solicitation, command_window, answers, target, source]| {
            let mut activity = Activity::default();
            (activity.socket, activity.solicitation) = (socket, solicitation);
            (activity.command_window, activity.answers) = (command_window, answers);
            (activity.target, activity.source) = (target, source);
            (activity.class, activity.in_flight_limit) = (source / 2, answers / 3);
            activity.awaited_data = u64::from(target).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            activity
        },
    )
}

fn any_observation() -> impl Strategy<Value = Observation> {
    (any::<u64>(), any::<u64>(), any_info(), any_info(), any_activity()).prop_map(
        |(nanos, bytes, before, after, activity)| {
            Observation::new(Duration::from_nanos(nanos), bytes, before, after, activity)
        },
    )
}

fn any_measurement() -> impl Strategy<Value = Measurement> {
    let terms = (any::<u64>(), any::<u64>(), any::<u32>(), any::<Option<u32>>());
    (any_info(), proptest::option::of(terms), any::<Option<f64>>()).prop_map(
        |(info, terms, loss)| {
            let mut measurement = Measurement::of_tcp(&info);
            measurement.bandwidth = info.delivery_rate;
            measurement.loss = loss;
            measurement.terms = terms.map(|(unsolicited, burst, at_once, window)| {
                TransferTerms::new(unsolicited, burst, at_once, window)
            });
            measurement
        },
    )
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let range = || {
        proptest::option::of(proptest::array::uniform3(any::<u64>()))
            .prop_map(|range| range.map(|[min, default, max]| Autotuning { min, default, max }))
    };
    (any::<Option<u64>>(), range(), range(), any::<bool>()).prop_map(
        |(cap, tcp_wmem, tcp_rmem, may_force)| {
            let mut limits = Limits::default();
            (limits.wmem_max, limits.rmem_max) = (cap, cap);
            (limits.tcp_wmem, limits.tcp_rmem) = (tcp_wmem, tcp_rmem);
            limits.may_force = may_force;
            limits
        },
    )
}

fn any_tuning() -> impl Strategy<Value = Tuning> {
    let rate = proptest::option::of(1_u64..1_000_000_000);
    (0..Policy::ALL.len(), rate, any::<Option<u64>>()).prop_map(|(policy, kilobits, buffer)| {
        Tuning::default()
            .with_policy(Policy::ALL[policy])
            .with_bandwidth(kilobits.map(|rate| format!("{rate}kbit").parse().unwrap()))
            .with_send_buffer(buffer)
            .with_receive_buffer(buffer)
    })
}

proptest! {
    /// There is a diagnosis for any input. Its shares lie within 0 to 1, the largest comes first, and each
    /// limiter occurs once, with an explanation.
    #[test]
    fn total(
        observation in any_observation(),
        measurement in any_measurement(),
        limits in any_limits(),
        tuning in any_tuning(),
        mtu in any::<Option<u32>>(),
        offload in any::<Option<bool>>(),
    ) {
        let plan = plan(&measurement, &limits, &tuning);
        let mut own = Interface::default();
        own.mtu = mtu;
        own.offload.tcp_segmentation = offload;
        let looked = observation.activity.total();
        let diagnosis = Diagnosis::new(&observation, &plan, &measurement, &limits, Some(&own));
        let findings = &diagnosis.findings;
        prop_assert_eq!(findings.is_empty(), looked == 0);
        prop_assert!(findings.iter().all(|finding| (0.0..=1.0).contains(&finding.share)));
        prop_assert!(findings.windows(2).all(|pair| pair[0].share >= pair[1].share));
        let sum: f64 = findings.iter().map(|finding| finding.share).sum();
        prop_assert!(looked == 0 || (0.8..1.000_001).contains(&sum), "{}", sum);
        for (place, finding) in findings.iter().enumerate() {
            prop_assert!(findings[..place].iter().all(|other| other.limiter != finding.limiter));
            prop_assert!(!finding.evidence.is_empty());
            prop_assert!(finding.remedy.as_ref().is_none_or(|remedy| !remedy.is_empty()));
        }
        prop_assert_eq!(diagnosis.rows().len(), diagnosis.to_string().lines().count());
    }
}
