//! What a diagnosis makes of an observation: who is to blame, for which share of the time, what shows
//! it, and the setting that lifts it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a test may panic")]

use std::time::Duration;

use iscsi_tuner::{
    Activity, Autotuning, Diagnosis, Finding, Interface, Limiter, Limits, Measurement, Observation,
    Plan, Rtt, TcpInfo, TransferTerms, Tuning, plan,
};

/// What Linux comes with.
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

/// What was waited for, as `count` has it.
fn waiting(count: impl FnOnce(&mut Activity)) -> Activity {
    let mut activity = Activity::default();
    count(&mut activity);
    activity
}

/// The Linux target's terms, but for what `change` changes.
fn terms(change: impl FnOnce(&mut TransferTerms)) -> TransferTerms {
    let mut terms = TransferTerms::default();
    change(&mut terms);
    terms
}

/// Ten seconds of a connection, and all that is known around it.
struct Case {
    observation: Observation,
    measurement: Measurement,
    limits: Limits,
    tuning: Tuning,
    interface: Option<Interface>,
}

impl Case {
    /// A stable link of 100 ms, stock Linux on this end, the Linux target's defaults on the other.
    fn on(bandwidth: &str, activity: Activity) -> Self {
        let mut measurement = Measurement::default();
        measurement.rtt = Rtt::of([Duration::from_millis(100); 10]);
        measurement.mss = Some(1448);
        measurement.terms = Some(TransferTerms::default());
        let mut tuning = Tuning::default();
        tuning.bandwidth = Some(bandwidth.parse().unwrap());
        let mut before = TcpInfo::default();
        before.smoothed_rtt = Some(Duration::from_millis(100));
        before.send_mss = Some(1448);
        before.congestion_window = Some(100);
        before.data_segments_sent = Some(5_000);
        before.segments_retransmitted = Some(70);
        before.busy = seconds(3);
        before.receive_window_limited = seconds(1);
        before.send_buffer_limited = seconds(1);
        let mut after = before;
        after.data_segments_sent = Some(25_000);
        after.busy = seconds(13);
        let elapsed = Duration::from_secs(10);
        let bytes = 25_000_000;
        let observation = Observation::new(elapsed, bytes, before, after, activity);
        Self { observation, measurement, limits: stock(), tuning, interface: None }
    }

    /// The same, where something always waited for the socket.
    fn socket(bandwidth: &str) -> Self {
        Self::on(
            bandwidth,
            waiting(|a| {
                a.socket = 200;
            }),
        )
    }

    /// Reads: 10 seconds at that rate, under a receive window of so many bytes.
    fn reading(mbit_per_s: u64, window: u32) -> Self {
        let mut case = Self::on(
            "1gbit",
            waiting(|a| {
                a.answers = 50;
                a.target = 150;
            }),
        );
        case.observation.bytes = mbit_per_s * 1_250_000;
        case.after().bytes_received = Some(case.observation.bytes);
        case.after().receive_window = Some(window);
        case
    }

    fn after(&mut self) -> &mut TcpInfo {
        &mut self.observation.after
    }

    fn plan(&self) -> Plan {
        plan(&self.measurement, &self.limits, &self.tuning)
    }

    fn diagnose(&self) -> Diagnosis {
        let Self { observation, measurement, limits, interface, .. } = self;
        Diagnosis::new(observation, &self.plan(), measurement, limits, interface.as_ref())
    }

    /// The only thing that held the flow back.
    #[track_caller]
    fn blames(&self, limiter: Limiter) -> Finding {
        let diagnosis = self.diagnose();
        assert_eq!(diagnosis.findings.len(), 1, "{diagnosis}");
        let finding = diagnosis.foremost().unwrap().clone();
        assert_eq!(finding.limiter, limiter, "{diagnosis}");
        assert!((finding.share - 1.0).abs() < 1e-9, "{diagnosis}");
        finding
    }
}

