use super::{Action, Facts, Likeness, Observed, Obstacle, Original, PATIENCE, Place, Plan, plan};
use runtime::TargetKey;
use std::time::Duration;

fn key(name: &str) -> TargetKey {
    TargetKey { namespace: String::new(), name: name.to_owned() }
}

/// A target in step where nobody uses the object.
fn place(name: &str) -> Place {
    Place {
        target: key(name),
        in_step: true,
        used: false,
        linger: Duration::from_secs(10),
        copy: None,
        obstacle: None,
        confirmed: false,
        looked: false,
        astray: false,
    }
}

fn used(name: &str) -> Place {
    Place { used: true, ..place(name) }
}

fn copied(name: &str, copy: Likeness) -> Place {
    Place { copy: Some(copy), ..used(name) }
}

fn facts() -> Facts {
    Facts { content_known: true, marked: true, ..Facts::default() }
}

fn seen(facts: Facts, places: Vec<Place>) -> Observed {
    Observed { original: Original::Present(facts), pods_known: true, holds_data: false, places }
}

/// The same of a claim.
fn claim(facts: Facts, places: Vec<Place>) -> Observed {
    Observed { holds_data: true, ..seen(facts, places) }
}

#[track_caller]
fn check(seen: &Observed, want: &[Action]) -> Plan {
    let plan = plan(seen);
    assert_eq!(plan.actions, want, "{seen:?}");
    plan
}

#[test]
fn w35_w36_a_copy_is_made_only_where_pods_run() {
    check(&seen(facts(), vec![used("a"), place("b")]), &[Action::Create(key("a"))]);
    check(&seen(facts(), vec![used("a"), used("b")]), &[Action::Create(key("a")), Action::Create(key("b"))]);
}

#[test]
fn case_005_what_nobody_uses_is_not_touched() {
    check(&seen(facts(), vec![place("a"), place("b")]), &[]);
    let unread = Observed { original: Original::Unread, ..seen(facts(), vec![place("a")]) };
    check(&unread, &[]);
}

#[test]
fn case_005_an_original_gets_one_patch_once_a_copy_exists() {
    check(&seen(facts(), vec![copied("a", Likeness::Same), place("b")]), &[Action::Hold]);
    let held = Facts { held: true, ..facts() };
    check(&seen(held.clone(), vec![copied("a", Likeness::Same), place("b")]), &[]);
    check(&seen(held, vec![copied("a", Likeness::Same), used("b")]), &[Action::Create(key("b"))]);
}

#[test]
fn w40_a_settled_world_is_left_alone() {
    let held = Facts { held: true, ..facts() };
    let settled = seen(held, vec![copied("a", Likeness::Same), copied("b", Likeness::Same)]);
    assert_eq!(plan(&settled), Plan::default());
}

#[test]
fn a_silent_target_delays_nobody_else() {
    let silent = Place { in_step: false, ..used("b") };
    check(&seen(facts(), vec![used("a"), silent]), &[Action::Create(key("a"))]);
}

#[test]
fn case_074_what_is_created_late_follows() {
    let absent = |read| Observed { original: Original::Absent(read), ..seen(facts(), vec![used("a")]) };
    check(&absent(false), &[]);
    check(&absent(true), &[]);
    let unread = Observed { original: Original::Unread, ..absent(false) };
    check(&unread, &[Action::ReadOriginal]);
    let created = Facts { content_known: false, ..facts() };
    check(&seen(created, vec![used("a")]), &[Action::ReadOriginal]);
}

#[test]
fn w35_changes_follow() {
    let held = Facts { held: true, ..facts() };
    let stale = Facts { content_known: false, ..held.clone() };
    check(&seen(stale, vec![copied("a", Likeness::Unknown)]), &[Action::ReadOriginal]);
    check(&seen(held, vec![copied("a", Likeness::Differs)]), &[Action::Update(key("a"))]);
}

