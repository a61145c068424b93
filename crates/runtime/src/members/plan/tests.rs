use super::{FENCE, FORGOTTEN, GONE, Share, Sign, State, View};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// What an API server and watches do among replicas.
struct World {
    now: Instant,
    version: u64,
    leases: BTreeMap<String, Sign>,
    replicas: BTreeMap<String, Replica>,
    keys: Vec<String>,
}

struct Replica {
    state: State,
    share: Share,
    /// The view that its Lease will name.
    obeyed: String,
    alive: bool,
    /// Whether its watch shows anything.
    sees: bool,
    /// Whether its writes arrive.
    writes: bool,
}

impl World {
    fn of(names: &[&str]) -> Self {
        let mut world = Self {
            now: Instant::now(),
            version: 0,
            leases: BTreeMap::new(),
            replicas: BTreeMap::new(),
            keys: keys(),
        };
        for name in names {
            world.join(name);
        }
        world
    }

    fn join(&mut self, name: &str) {
        let replica = Replica {
            state: State::new(name),
            share: Share::default(),
            obeyed: String::new(),
            alive: true,
            sees: true,
            writes: true,
        };
        self.replicas.insert(name.to_owned(), replica);
    }

    fn change(&mut self, name: &str, change: impl Fn(&mut Replica)) {
        change(self.replicas.get_mut(name).unwrap());
    }

    /// All renew, see, obey; one second passes.
    fn step(&mut self) {
        for (name, replica) in self.replicas.iter_mut().filter(|(_, replica)| replica.alive && replica.writes)
        {
            self.version += 1;
            let sign = Sign { member: name.clone(), version: self.version, view: replica.obeyed.clone() };
            self.leases.insert(name.clone(), sign);
            replica.state.renewed(self.now, self.version);
        }
        for replica in self.replicas.values_mut().filter(|replica| replica.alive) {
            if replica.sees {
                replica.state.list(self.leases.values().cloned().collect(), self.now);
            }
            let view = replica.state.view(self.now);
            replica.obeyed = view.name();
            replica.share.obey(view);
        }
        self.check();
        self.now += SECOND;
    }

    fn owners(&self, key: &str) -> Vec<String> {
        // A replica looks at its fence whenever it begins with something.
        let alive = self.replicas.iter().filter(|(_, replica)| {
            replica.alive && replica.state.fence().is_some_and(|fence| self.now < fence)
        });
        alive.filter(|(_, replica)| replica.share.owns(key)).map(|(name, _)| name.clone()).collect()
    }

    #[track_caller]
    fn check(&self) {
        for key in &self.keys {
            let owners = self.owners(key);
            assert!(owners.len() <= 1, "{key} is worked on by {owners:?}");
        }
    }

    /// Steps until every key has an owner; how many it took.
    #[track_caller]
    fn settle(&mut self) -> u32 {
        for steps in 0..100 {
            if self.keys.iter().all(|key| self.owners(key).len() == 1) {
                return steps;
            }
            self.step();
        }
        panic!("some keys stay without an owner")
    }
}

fn keys() -> Vec<String> {
    (0..100).map(|number| format!("node-{number}")).collect()
}

#[test]
fn each_key_has_one_owner_and_none_has_most_of_them() {
    let mut world = World::of(&["a", "b", "c"]);
    assert!(world.settle() <= 4);
    for name in ["a", "b", "c"] {
        let count = keys().iter().filter(|key| world.owners(key) == [name]).count();
        assert!((15..=55).contains(&count), "{name} has {count} of 100");
    }
}

#[test]
fn one_that_comes_takes_its_share_and_nothing_else_moves() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    let before: Vec<_> = keys().iter().map(|key| world.owners(key)).collect();
    world.join("c");
    (0..5).for_each(|_| world.step());
    assert_eq!(world.settle(), 0);
    for (key, before) in keys().iter().zip(before) {
        let now = world.owners(key);
        assert!(now == before || now == ["c"], "{key} went from {before:?} to {now:?}");
    }
    assert!(keys().iter().any(|key| world.owners(key) == ["c"]));
}

#[test]
fn what_a_killed_one_had_moves_within_fifteen_seconds() {
    let mut world = World::of(&["a", "b", "c"]);
    world.settle();
    world.change("b", |replica| replica.alive = false);
    let steps = world.settle();
    assert!(steps <= 15, "it took {steps} s");
}