/// Says, and advises, what the parts are.
#[track_caller]
fn assert_says(finding: &Finding, evidence: &str, remedy: &str) {
    assert!(finding.evidence.contains(evidence), "{finding:?}");
    let found = finding.remedy.as_deref().unwrap_or_default();
    assert!(found.contains(remedy), "{finding:?}");
    assert_eq!(found.is_empty(), remedy.is_empty(), "{finding:?}");
}

fn share(diagnosis: &Diagnosis, limiter: Limiter) -> f64 {
    diagnosis
        .findings
        .iter()
        .filter(|found| found.limiter == limiter)
        .map(|found| found.share)
        .sum()
}

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

#[test]
fn a_rate_that_is_reached_leaves_nothing_to_lift() {
    let mut case = Case::socket("100mbit");
    case.observation.bytes = 115_000_000;
    assert_says(&case.blames(Limiter::Link), "92 Mbit/s of 100 Mbit/s arrive", "");
}

#[test]
fn a_full_link_beyond_what_was_declared_shows_by_its_queue() {
    let mut case = Case::socket("100mbit");
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    assert_says(&case.blames(Limiter::Link), "20 Mbit/s arrive, 40 ms of data queue", "");
}

/// The kernel counts the windows as limits there too; to lift them would only lengthen the queue.
#[test]
fn no_window_is_blamed_where_the_link_is_full() {
    let mut case = Case::socket("100mbit");
    case.after().receive_window_limited = seconds(6);
    case.after().send_buffer_limited = seconds(6);
    case.observation.bytes = 115_000_000;
    case.blames(Limiter::Link);
    case.observation.bytes = 25_000_000;
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.blames(Limiter::Link);
}

/// Nor is the peer, for whatever it does not take before the link has room for it.
#[test]
fn no_credit_is_blamed_where_the_link_is_full() {
    let activity = waiting(|a| {
        a.solicitation = 5;
        a.command_window = 5;
        a.answers = 5;
    });
    let mut case = Case::on("100mbit", activity);
    assert_eq!(case.diagnose().findings.len(), 3);
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.blames(Limiter::Link);
}

/// A receiver that delays its acknowledgements makes round trips longer, but no queue.
#[test]
fn a_late_acknowledgement_is_no_queue() {
    let mut case = Case::on(
        "100mbit",
        waiting(|a| {
            a.solicitation = 50;
        }),
    );
    case.after().smoothed_rtt = Some(Duration::from_millis(140));
    case.observation.bytes = 500_000;
    case.blames(Limiter::Solicitation);
}

#[test]
fn an_assumed_rate_is_never_reached() {
    let mut case = Case::socket("100mbit");
    case.tuning.bandwidth = None;
    case.observation.bytes = 1_250_000_000;
    case.blames(Limiter::CongestionWindow);
}

#[test]
fn loss_asks_for_another_congestion_control_where_there_is_one() {
    let mut case = Case::socket("100mbit");
    case.after().segments_retransmitted = Some(270);
    let finding = case.blames(Limiter::Loss);
    assert_says(&finding, "1.000 % of the segments", "modprobe tcp_bbr");

    case.limits.available_congestion_controls.push("bbr".to_owned());
    case.limits.allowed_congestion_controls.push("bbr".to_owned());
    assert_says(&case.blames(Limiter::Loss), "1.000 %", "--congestion bbr");

    case.tuning.congestion_control = Some("bbr".to_owned());
    let finding = case.blames(Limiter::Loss);
    assert_says(&finding, "1.000 %", "more connections share the loss");
    assert!(!finding.remedy.unwrap().contains("bbr"), "it is in use");
}

/// A full queue drops segments: that is the link, not a fault of it.
#[test]
fn loss_on_a_full_link_is_the_link() {
    let mut case = Case::socket("100mbit");
    case.after().segments_retransmitted = Some(270);
    case.observation.bytes = 115_000_000;
    case.blames(Limiter::Link);
}