#[test]
fn case_073_what_cannot_be_changed_is_made_anew() {
    let held = Facts { held: true, ..facts() };
    check(&seen(held.clone(), vec![copied("a", Likeness::Frozen)]), &[Action::Delete(key("a"))]);
    check(&seen(held.clone(), vec![copied("a", Likeness::Terminating)]), &[]);
    check(&seen(held, vec![used("a")]), &[Action::Create(key("a"))]);
}

#[test]
fn case_049_what_nobody_uses_any_more_goes_after_a_while() {
    let held = Facts { held: true, ..facts() };
    let idle = |linger| Place { used: false, linger, ..copied("a", Likeness::Same) };
    let early = check(&seen(held.clone(), vec![idle(Duration::from_secs(4))]), &[]);
    assert_eq!(early.again, Some(Duration::from_secs(4)));
    check(&seen(held.clone(), vec![idle(Duration::ZERO)]), &[Action::Confirm(key("a"))]);
    let confirmed = Place { confirmed: true, ..idle(Duration::ZERO) };
    check(&seen(held.clone(), vec![confirmed]), &[Action::Delete(key("a"))]);
    check(&seen(held, vec![place("a")]), &[Action::Release]);
}

#[test]
fn case_036_nothing_goes_before_all_pods_have_been_seen() {
    let held = Facts { held: true, ..facts() };
    let idle = Place { used: false, linger: Duration::ZERO, confirmed: true, ..copied("a", Likeness::Same) };
    let blind = Observed { pods_known: false, ..seen(held.clone(), vec![idle]) };
    check(&blind, &[]);
    let bare = Observed { pods_known: false, ..seen(held, vec![place("a")]) };
    check(&bare, &[]);
}

#[test]
fn case_036_an_orphan_goes_only_after_a_live_read() {
    let idle = Place { used: false, ..copied("a", Likeness::Unknown) };
    let absent = |read| Observed { original: Original::Absent(read), ..seen(facts(), vec![idle.clone()]) };
    check(&absent(false), &[Action::ReadOriginal]);
    check(&absent(true), &[Action::Delete(key("a"))]);
}

#[test]
fn a_deleted_original_waits_for_its_copies() {
    let deleted = |since| Facts { held: true, deleting: Some(since), ..facts() };
    let now = Duration::ZERO;
    check(&seen(deleted(now), vec![copied("a", Likeness::Same), place("b")]), &[Action::Delete(key("a"))]);
    check(&seen(deleted(now), vec![copied("a", Likeness::Terminating)]), &[]);
    check(&seen(deleted(now), vec![used("a"), place("b")]), &[Action::Release]);
}

#[test]
fn w08_case_044_a_silent_target_does_not_hold_a_deletion_for_long() {
    let deleted = |since| Facts { held: true, deleting: Some(since), ..facts() };
    let silent = Place { in_step: false, ..place("dead") };
    check(&seen(deleted(Duration::ZERO), vec![silent.clone()]), &[Action::Release]);
    let known = Place { copy: Some(Likeness::Same), ..silent };
    let early = check(&seen(deleted(Duration::ZERO), vec![known.clone()]), &[]);
    assert_eq!(early.again, Some(PATIENCE));
    check(&seen(deleted(PATIENCE), vec![known]), &[Action::Release]);
}

#[test]
fn a_live_original_keeps_its_finalizer_while_a_target_is_silent() {
    let held = Facts { held: true, ..facts() };
    let silent = Place { in_step: false, ..place("a") };
    check(&seen(held, vec![silent]), &[]);
}

#[test]
fn w07_what_is_not_ours_is_left_alone_and_looked_at_again() {
    let foreign = |left| Place { obstacle: Some((Obstacle::Foreign, left)), ..used("a") };
    let left = check(&seen(facts(), vec![foreign(Duration::from_secs(60))]), &[]);
    assert_eq!(left.again, Some(Duration::from_secs(60)));
    check(&seen(facts(), vec![foreign(Duration::ZERO)]), &[Action::LookUp(key("a"))]);
    let held = Facts { held: true, ..facts() };
    check(&seen(held, vec![foreign(Duration::from_secs(60))]), &[Action::Release]);
}

