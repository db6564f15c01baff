use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Returns limits without random pauses.
fn limits() -> ReconnectLimits {
    ReconnectLimits {
        first_pause: SECOND,
        max_pause: 5 * SECOND,
        jitter: 0,
        retry_timeout: 30 * SECOND,
        after_quick_ends: BackOff::new(SECOND / 100, SECOND),
    }
}

#[expect(clippy::disallowed_methods, reason = "some time to count from")]
fn lost(time2wait: Duration) -> LostSession {
    let at = Instant::now();
    LostSession { portal: PortalId(1), at, time2wait, lifetime: Lifetime::begin(at - 60 * SECOND) }
}

fn reconnect(lost: &LostSession, limits: ReconnectLimits) -> Reconnect<impl Entropy + use<>> {
    Reconnect::new(lost, limits, |bytes: &mut [u8]| bytes.fill(0), lost.at)
}

/// Returns the seconds from the loss to each try and to the end, and whether the end is final. Each try fails
/// at all portals with `outlook`.
fn tries(lost: &LostSession, limits: ReconnectLimits, outlook: Outlook) -> (Vec<u64>, u64, bool) {
    let mut reconnect = reconnect(lost, limits);
    let seconds = |at: Instant| at.duration_since(lost.at).as_secs();
    let mut tries = Vec::new();
    loop {
        match reconnect.step() {
            Step::Try(at) => {
                tries.push(seconds(at));
                for portal in reconnect.begin_try(2, at) {
                    if !reconnect.failed_at(portal, outlook, at) {
                        break;
                    }
                }
                reconnect.end_try(at);
            }
            Step::GiveUp { at, is_final } => return (tries, seconds(at), is_final),
        }
    }
}

/// ERR-11: each test case has the circumstances of a lost session, and the expected tries.
#[test]
fn err_11_tries_follow_time2wait_and_the_limits() {
    let none: &[u64] = &[];
    let all: &[u64] = &[0, 1, 3, 7, 12, 17, 22, 27];
    for (case, time2wait, limits, outlook, expected) in [
        ("it may pass", 0, limits(), Outlook::MayPass, (all, 27, false)),
        ("Time2Wait first", 9, limits(), Outlook::MayPass, (&[9, 10, 12, 16, 21, 26], 26, false)),
        ("Time2Wait is too long", 31, limits(), Outlook::MayPass, (none, 30, false)),
        ("another unit everywhere", 0, limits(), Outlook::OtherPortal, (&[0], 0, true)),
        ("another size", 0, limits(), Outlook::Never, (&[0], 0, true)),
    ] {
        let (tries, end, is_final) = tries(&lost(time2wait * SECOND), limits, outlook);
        assert_eq!((&tries[..], end, is_final), expected, "{case}");
    }
    let long = ReconnectLimits { retry_timeout: 64 * SECOND, ..limits() };
    let (refused, _, is_final) = tries(&lost(Duration::ZERO), long, Outlook::Credentials);
    assert_eq!(
        (refused.len(), is_final),
        (7, true),
        "an account is not locked by tries: {refused:?}"
    );
}

/// LOG-18: the last try is at the end of the time limit, however long the pause after a refusal: a target
/// that was away for long may have read its accounts only then.
#[test]
fn log_18_credentials_are_tried_at_the_end_of_the_time_limit() {
    let lost = lost(Duration::ZERO);
    let limits = ReconnectLimits { retry_timeout: 64 * SECOND, ..limits() };
    let mut reconnect = reconnect(&lost, limits);
    let mut refused = Vec::new();
    let end = loop {
        let at = match reconnect.step() {
            Step::Try(at) => at,
            Step::GiveUp { at, .. } => break at,
        };
        for portal in reconnect.begin_try(1, at) {
            let is_dark = at < lost.at + 40 * SECOND;
            if !is_dark {
                refused.push(at.duration_since(lost.at).as_secs());
            }
            let outlook = if is_dark { Outlook::MayPass } else { Outlook::Credentials };
            reconnect.failed_at(portal, outlook, at);
        }
        reconnect.end_try(at);
    };
    assert_eq!(refused, [42, 47, 52, 57, 64]);
    assert_eq!(end, lost.at + 64 * SECOND);
}

#[test]
fn time2wait_counts_from_the_loss() {
    let lost = lost(3 * SECOND);
    let entropy = |bytes: &mut [u8]| bytes.fill(0);
    let later = Reconnect::new(&lost, limits(), entropy, lost.at + 2 * SECOND);
    assert_eq!(later.step(), Step::Try(lost.at + 3 * SECOND));
}

#[test]
fn a_portal_that_the_target_names_meanwhile_is_tried_next() {
    let lost = lost(Duration::ZERO);
    let mut reconnect = reconnect(&lost, limits());
    let first = reconnect.begin_try(2, lost.at);
    assert_eq!(first, [1, 0].map(PortalId));
    reconnect.end_try(lost.at);
    let Step::Try(at) = reconnect.step() else { panic!("a second try") };
    assert_eq!(reconnect.begin_try(3, at), [1, 0, 2].map(PortalId));
}

#[test]
fn a_session_that_ends_soon_is_opened_later_each_time() {
    let mut lost = lost(Duration::ZERO);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        let reconnect = reconnect(&lost, limits());
        let Step::Try(at) = reconnect.step() else { panic!("a try") };
        pauses.push(at.duration_since(lost.at).as_millis());
        lost.lifetime = reconnect.lifetime(at);
        lost.at = at + SECOND;
    }
    assert_eq!(pauses, [0, 10, 20]);
}