#[test]
fn a_congestion_window_is_told_with_its_phase() {
    let mut case = Case::socket("100mbit");
    let finding = case.blames(Limiter::CongestionWindow);
    assert_says(&finding, "141.4 KiB may be in flight; it still doubles", "");
    case.after().slow_start_threshold = Some(50);
    let finding = case.blames(Limiter::CongestionWindow);
    assert_says(&finding, "141.4 KiB may be in flight; it has met a loss", "");
}

/// 1 Gbit/s at 100 ms hold 11.25 MiB of payload, which the kernel counts twice.
#[test]
fn a_send_buffer_gets_the_sysctl_with_its_numbers() {
    let mut case = Case::socket("1gbit");
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    let sysctl = "sysctl -w net.ipv4.tcp_wmem=\"4096 16384 23592960\"";
    assert_says(&finding, "kernel's tuning has reached its end", sysctl);
    case.limits.tcp_wmem = None;
    assert_says(&case.blames(Limiter::SendBuffer), "reached its end", sysctl);
}

/// A buffer that the user has set too small is told with its size.
#[test]
fn a_send_buffer_that_was_asked_for_is_told() {
    let mut case = Case::socket("1gbit");
    case.tuning.send_buffer = Some(128 << 10);
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "128 KiB are not enough", "--tune auto");
}

/// Where the sysctl permits more than the link seems to need, the advice takes nothing away.
/// The kernel counts a buffer of fixed size as a limit only while it has nothing unsent.
#[test]
fn a_window_beyond_a_fixed_buffer_is_the_buffers_fault() {
    let mut case = Case::socket("100mbit");
    case.tuning.send_buffer = Some(128 << 10);
    case.after().send_buffer_limited = Some(Duration::from_secs(2));
    assert_says(&case.blames(Limiter::SendBuffer), "128 KiB are not enough", "tcp_wmem");
}

#[test]
fn the_sysctl_never_shrinks() {
    let mut case = Case::socket("100mbit");
    case.after().send_buffer_limited = seconds(11);
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "reached its end", "tcp_wmem=\"4096 16384 8388608\"");
    case.tuning.send_buffer = Some(128 << 10);
    let finding = case.blames(Limiter::SendBuffer);
    assert_says(&finding, "128 KiB", "tcp_wmem=\"4096 16384 4194304\"");
}

#[test]
fn the_peers_window_is_lifted_at_the_peer() {
    let mut case = Case::socket("1gbit");
    case.after().receive_window_limited = seconds(11);
    case.after().peer_window = Some(3 << 20);
    let sysctl = "on the target: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 23592960\"";
    assert_says(&case.blames(Limiter::PeerWindow), "the peer takes 3 MiB at a time", sysctl);
    // It has more already than this link seems to need.
    case.after().peer_window = Some(32 << 20);
    let finding = case.blames(Limiter::PeerWindow);
    assert_says(&finding, "32 MiB", "tcp_rmem=\"4096 131072 134217728\"");
}

/// Kernels before 5.4 do not tell the window.
#[test]
fn a_peers_window_that_is_not_told_is_not_made_up() {
    let mut case = Case::socket("1gbit");
    case.after().receive_window_limited = seconds(11);
    let finding = case.blames(Limiter::PeerWindow);
    assert!(!finding.evidence.contains("0 bytes"), "{finding:?}");
    assert_says(&finding, "", "tcp_rmem=\"4096 131072 23592960\"");
}

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

    // A burst that is longer already stays so.
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

    // 11.25 MiB, two round trips a write of 512 KiB.
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

/// The Linux target refuses more than 512.
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
    assert_says(&case.blames(Limiter::Source), "nothing was asked for", "read faster");
}

/// 3 MiB in 100 ms are 252 Mbit/s: the window is what reads have reached.
#[test]
fn reads_that_fill_the_receive_window_are_told_its_sysctl() {
    let finding = Case::reading(230, 3 << 20).blames(Limiter::ReceiveWindow);
    assert_says(&finding, "3 MiB at a time", "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 ");
}

/// Kernels before 6.2 do not tell the window; half of what they tune to is one.
#[test]
fn a_receive_window_that_is_not_told_follows_from_its_limit() {
    let mut case = Case::reading(230, 0);
    case.after().receive_window = None;
    let finding = case.blames(Limiter::ReceiveWindow);
    assert_says(&finding, "3 MiB at a time", "net.ipv4.tcp_rmem=\"4096 131072 ");
}

