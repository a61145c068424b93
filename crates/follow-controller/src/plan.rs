//! What is done about one object and its copies.

use runtime::TargetKey;
use serde_json::Value;
use std::time::Duration;

/// For how long a deleted original waits for a silent target in which a copy is known to exist. The copy is
/// collected when the target answers again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The object in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Original {
    /// Nobody has looked yet.
    Unread,
    /// It is not there; `true` when the API server said so just now.
    Absent(bool),
    /// It is there.
    Present(Facts),
}

/// What matters of an original.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// For how long it has been known to be deleted.
    pub(crate) deleting: Option<Duration>,
    /// It carries our finalizer.
    pub(crate) held: bool,
    /// It carries finalizers of older releases.
    pub(crate) legacy: bool,
    /// Why it may not follow.
    pub(crate) forbidden: Option<&'static str>,
    /// The user was told so.
    pub(crate) told: bool,
    /// How its copies look is known.
    pub(crate) content_known: bool,
    /// Beside the finalizer, it is as it is to be while it has copies.
    pub(crate) marked: bool,
    /// Pods use it whose delegates run in the source itself.
    pub(crate) used_here: bool,
    /// Where its copies are reached, if that does not stand on it.
    pub(crate) addresses: Option<Vec<Value>>,
    /// It holds data, and no target has been chosen for that.
    pub(crate) homeless: bool,
}

/// How a copy compares with its original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// How it is to look is not known.
    Unknown,
    /// It is as it is to be.
    Same,
    /// It can be changed into what it is to be.
    Differs,
    /// What it is to be can only be made anew.
    Frozen,
    /// It goes already.
    Terminating,
}

/// What stands in the way of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The target has an object of this name that is not ours.
    Foreign,
    /// The target refuses it.
    Refused,
}

/// The object in one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) target: TargetKey,
    /// What is known of its copies holds.
    pub(crate) in_step: bool,
    /// Pods that run there name the object.
    pub(crate) used: bool,
    /// How much longer a copy that nobody uses stays.
    pub(crate) linger: Duration,
    pub(crate) copy: Option<Likeness>,
    /// What stands in the way, and for how long it is left alone.
    pub(crate) obstacle: Option<(Obstacle, Duration)>,
    /// A live read confirmed that no unknown pod runs there.
    pub(crate) confirmed: bool,
    /// A live read looked for a copy of an older release.
    pub(crate) looked: bool,
    /// The data of the object is elsewhere: a copy would be without.
    pub(crate) astray: bool,
}

/// All that is known about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) original: Original,
    /// All pods have been seen.
    pub(crate) pods_known: bool,
    /// Copies hold what their original does not.
    pub(crate) holds_data: bool,
    /// Targets that may have or get a copy.
    pub(crate) places: Vec<Place>,
}

/// One call. Each may be repeated after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reads the original, to know its content or whether it exists.
    ReadOriginal,
    /// Tells the user why the object does not follow.
    Tell(&'static str),
    /// Adds our finalizer to the original.
    Hold,
    /// Takes our finalizers off the original.
    Release,
    /// Writes where its copies are reached into the status of the original.
    Show(Vec<Value>),
    /// Writes down on the original in which target its data is from now on, and adds our finalizer.
    Settle(TargetKey),
    /// Creates a copy.
    Create(TargetKey),
    /// Looks what the target has under this name.
    LookUp(TargetKey),
    /// Changes a copy.
    Update(TargetKey),
    /// Asks which pods run there.
    Confirm(TargetKey),
    /// Deletes a copy.
    Delete(TargetKey),
}

/// What to do now, all at once, and when to look again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) again: Option<Duration>,
}

impl Plan {
    fn just(action: Action) -> Self {
        Self { actions: vec![action], again: None }
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |set| set.min(after)));
    }
}

/// Decides.
pub(crate) fn plan(seen: &Observed) -> Plan {
    let copied = seen.places.iter().any(|place| place.copy.is_some());
    let used = seen.places.iter().any(|place| place.used);
    match &seen.original {
        Original::Unread if used || copied => Plan::just(Action::ReadOriginal),
        // An orphan goes only when its parent was confirmed gone.
        Original::Absent(_) if seen.holds_data => Plan::default(),
        Original::Absent(false) if seen.places.iter().any(is_deletable) => Plan::just(Action::ReadOriginal),
        Original::Absent(true) => Plan { actions: deletions(seen), again: None },
        Original::Unread | Original::Absent(false) => Plan::default(),
        Original::Present(facts) if facts.deleting.is_some() => end(seen, facts),
        Original::Present(facts) => keep(seen, facts),
    }
}

fn is_deletable(place: &Place) -> bool {
    place.in_step && place.copy.is_some_and(|copy| copy != Likeness::Terminating)
}

fn deletions(seen: &Observed) -> Vec<Action> {
    let doomed = seen.places.iter().filter(|place| is_deletable(place));
    doomed.map(|place| Action::Delete(place.target.clone())).collect()
}

/// Copies of older releases are not among those that are watched.
fn look_ups(seen: &Observed, facts: &Facts) -> Vec<Action> {
    let unknown = seen.places.iter().filter(|place| place.in_step && place.copy.is_none() && !place.looked);
    unknown.filter(|_| facts.legacy).map(|place| Action::LookUp(place.target.clone())).collect()
}

