//! Property tests: whatever a target sends, a login ends with an error or continues within its limits.

use proptest::prelude::*;

use super::chap::Asked;
use super::*;

fn stage() -> impl Strategy<Value = Stage> {
    prop_oneof![
        Just(Stage::SecurityNegotiation),
        Just(Stage::OperationalNegotiation),
        Just(Stage::FullFeature)
    ]
}

/// Generates values: some that are likely for keys, and others.
fn value() -> impl Strategy<Value = String> {
    let likely = [
        "Yes",
        "No",
        "None",
        "CHAP",
        "CRC32C",
        "Reject",
        "Irrelevant",
        "NotUnderstood",
        "5",
        "0",
        "512",
        "8192",
        "65535",
        "16777215",
        "0x42",
        "0bAA==",
        "5,6",
        "",
        "10.0.0.1:3260,1",
    ];
    prop_oneof![
        proptest::sample::select(likely.to_vec()).prop_map(str::to_owned),
        any::<u64>().prop_map(|number| number.to_string()),
        "\\PC{0,40}",
    ]
}

/// Generates pairs of known and unknown keys.
fn likely_text() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<_> = iscsi_pdu::keys::Key::ALL.iter().map(|key| key.name().to_owned()).collect();
    let key = prop_oneof![proptest::sample::select(known), "[A-Z][a-z.]{0,20}"];
    proptest::collection::vec((key, value()), 0..8).prop_map(|pairs| {
        pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
    })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![3 => likely_text(), 1 => proptest::collection::vec(any::<u8>(), 0..300)]
}

/// The text of a response, and its fields that may differ from a correct response.
#[derive(Clone, Debug)]
struct Reply {
    transit: Option<Stage>,
    continued: bool,
    stage: Option<Stage>,
    class: u8,
    stat_sn: Option<u32>,
    data: Vec<u8>,
}

fn reply() -> impl Strategy<Value = Reply> {
    let rarely = |often: u32| prop_oneof![often => Just(false), 1 => Just(true)];
    let stat_sn = prop_oneof![9 => Just(None), 1 => any::<u32>().prop_map(Some)];
    let class = prop_oneof![9 => Just(0), 1 => any::<u8>()];
    let current = (rarely(9), stage()).prop_map(|(differs, stage)| differs.then_some(stage));
    let transit = proptest::option::of(stage());
    (transit, rarely(4), current, class, stat_sn, text()).prop_map(
        |(transit, continued, stage, class, stat_sn, data)| Reply {
            transit,
            continued,
            stage,
            class,
            stat_sn,
            data,
        },
    )
}

impl Reply {
    fn response(&self, rig: &Rig) -> LoginResponse {
        let fitting = rig.response();
        LoginResponse {
            transit: self.transit.is_some(),
            next_stage: self.transit,
            is_continued: self.continued,
            current_stage: self.stage.unwrap_or(fitting.current_stage),
            stat_sn: self.stat_sn.map_or(fitting.stat_sn, StatSn::new),
            status: LoginStatus { class: self.class, detail: 0 },
            tsih: TSIH,
            ..fitting
        }
    }
}

/// Checks the rules for agreed parameters.
fn check_agreement(agreed: &Negotiated) {
    assert!(agreed.first_burst_length <= agreed.max_burst_length);
    assert!((512..=0xff_ffff).contains(&agreed.max_burst_length));
    assert!((512..=0xff_ffff).contains(&agreed.target_max_recv_data_segment_length));
    assert!(agreed.max_outstanding_r2t >= 1 && agreed.max_connections == 1);
    assert_eq!(agreed.error_recovery_level, 0);
}

/// Sends replies until the login ends; the rig checks each request.
fn play(mut rig: Rig, replies: &[Reply]) -> Option<LoggedIn> {
    for reply in replies {
        let response = reply.response(&rig);
        match rig.send(&response, &reply.data) {
            Ok(Progress::Pending) => {}
            Ok(Progress::FullFeature(outcome)) => return Some(*outcome),
            Ok(Progress::Redirected(_)) | Err(_) => return None,
        }
    }
    None
}

proptest! {
    /// TXT-27: no response causes a panic, and all agreed parameters are legal.
    #[test]
    fn txt_27_arbitrary_responses(replies in proptest::collection::vec(reply(), 1..8)) {
        for config in [normal(), discovery()] {
            if let Some(outcome) = play(Rig::new(config), &replies) {
                check_agreement(&outcome.negotiated);
            }
        }
    }

    /// CHP-06, CHP-14: without the secret no target reaches full feature phase.
    #[test]
    fn chp_14_arbitrary_responses_never_authenticate(
        replies in proptest::collection::vec(reply(), 1..8),
        begun in any::<bool>(),
    ) {
        let mut rig = Rig::new(with_mutual_chap(normal()));
        if begun {
            chap::challenge(&mut rig, 5, "1", "0x42");
            prop_assert_eq!(Asked::of(&rig).challenge.len(), 16);
        }
        prop_assert!(play(rig, &replies).is_none());
    }

    /// TXT-08: the result does not depend on where a text is split.
    #[test]
    fn txt_08_cuts_make_no_difference(
        data in likely_text(),
        cuts in proptest::collection::vec(0..400_usize, 0..6),
    ) {
        let whole = outcome_of(&data, &[]);
        prop_assert_eq!(outcome_of(&data, &cuts), whole);
    }
}

/// Returns the result of a login in which the target sends only this text, split into pieces.
fn outcome_of(data: &[u8], cuts: &[usize]) -> Result<Negotiated, LoginError> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (data.len() + 1)).collect();
    cuts.sort_unstable();
    let mut rig = Rig::new(normal());
    let mut from = 0;
    for cut in cuts {
        rig.reply_part(&data[from..cut])?;
        from = cut;
    }
    let response = rig.response();
    match rig.send(&response, &data[from..])? {
        Progress::FullFeature(outcome) => Ok(outcome.negotiated),
        Progress::Pending | Progress::Redirected(_) => panic!("the login goes on"),
    }
}