#[test]
fn what_a_target_refuses_is_tried_again_later() {
    let refused = |left| Place { obstacle: Some((Obstacle::Refused, left)), ..used("a") };
    check(&seen(facts(), vec![refused(Duration::from_secs(15)), used("b")]), &[Action::Create(key("b"))]);
    check(&seen(facts(), vec![refused(Duration::ZERO)]), &[Action::Create(key("a"))]);
}

#[test]
fn what_may_not_follow_is_told_once_and_copies_of_it_go() {
    let never = Facts { forbidden: Some("its annotation says never"), ..facts() };
    check(&seen(never.clone(), vec![used("a")]), &[Action::Tell("its annotation says never")]);
    let told = Facts { told: true, ..never };
    check(&seen(told.clone(), vec![used("a")]), &[]);
    let held = Facts { held: true, ..told };
    check(&seen(held, vec![copied("a", Likeness::Same)]), &[Action::Delete(key("a"))]);
}

#[test]
fn case_041_finalizers_of_older_releases_go_after_a_look_for_their_copies() {
    let legacy = Facts { legacy: true, ..facts() };
    check(&seen(legacy.clone(), vec![place("a")]), &[Action::LookUp(key("a"))]);
    let looked = Place { looked: true, ..place("a") };
    check(&seen(legacy.clone(), vec![looked]), &[Action::Release]);
    let adopted = Facts { held: true, ..legacy };
    check(&seen(adopted, vec![copied("a", Likeness::Same)]), &[Action::Hold]);
}

#[test]
fn case_079_an_original_that_was_written_over_is_marked_again() {
    let held = Facts { held: true, ..facts() };
    let over = Facts { marked: false, ..held.clone() };
    check(&seen(over, vec![copied("a", Likeness::Same)]), &[Action::Hold]);
    check(&seen(held, vec![copied("a", Likeness::Same)]), &[]);
}

#[test]
fn w36_a_service_of_pods_that_run_in_the_source_itself_is_marked_without_copies() {
    let here = Facts { used_here: true, ..facts() };
    check(&seen(here.clone(), vec![place("a")]), &[Action::Hold]);
    let held = Facts { held: true, ..here };
    check(&seen(held.clone(), vec![place("a")]), &[]);
    check(&seen(Facts { used_here: false, ..held }, vec![place("a")]), &[Action::Release]);
}

/// Every round of work makes the world a little more what it is to be; here the API servers do what they are
/// asked.
#[test]
fn every_world_settles_within_a_few_rounds() {
    let likenesses = [
        None,
        Some(Likeness::Same),
        Some(Likeness::Differs),
        Some(Likeness::Frozen),
        Some(Likeness::Unknown),
    ];
    for copy in likenesses {
        for bits in 0..32u8 {
            let bit = |at: u8| bits & (1 << at) != 0;
            let facts = Facts {
                held: bit(0),
                legacy: bit(1),
                deleting: bit(2).then_some(Duration::ZERO),
                content_known: bit(3) && copy != Some(Likeness::Unknown),
                marked: bit(0),
                ..Facts::default()
            };
            let mut world =
                seen(facts, vec![Place { copy, used: bit(4), linger: Duration::ZERO, ..place("a") }]);
            let mut rounds = 0;
            loop {
                let plan = plan(&world);
                if plan.actions.is_empty() {
                    break;
                }
                rounds += 1;
                assert!(rounds <= 8, "{world:?} does not settle: {plan:?}");
                for action in &plan.actions {
                    obey(&mut world, action);
                }
            }
            let Original::Present(facts) = &world.original else { panic!("the original is there") };
            let copy = world.places[0].copy;
            let wants = world.places[0].used && facts.deleting.is_none();
            assert_eq!((copy, facts.held), (wants.then_some(Likeness::Same), wants), "{world:?}");
        }
    }
}

