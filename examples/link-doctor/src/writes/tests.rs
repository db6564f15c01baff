//! Tests of the calculated rates of writes, with numbers that were calculated by hand.

use iscsi_initiator::Tuning;
use iscsi_tuner::{Autotuning, Basis, Granted, Limits, Measurement, Rtt, TcpInfo, plan};

use super::*;

const RTT: Duration = Duration::from_millis(100);
const MIB: u64 = 1 << 20;

/// Returns the default keys of LIO, for an initiator that proposes the longest bursts.
fn lio() -> (Negotiated, TransferTerms) {
    let mut negotiated = Negotiated::default();
    negotiated.target_max_recv_data_segment_length = 8192;
    let terms = TransferTerms::new(8192, 262_144, 1, Some(64));
    (negotiated, terms)
}

fn facts(bandwidth: Option<&str>) -> LinkFacts {
    let mut measurement = Measurement::default();
    measurement.rtt = Rtt::of([RTT; 10]);
    let tuning = Tuning::default().with_bandwidth(bandwidth.map(|text| text.parse().unwrap()));
    let mut limits = Limits::default();
    limits.tcp_wmem = Some(Autotuning { min: 4096, default: 16_384, max: 4 * MIB });
    LinkFacts {
        info: TcpInfo::default(),
        plan: plan(&measurement, &limits, &tuning),
        measurement,
        limits,
        encryption: None,
        granted: Granted::default(),
        interface: None,
    }
}

fn writes(
    facts: &LinkFacts,
    workload: (u64, u32),
    change: impl FnOnce(&mut Negotiated, &mut TransferTerms),
) -> Writes {
    let (mut negotiated, mut terms) = lio();
    change(&mut negotiated, &mut terms);
    Writes::new(&Question {
        facts,
        negotiated: &negotiated,
        terms,
        workload,
        answer: None,
        full_rate: None,
        portal_group: PortalGroup::new("iqn.x", Some(1)),
    })
}

fn ceiling(writes: &Writes, limit: Limit) -> &Ceiling {
    writes.ceilings.iter().find(|ceiling| ceiling.limit == limit).unwrap()
}

fn mbit(writes: &Writes, limit: Limit) -> f64 {
    ceiling(writes, limit).rate.mbit_per_second()
}

/// The target takes 8 KiB unsolicited and requests 1016 KiB in rounds of 256 KiB: 1 + 4 round trips of 100 ms.
#[test]
fn a_write_takes_a_round_trip_for_each_round_of_bursts() {
    let writes = writes(&facts(Some("100mbit")), (MIB, 8), |_, _| {});
    assert_eq!(writes.round_trips, 5);
    assert_eq!(writes.time(), Duration::from_millis(500));
    assert!((writes.one_at_a_time.mbit_per_second() - 16.777_216).abs() < 1e-6);
    assert!((mbit(&writes, Limit::Queue) - 8.0 * 16.777_216).abs() < 1e-5);
    assert!((mbit(&writes, Limit::CommandWindow) - 64.0 * 16.777_216).abs() < 1e-5);
    assert!((mbit(&writes, Limit::SendBuffer) - 167.772_16).abs() < 1e-5);
    assert!((mbit(&writes, Limit::Link) - 100.0).abs() < 1e-9);
}

#[test]
fn where_the_link_is_narrowest_nothing_else_is_lowest() {
    let writes = writes(&facts(Some("100mbit")), (MIB, 8), |_, _| {});
    let lowest = writes.lowest().unwrap();
    assert_eq!((lowest.limit, &lowest.remedy), (Limit::Link, &None));
}

#[test]
fn a_short_queue_of_many_round_trips_is_lifted_by_longer_bursts() {
    let writes = writes(&facts(Some("1gbit")), (MIB, 2), |_, _| {});
    let lowest = writes.lowest().unwrap();
    assert_eq!(lowest.limit, Limit::Queue);
    assert_eq!(lowest.because, "2 writes of 1 MiB in flight, 5 round trips each");
    let remedy = lowest.remedy.as_deref().unwrap();
    let keys = "set parameter InitialR2T=No MaxBurstLength=1048576 FirstBurstLength=1048576";
    assert!(remedy.contains(keys), "{remedy}");
}

#[test]
fn only_keys_that_are_too_small_are_named() {
    let writes = writes(&facts(Some("1gbit")), (MIB, 2), |agreed, terms| {
        (agreed.initial_r2t, agreed.max_burst_length) = (false, 1 << 20);
        (terms.unsolicited, terms.burst) = (65_536, 1 << 20);
    });
    assert_eq!(writes.round_trips, 2);
    let remedy = ceiling(&writes, Limit::Queue).remedy.as_deref().unwrap();
    assert!(remedy.contains("set parameter FirstBurstLength=1048576;"), "{remedy}");
}

/// 1 Gbit/s x 100 ms are 12.5 MB in flight: 96 writes of 128 KiB.
#[test]
fn a_full_window_of_single_round_trips_is_lifted_by_the_window() {
    let writes = writes(&facts(Some("1gbit")), (131_072, 8), |agreed, terms| {
        agreed.initial_r2t = false;
        (terms.unsolicited, terms.window) = (131_072, Some(8));
    });
    assert_eq!(writes.round_trips, 1);
    let lowest = writes.lowest().unwrap();
    assert_eq!(lowest.limit, Limit::Queue);
    let remedy = lowest.remedy.as_deref().unwrap();
    assert!(remedy.contains("tpg1 set attribute default_cmdsn_depth=96"), "{remedy}");
    assert_eq!(lowest.remedy, ceiling(&writes, Limit::CommandWindow).remedy);
}

