use super::*;

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);
const UNIT: KnownUnit = KnownUnit { is_removable: false, capacity: 4096 };

fn identity(unit: KnownUnit) -> Identity {
    let mut identity = Identity::new(FIRST);
    identity.on_known(unit);
    identity
}

fn other_unit() -> Verdict {
    Verdict::OtherUnit { expected: "one".to_owned(), found: "two".to_owned() }
}

#[test]
fn a_reason_that_comes_while_the_unit_is_asked_stays() {
    let mut identity = identity(UNIT);
    assert!(!identity.needs_revalidation(FIRST));
    identity.add_reason(FIRST);
    let asked_at = identity.reasons(FIRST);
    identity.add_reason(FIRST);
    identity.on_revalidated(FIRST, asked_at);
    assert!(identity.needs_revalidation(FIRST) && identity.any_needs_revalidation());
    identity.on_revalidated(FIRST, identity.reasons(FIRST));
    assert!(!identity.needs_revalidation(FIRST) && !identity.any_needs_revalidation());
}

#[test]
fn nothing_can_be_asked_of_a_unit_that_is_not_known_yet() {
    let mut identity = Identity::new(FIRST);
    identity.add_reason(FIRST);
    assert!(identity.has_reasons(FIRST) && !identity.needs_revalidation(FIRST));
    let before = identity.revision();
    identity.on_known(UNIT);
    assert!(identity.needs_revalidation(FIRST) && identity.revision() != before);
}

#[test]
fn commands_that_were_given_up_count_as_one_reason_beside_reports() {
    let mut identity = identity(UNIT);
    let before = identity.before(FIRST);
    (0..3).for_each(|_| identity.add_given_up(FIRST));
    assert!(identity.needs_revalidation(FIRST) && !identity.may_be_two_since(FIRST, before));
    identity.on_revalidated(FIRST, identity.reasons(FIRST));
    identity.add_reason(FIRST);
    assert!(identity.may_be_two_since(FIRST, before));
    assert!(!identity.may_be_two_since(FIRST, identity.before(FIRST)));
    identity.add_reason(FIRST);
    assert!(identity.may_be_two_since(FIRST, identity.before(FIRST)));
}

#[test]
fn another_unit_is_a_reason_for_all_paths_and_final_for_one() {
    let mut identity = identity(UNIT);
    identity.join(SECOND, identity.shared_reasons());
    identity.add_reason(SECOND);
    assert!(identity.needs_revalidation(SECOND) && !identity.needs_revalidation(FIRST));
    let asked_at = identity.reasons(SECOND);
    identity.on_another_unit(SECOND, other_unit());
    identity.on_revalidated(SECOND, asked_at);
    assert!(identity.needs_revalidation(SECOND));
    assert_eq!(identity.verdict(SECOND), Err(other_unit()));
    assert!(identity.needs_revalidation(FIRST) && identity.verdict(FIRST).is_ok());
    let third = PathId(2);
    identity.join(third, identity.shared_reasons());
    assert!(!identity.needs_revalidation(third), "it was asked before anything is sent there");
}

#[test]
fn another_unit_that_is_found_after_a_further_path_was_asked_is_a_reason_to_ask_again() {
    let mut identity = identity(UNIT);
    identity.on_another_unit(FIRST, other_unit());
    let asked_at = identity.shared_reasons();
    identity.join(SECOND, asked_at);
    assert!(!identity.needs_revalidation(SECOND));
    identity.on_another_unit(FIRST, other_unit());
    let third = PathId(2);
    identity.join(third, asked_at);
    assert!(identity.needs_revalidation(third));
    identity.on_revalidated(third, identity.reasons(third));
    assert!(!identity.needs_revalidation(third));
}

#[test]
fn another_medium_ends_the_use_of_a_removable_unit_that_was_known() {
    let removable = KnownUnit { is_removable: true, ..UNIT };
    let mut early = Identity::new(FIRST);
    early.on_ready_change();
    early.on_known(removable);
    assert!(early.verdict(FIRST).is_ok() && early.is_ready_change_reported());
    let mut fixed = identity(UNIT);
    fixed.on_ready_change();
    assert!(fixed.verdict(FIRST).is_ok());
    let mut known = identity(removable);
    known.join(SECOND, known.shared_reasons());
    known.on_ready_change();
    for path in [FIRST, SECOND] {
        assert_eq!(known.verdict(path), Err(Verdict::OtherMedium));
        known.on_revalidated(path, known.reasons(path));
        assert!(known.needs_revalidation(path), "no question can settle it");
    }
}

#[test]
fn another_capacity_counts_as_a_report() {
    let mut identity = Identity::new(FIRST);
    let question = identity.ask_size();
    assert_eq!(identity.on_size(question, 512), None, "nothing is known to compare with");
    identity.on_known(UNIT);
    let question = identity.ask_size();
    assert_eq!(identity.on_size(question, 8192), Some(Resized { before: 4096, now: 8192 }));
    assert_eq!((identity.size(), identity.attentions()), (8192, 1));
    assert_eq!(identity.on_size(question, 8192), None);
    assert_eq!(identity.attentions(), 1);
}

#[test]
fn the_revision_changes_with_what_has_to_be_asked() {
    let mut identity = identity(UNIT);
    let mut revision = identity.revision();
    let mut has_changed = |identity: &Identity| {
        let before = std::mem::replace(&mut revision, identity.revision());
        before != identity.revision()
    };
    identity.add_attention();
    assert!(!has_changed(&identity));
    identity.add_reason(FIRST);
    assert!(has_changed(&identity));
    identity.add_given_up(FIRST);
    assert!(has_changed(&identity));
    identity.on_revalidated(FIRST, identity.reasons(FIRST));
    assert!(has_changed(&identity));
    identity.on_another_unit(FIRST, other_unit());
    assert!(has_changed(&identity));
    identity.on_ready_change();
    assert!(has_changed(&identity));
}