/// The original is deleted: first its copies, then its finalizer.
fn end(seen: &Observed, facts: &Facts) -> Plan {
    let mut plan = Plan { actions: deletions(seen), again: None };
    plan.actions.extend(look_ups(seen, facts));
    if !plan.actions.is_empty() || !(facts.held || facts.legacy) {
        return plan;
    }
    let waited = facts.deleting.unwrap_or_default();
    // Data is not lost sight of as long as its target is one.
    let waits = seen.holds_data || waited < PATIENCE;
    let is_home = |place: &Place| seen.holds_data && !facts.homeless && !place.astray;
    let may_exist = |place: &Place| place.copy.is_some() || is_home(place) && !place.in_step;
    let waits_for = |place: &Place| may_exist(place) && (place.in_step || waits);
    if seen.places.iter().any(waits_for) {
        plan.look_again(PATIENCE.saturating_sub(waited).max(Duration::from_secs(1)));
        return plan;
    }
    Plan::just(Action::Release)
}

/// The original lives.
fn keep(seen: &Observed, facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    let wants = |place: &Place| place.used && !place.astray && facts.forbidden.is_none();
    if facts.homeless && facts.forbidden.is_none() {
        let first = seen.places.iter().find(|place| place.used && place.in_step);
        return first.map_or_else(Plan::default, |place| Plan::just(Action::Settle(place.target.clone())));
    }
    if let Some(why) = facts.forbidden.filter(|_| !facts.told && seen.places.iter().any(|place| place.used)) {
        plan.actions.push(Action::Tell(why));
    }
    let compares = |place: &Place| place.copy.is_some_and(|copy| copy == Likeness::Unknown);
    let wanted = seen.places.iter().filter(|place| wants(place) && place.in_step);
    if !facts.content_known && wanted.into_iter().any(|place| compares(place) || place.copy.is_none()) {
        plan.actions.push(Action::ReadOriginal);
        return plan;
    }
    let is_foreign = |place: &Place| matches!(place.obstacle, Some((Obstacle::Foreign, _)));
    let comes = |place: &Place| wants(place) && place.in_step && !is_foreign(place);
    if seen.holds_data && !facts.held && seen.places.iter().any(comes) {
        // Nobody may delete the original unseen once its data is elsewhere.
        plan.actions.push(Action::Hold);
        return plan;
    }
    plan.actions.extend(look_ups(seen, facts));
    for place in &seen.places {
        if !place.in_step {
            continue;
        }
        if wants(place) {
            follow(&mut plan, place);
        } else if seen.pods_known && !seen.holds_data {
            unfollow(&mut plan, place, facts.forbidden.is_some());
        }
    }
    // A copy without our finalizer on its original is an orphan at worst, and those are collected. So the copy
    // comes first, and no original carries the finalizer without need.
    let has_copies = seen.places.iter().any(|place| place.copy.is_some());
    let is_needed = has_copies || facts.used_here && facts.forbidden.is_none();
    let may_get_copies = |place: &Place| !place.in_step || (wants(place) && !is_foreign(place));
    if is_needed && !(facts.held && facts.marked) {
        plan.actions.push(Action::Hold);
    } else if !plan.actions.is_empty() || !(facts.held || facts.legacy) {
        return plan;
    } else if let Some(addresses) = &facts.addresses {
        plan.actions.push(Action::Show(addresses.clone()));
    } else if is_needed {
        // Ours stays, those of older releases go.
        plan.actions.extend(facts.legacy.then_some(Action::Hold));
    } else if seen.pods_known && !seen.places.iter().any(may_get_copies) {
        plan.actions.push(Action::Release);
    }
    plan
}

/// Pods there need the object.
fn follow(plan: &mut Plan, place: &Place) {
    match (place.copy, place.obstacle) {
        (Some(Likeness::Same | Likeness::Terminating | Likeness::Unknown), _) => {}
        (Some(Likeness::Differs | Likeness::Frozen), Some((Obstacle::Refused, left))) if !left.is_zero() => {
            plan.look_again(left);
        }
        (Some(Likeness::Differs), _) => plan.actions.push(Action::Update(place.target.clone())),
        (Some(Likeness::Frozen), _) => plan.actions.push(Action::Delete(place.target.clone())),
        (None, Some((_, left))) if !left.is_zero() => plan.look_again(left),
        (None, Some((Obstacle::Foreign, _))) => plan.actions.push(Action::LookUp(place.target.clone())),
        (None, None | Some((Obstacle::Refused, _))) => {
            plan.actions.push(Action::Create(place.target.clone()));
        }
    }
}

/// Nobody there needs the object.
fn unfollow(plan: &mut Plan, place: &Place, at_once: bool) {
    if !is_deletable(place) {
        return;
    }
    if at_once || (place.linger.is_zero() && place.confirmed) {
        plan.actions.push(Action::Delete(place.target.clone()));
    } else if place.linger.is_zero() {
        plan.actions.push(Action::Confirm(place.target.clone()));
    } else {
        plan.look_again(place.linger);
    }
}

#[cfg(test)]
mod tests;