#[test]
fn one_that_takes_leave_is_replaced_at_once() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    world.change("b", |replica| replica.alive = false);
    world.leases.remove("b");
    assert!(world.settle() <= 3);
}

#[test]
fn one_whose_writes_do_not_arrive_stops_before_others_begin() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    world.change("b", |replica| replica.writes = false);
    let mut stopped = None;
    for step in 0..20 {
        world.step();
        let own = world.replicas["b"].share.clone();
        if stopped.is_none() && keys().iter().all(|key| !own.owns(key)) {
            stopped = Some(step);
        }
    }
    assert!(stopped.unwrap() <= FENCE.as_secs() + 1);
    assert_eq!(world.settle(), 0);
    world.change("b", |replica| replica.writes = true);
    (0..5).for_each(|_| world.step());
    assert_eq!(world.settle(), 0);
    assert!(keys().iter().any(|key| world.owners(key) == ["b"]));
}

#[test]
fn one_that_sees_nothing_takes_over_nothing() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    let before: Vec<_> = keys().iter().map(|key| world.owners(key)).collect();
    world.change("a", |replica| replica.sees = false);
    for _ in 0..60 {
        world.step();
        assert_eq!(keys().iter().map(|key| world.owners(key)).collect::<Vec<_>>(), before);
    }
}

#[test]
fn one_that_was_restarted_under_its_name_has_what_it_had() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    world.join("b");
    assert!(world.settle() <= 4);
}

#[test]
fn a_frozen_one_has_nothing_when_it_wakes_until_it_has_seen_what_happened_meanwhile() {
    let mut world = World::of(&["a", "b"]);
    world.settle();
    world.change("b", |replica| replica.alive = false);
    (0..20).for_each(|_| world.step());
    assert_eq!(world.settle(), 0);
    world.change("b", |replica| (replica.alive, replica.sees) = (true, false));
    (0..5).for_each(|_| world.step());
    assert!(keys().iter().all(|key| world.owners(key) != ["b"]));
    world.change("b", |replica| replica.sees = true);
    (0..5).for_each(|_| world.step());
    assert_eq!(world.settle(), 0);
    assert!(keys().iter().any(|key| world.owners(key) == ["b"]));
}

#[test]
fn never_two_whatever_happens() {
    for seed in 0..60_u64 {
        let mut random = fastrand(seed);
        let mut world = World::of(&["a", "b", "c"]);
        world.keys.truncate(5);
        for _ in 0..100 {
            match random(16) {
                6 | 7 => world.change("a", |replica| replica.alive = !replica.alive),
                0 => world.change("a", |replica| replica.sees = !replica.sees),
                1 => world.change("b", |replica| replica.writes = !replica.writes),
                2 => world.change("c", |replica| replica.alive = false),
                3 => world.join("c"),
                4 => world.join("d"),
                5 => {
                    if let Some(replica) = world.replicas.get_mut("d") {
                        replica.writes = false;
                    }
                }
                _ => {}
            }
            world.step();
        }
    }
}

/// A small generator of numbers below a bound.
fn fastrand(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493);
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

#[test]
fn a_lease_that_was_left_behind_is_forgotten_in_the_end() {
    let start = Instant::now();
    let mut state = State::new("a");
    let sign = |member: &str, version: u64| Sign { member: member.to_owned(), version, view: String::new() };
    state.list(vec![sign("a", 1), sign("old", 2)], start);
    state.renewed(start, 1);
    state.see(sign("a", 3), start + GONE);
    assert_eq!(state.forgotten(), Vec::<String>::new());
    state.renewed(start + GONE, 3);
    assert_eq!(state.view(start + GONE).members, BTreeSet::from(["a".to_owned()]));
    state.see(sign("a", 4), start + FORGOTTEN);
    assert_eq!(state.forgotten(), ["old"]);
}

#[test]
fn nothing_is_owned_before_anybody_agreed() {
    let mut share = Share::default();
    assert!(!share.owns("x"));
    let members = BTreeSet::from(["a".to_owned()]);
    share.obey(View { me: "a".to_owned(), members: members.clone(), open: false });
    assert!(!share.owns("x"));
    share.obey(View { me: "a".to_owned(), members, open: true });
    assert!(share.owns("x"));
    share.obey(View::default());
    assert!(!share.owns("x"));
}