/// 9 MiB are under way: 755 Mbit/s in 100 ms.
#[test]
fn reads_that_come_as_fast_as_they_are_asked_for_are_told_the_depth() {
    let finding = Case::reading(700, 32 << 20).blames(Limiter::QueueDepth);
    assert_says(&finding, "on its way", "--queue-depth above 36");
}

#[test]
fn slower_reads_are_the_targets_business() {
    let finding = Case::reading(50, 3 << 20).blames(Limiter::Target);
    assert_says(&finding, "50 Mbit/s", "net.ipv4.tcp_wmem");
}

/// What waited for the socket is shared out by the kernel's own account of the time.
#[test]
fn shares_follow_looks_and_the_kernels_account() {
    let activity = waiting(|a| {
        a.socket = 50;
        a.target = 30;
        a.source = 20;
    });
    let mut case = Case::on("100mbit", activity);
    // Of ten busy seconds.
    case.after().receive_window_limited = seconds(5);
    case.after().send_buffer_limited = seconds(3);
    let diagnosis = case.diagnose();
    for (limiter, expected) in [
        (Limiter::Target, 0.3),
        (Limiter::PeerWindow, 0.2),
        (Limiter::CongestionWindow, 0.2),
        (Limiter::Source, 0.2),
        (Limiter::SendBuffer, 0.1),
    ] {
        assert!((share(&diagnosis, limiter) - expected).abs() < 1e-9, "{limiter}: {diagnosis}");
    }
    assert_eq!(diagnosis.foremost().unwrap().limiter, Limiter::Target);
    let total: f64 = diagnosis.findings.iter().map(|finding| finding.share).sum();
    assert!((total - 1.0).abs() < 1e-9);
}

/// Each counter is one the kernel reads by itself: together they may exceed the time.
#[test]
fn a_kernel_that_counts_more_than_was_busy_is_survived() {
    let mut case = Case::socket("100mbit");
    case.after().receive_window_limited = seconds(31);
    case.after().send_buffer_limited = seconds(11);
    let diagnosis = case.diagnose();
    assert!((share(&diagnosis, Limiter::PeerWindow) - 0.75).abs() < 1e-9, "{diagnosis}");
    assert!((share(&diagnosis, Limiter::SendBuffer) - 0.25).abs() < 1e-9, "{diagnosis}");
}

#[test]
fn what_hardly_counts_is_left_out() {
    let activity = waiting(|a| {
        a.target = 99;
        a.source = 1;
    });
    let diagnosis = Case::on("100mbit", activity).diagnose();
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis}");
}

#[test]
fn nothing_observed_nothing_found() {
    let case = Case::on("100mbit", Activity::default());
    let diagnosis = case.diagnose();
    assert_eq!((diagnosis.foremost(), diagnosis.rows()), (None, vec![]));
    assert_eq!(diagnosis.to_string(), "");
}

/// An old kernel, or one that tells nothing at all: there is an answer, and no number is made up.
#[test]
fn a_kernel_that_tells_nothing_gets_an_answer() {
    let mut case = Case::socket("100mbit");
    (case.observation.before, case.observation.after) = Default::default();
    case.measurement = Measurement::default();
    case.limits = Limits::default();
    let finding = case.blames(Limiter::CongestionWindow);
    assert!(!finding.evidence.contains("0 bytes"), "{finding:?}");
    assert!(!finding.evidence.contains("doubles"), "{finding:?}");
}

#[test]
fn activity_adds_up_and_never_overflows() {
    let count = |n| {
        waiting(|a| {
            a.socket = n;
            a.solicitation = n + 1;
            a.command_window = n + 2;
            a.answers = n + 3;
            a.target = n + 4;
            a.source = n + 5;
        })
    };
    assert_eq!(count(10).total(), 75);
    assert_eq!(count(10).since(&count(7)).total(), 18);
    assert_eq!(count(10).since(&waiting(|a| a.target = 4)).target, 10);
    assert_eq!(count(7).since(&count(10)).total(), 0);
    assert_eq!(count(u32::MAX - 5).total(), u32::MAX);
}

