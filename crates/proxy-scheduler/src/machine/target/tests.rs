//! What is remembered of one target, and how long.

use super::{Barrier, RETRY_LAST, Target};
use crate::machine::{Id, TargetSeen};
use std::time::Duration;

fn target() -> Target {
    let (id, uid) = (Id::from("c1"), Id::from("cluster-c1"));
    let (namespace, width, unusable) = (String::new(), None, None);
    Target::new(TargetSeen {
        name: Id::clone(&id),
        id,
        namespace,
        is_self: false,
        cluster_uid: uid,
        width,
        order: 0,
        weight: None,
        start_deadline: None,
        unusable,
    })
}

#[test]
fn a_failure_that_nobody_tries_again_is_forgotten_with_the_next() {
    let mut target = target();
    let until = target.fail(Barrier::Class(Id::from("old")), "no".to_owned(), Duration::ZERO);
    target.fail(
        Barrier::Class(Id::from("new")),
        "no".to_owned(),
        until + RETRY_LAST - Duration::from_secs(1),
    );
    assert_eq!(target.troubles.len(), 2);
    target.fail(Barrier::Class(Id::from("newest")), "no".to_owned(), until + RETRY_LAST);
    assert!(!target.troubles.contains_key(&Barrier::Class(Id::from("old"))));
}
