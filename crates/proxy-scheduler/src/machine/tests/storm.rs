//! Whatever order things happen in, whatever is lost on the way, however often the process dies.

use super::desk::id;
use super::world::World;

/// What else happens.
#[derive(Clone, Copy, PartialEq)]
enum Weather {
    /// Calls are lost and the process dies.
    Stormy,
    /// Everything arrives some time, and nobody but the machine clears up.
    Calm,
}

/// Chance plays for so many steps; faults stop, and all must come to rest.
#[track_caller]
fn check(weather: Weather, seed: u64, (targets, room): (usize, usize), pods: usize) {
    let mut world = World::new(seed, targets, room);
    let stormy = weather == Weather::Stormy;
    let (mut made, faults) = (0, if stormy { world.chance.below(30) } else { 0 });
    for _ in 0..1500 {
        match world.chance.below(100) {
            0..8 if made < pods => {
                world.create_pod(&format!("p{made}"));
                made += 1;
            }
            8 => {
                let victim = format!("p{}", world.chance.below(made));
                world.delete_pod(&victim);
            }
            9 if stormy && world.chance.percent(10) => world.restart(),
            10 => {
                let name = id(&format!("t{}", world.chance.below(targets)));
                world.relist(&name);
            }
            11..18 => {
                let millis = [1, 10, 100, 500, 3000][world.chance.below(5)];
                world.pass(millis);
            }
            18..40 => world.answer(),
            _ => {
                world.deliver(faults);
            }
        }
        world.check_always();
    }
    for _ in 0..150 {
        for _ in 0..20 {
            world.answer();
            while world.deliver(0) {}
            world.check_always();
        }
        if stormy {
            world.sweep();
        }
        world.pass(1000);
    }
    world.check_quiet();
}

#[test]
fn in_any_order_one_target_is_allowed_and_every_pod_ends_bound() {
    for seed in 0..60 {
        check(Weather::Stormy, seed, (3, 20), 12);
    }
}

#[test]
fn in_any_order_one_target_alone_takes_every_pod() {
    for seed in 100..120 {
        check(Weather::Stormy, seed, (1, 20), 8);
    }
}

#[test]
fn in_any_order_a_target_is_filled_and_never_more() {
    for seed in 200..240 {
        check(Weather::Stormy, seed, (2, 3), 10);
    }
}

#[test]
fn case_014_without_faults_nothing_is_left_over_by_the_machine_itself() {
    for seed in 300..340 {
        check(Weather::Calm, seed, (3, 20), 12);
    }
}