fn interface(mtu: u32, offload: Option<bool>) -> Interface {
    let mut interface = Interface::default();
    interface.name = "eth7".to_owned();
    interface.mtu = Some(mtu);
    let own = &mut interface.offload;
    own.tcp_segmentation = offload;
    own.generic_segmentation = offload;
    own.generic_receive = offload;
    interface
}

/// The value and the reason of a remark; empty if there is none.
fn remark(case: &Case, name: &str) -> (String, String) {
    let remarks = case.diagnose().remarks;
    let row = remarks.into_iter().find(|row| row.name == name);
    row.map(|row| (row.value, row.reason)).unwrap_or_default()
}

#[test]
fn the_path_mtu_is_remarked_on() {
    let mut case = Case::on("100mbit", Activity::default());
    for (path, own, part) in [
        (1400, 1500, "less than the 1500 of this end: a tunnel on the way?"),
        (1400, 9000, "less than the 9000 of this end"),
        (1280, 1280, "as long as"),
        (1500, 1500, "as long as"),
        (1500, 9000, "this end could send 9000: jumbo frames need every part of the path"),
        (9000, 9000, "as long as"),
    ] {
        case.measurement.path_mtu = Some(path);
        case.interface = Some(interface(own, None));
        let (value, reason) = remark(&case, "path MTU");
        assert_eq!(value, format!("{path} bytes"));
        assert!(reason.contains(part), "{path} of {own}: {reason}");
    }
    case.interface = None;
    assert!(remark(&case, "path MTU").1.contains("as long as"));
    case.measurement.path_mtu = None;
    assert_eq!(case.diagnose().remarks, []);
}

#[test]
fn offloads_are_remarked_on() {
    let mut case = Case::on("100mbit", Activity::default());
    case.interface = Some(interface(1500, Some(true)));
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "tso gso gro");
    assert!(reason.contains("ethtool -K eth7 tso off gso off gro off"), "{reason}");

    case.interface.as_mut().unwrap().offload.tcp_segmentation = Some(false);
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "gso gro");
    assert!(reason.ends_with("ethtool -K eth7 gso off gro off"), "{reason}");

    case.interface = Some(interface(1500, Some(false)));
    let (value, reason) = remark(&case, "offloads");
    assert_eq!(value, "none");
    assert!(reason.contains("work for this processor"), "{reason}");
}

#[test]
fn offloads_that_are_not_told_are_not_said_to_be_off() {
    let mut case = Case::on("100mbit", Activity::default());
    case.interface = Some(interface(1500, None));
    assert_eq!(remark(&case, "offloads").0, "unknown");
}

/// Writes over a long link with every window in the way, as it is printed.
#[test]
fn a_table_of_everything() {
    let activity = waiting(|a| {
        a.socket = 80;
        a.solicitation = 40;
        a.command_window = 30;
        a.answers = 20;
        a.target = 20;
        a.source = 10;
    });
    let mut case = Case::on("1gbit", activity);
    case.after().receive_window_limited = seconds(4);
    case.after().send_buffer_limited = seconds(5);
    case.after().peer_window = Some(3 << 20);
    case.after().slow_start_threshold = Some(50);
    case.measurement.path_mtu = Some(1500);
    case.interface = Some(interface(9000, Some(true)));
    insta::assert_snapshot!(case.diagnose().to_string());
}

#[test]
fn a_table_of_a_link_that_is_full() {
    let mut case = Case::socket("100mbit");
    case.observation.bytes = 118_000_000;
    case.observation.activity.answers = 20;
    case.after().smoothed_rtt = Some(Duration::from_millis(130));
    case.measurement.path_mtu = Some(1400);
    case.interface = Some(interface(1500, Some(false)));
    insta::assert_snapshot!(case.diagnose().to_string());
}