fn obey(world: &mut Observed, action: &Action) {
    let Original::Present(facts) = &mut world.original else { return };
    let place = &mut world.places[0];
    match action {
        Action::ReadOriginal => {
            facts.content_known = true;
            place.copy =
                place.copy.map(|copy| if copy == Likeness::Unknown { Likeness::Differs } else { copy });
        }
        Action::Tell(_) => facts.told = true,
        Action::Hold => (facts.held, facts.legacy, facts.marked) = (true, false, true),
        Action::Release => (facts.held, facts.legacy) = (false, false),
        Action::Create(_) | Action::Update(_) => place.copy = Some(Likeness::Same),
        Action::LookUp(_) => place.looked = true,
        Action::Confirm(_) => place.confirmed = true,
        Action::Delete(_) => place.copy = None,
        Action::Settle(_) | Action::Show(_) => {}
    }
}

#[test]
fn w30_a_claim_gets_a_home_before_it_gets_a_copy() {
    let homeless = Facts { homeless: true, ..facts() };
    check(&claim(homeless.clone(), vec![used("a"), used("b")]), &[Action::Settle(key("a"))]);
    let silent = Place { in_step: false, ..used("a") };
    check(&claim(homeless, vec![silent]), &[]);
    let elsewhere = Place { astray: true, ..used("b") };
    check(&claim(facts(), vec![used("a"), elsewhere.clone()]), &[Action::Hold]);
    let held = Facts { held: true, ..facts() };
    check(&claim(held, vec![used("a"), elsewhere]), &[Action::Create(key("a"))]);
}

#[test]
fn w30_a_claim_stays_when_nobody_uses_it() {
    let held = Facts { held: true, ..facts() };
    let idle = Place { used: false, linger: Duration::ZERO, confirmed: true, ..copied("a", Likeness::Same) };
    assert_eq!(plan(&claim(held.clone(), vec![idle.clone()])), Plan::default());
    let never = Facts { forbidden: Some("targets have claims of their own"), told: true, ..held };
    assert_eq!(plan(&claim(never, vec![idle])), Plan::default());
}

#[test]
fn w30_data_is_never_swept_as_an_orphan() {
    for read in [false, true] {
        let gone = Observed {
            original: Original::Absent(read),
            ..claim(facts(), vec![Place { used: false, ..copied("a", Likeness::Unknown) }])
        };
        assert_eq!(plan(&gone), Plan::default());
    }
}

#[test]
fn a_deleted_claim_waits_for_its_home_however_long_that_is_silent() {
    let deleted = Facts { held: true, deleting: Some(PATIENCE * 60), ..facts() };
    check(&claim(deleted.clone(), vec![copied("a", Likeness::Same)]), &[Action::Delete(key("a"))]);
    let silent = Place { in_step: false, ..place("a") };
    let elsewhere = Place { astray: true, ..place("b") };
    check(&claim(deleted.clone(), vec![silent, elsewhere.clone()]), &[]);
    check(&claim(deleted.clone(), vec![place("a"), elsewhere.clone()]), &[Action::Release]);
    // Its home is no target any more.
    check(&claim(deleted, vec![Place { in_step: false, ..elsewhere }]), &[Action::Release]);
}

#[test]
fn a_claim_of_somebody_else_is_in_the_way_and_left_alone() {
    let foreign = |left| Place { obstacle: Some((Obstacle::Foreign, left)), ..used("a") };
    check(&claim(facts(), vec![foreign(Duration::from_secs(9))]), &[]);
    check(&claim(facts(), vec![foreign(Duration::ZERO)]), &[Action::LookUp(key("a"))]);
}

#[test]
fn addresses_of_copies_are_shown_once_and_taken_back_before_the_original_is_let_go() {
    let at = vec![serde_json::json!({"ip": "10.0.0.1"})];
    let held = Facts { held: true, addresses: Some(at.clone()), ..facts() };
    check(&seen(held.clone(), vec![copied("a", Likeness::Same)]), &[Action::Show(at)]);
    let none = Facts { addresses: Some(vec![]), ..held };
    check(&seen(none, vec![place("a")]), &[Action::Show(vec![])]);
}