#[test]
fn a_queue_below_the_window_is_ours_to_deepen() {
    let writes =
        writes(&facts(Some("1gbit")), (131_072, 8), |_, terms| terms.unsolicited = 131_072);
    let remedy = ceiling(&writes, Limit::Queue).remedy.as_deref().unwrap();
    assert_eq!(remedy, "allow more writes in flight: a queue depth of 96");
}

#[test]
fn a_window_that_lio_cannot_widen() {
    let writes = writes(&facts(Some("10gbit")), (4096, 512), |_, terms| {
        (terms.unsolicited, terms.window) = (4096, Some(512));
    });
    let remedy = ceiling(&writes, Limit::CommandWindow).remedy.as_deref().unwrap();
    assert!(remedy.contains("longer writes"), "{remedy}");
}

/// 10 Gbit/s x 100 ms need 112.3 MiB of payload in steps of 128 KiB. The kernel counts a buffer twice.
#[test]
fn a_send_buffer_that_is_too_small_is_lifted_by_its_sysctl() {
    let writes = writes(&facts(Some("10gbit")), (4 * MIB, 64), |agreed, terms| {
        agreed.initial_r2t = false;
        terms.unsolicited = 4 * MIB;
    });
    let lowest = writes.lowest().unwrap();
    assert_eq!(lowest.limit, Limit::SendBuffer);
    let wanted = facts(Some("10gbit")).plan.link.max_benefit() * 2;
    assert_eq!(
        lowest.remedy.as_deref().unwrap(),
        format!("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 {wanted}\"")
    );
}

#[test]
fn without_window_scaling_64_kib_are_all() {
    let mut facts = facts(Some("100mbit"));
    facts.info.window_scaling = Some(false);
    let writes = writes(&facts, (MIB, 8), |_, _| {});
    let lowest = writes.lowest().unwrap();
    assert_eq!(lowest.limit, Limit::UnscaledWindow);
    assert_eq!(lowest.rate.bits_per_second(), 5_242_800);
    assert!(lowest.remedy.as_deref().unwrap().contains("net.ipv4.tcp_window_scaling=1"));
}

#[test]
fn loss_counts_unless_the_congestion_control_copes() {
    let mut facts = facts(Some("100mbit"));
    facts.plan.link.loss = 0.001;
    let lossy = writes(&facts, (MIB, 8), |_, _| {});
    let lowest = lossy.lowest().unwrap();
    assert_eq!(lowest.limit, Limit::Loss);
    assert!(lowest.remedy.as_deref().unwrap().contains("modprobe tcp_bbr"));
    facts.limits.allowed_congestion_controls = vec!["bbr".to_owned()];
    let allowed = writes(&facts, (MIB, 8), |_, _| {});
    assert!(ceiling(&allowed, Limit::Loss).remedy.as_deref().unwrap().starts_with("--congestion"));
    facts.granted.congestion_control = Some("bbr".to_owned());
    let copes = writes(&facts, (MIB, 8), |_, _| {});
    assert!(copes.ceilings.iter().all(|ceiling| ceiling.limit != Limit::Loss));
}

#[test]
fn an_answer_that_takes_longer_than_tcp_counts_for_round_trips_only() {
    let facts = facts(Some("100mbit"));
    let (negotiated, terms) = lio();
    let question = Question {
        facts: &facts,
        negotiated: &negotiated,
        terms,
        workload: (MIB, 8),
        answer: Some(2 * RTT),
        full_rate: None,
        portal_group: PortalGroup::new("iqn.x", None),
    };
    let writes = Writes::new(&question);
    assert_eq!(writes.time(), Duration::from_secs(1));
    assert!((mbit(&writes, Limit::SendBuffer) - 167.772_16).abs() < 1e-5);
}

#[test]
fn a_link_of_which_nothing_is_known_says_so() {
    let link = facts(None).plan.link;
    assert_eq!(link.basis, Basis::Assumed);
    let ceiling = link_ceiling(&link, None);
    assert!(ceiling.because.contains("assumed"), "{}", ceiling.because);
    assert!(ceiling.remedy.unwrap().contains("--bandwidth"));
}

#[test]
fn what_reads_have_filled_comes_before_an_assumption_but_not_before_a_word() {
    let full = "20mbit".parse().ok();
    let rate = |declared| link_ceiling(&facts(declared).plan.link, full).rate.mbit_per_second();
    assert!((rate(None) - 20.0).abs() < 1e-9);
    assert!((rate(Some("100mbit")) - 100.0).abs() < 1e-9);
}

#[test]
fn nonsense_terms_give_numbers_all_the_same() {
    let facts = facts(None);
    let writes = writes(&facts, (0, 0), |_, terms| {
        *terms = TransferTerms::new(0, 0, 0, Some(0));
    });
    assert_eq!(writes.round_trips, 1);
    assert_eq!(mbit(&writes, Limit::Queue), Rate::MIN.mbit_per_second());
}
