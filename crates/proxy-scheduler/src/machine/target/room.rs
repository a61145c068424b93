//! How much of a target we have asked for, and what is left.

use super::super::model::Id;
use super::{Load, Target};
use scheduling::resources::{add_list, sub_list};
use scheduling::{Quantity, ResourceList};
use std::sync::Arc;
use std::time::Duration;

/// A reservation answered so long before a summary is taken to be part of it.
const SUMMARY_LAG: Duration = Duration::from_millis(500);
/// A reservation is in every summary after so long, also if none came since.
const SUMMARY_AGE: Duration = Duration::from_secs(10);
/// A target that does not say what it has comes last, but before those that say they are full.
const UNKNOWN_ROOM: i64 = -1_000_000;

impl Target {
    /// We ask for this much there.
    pub(crate) fn load(&mut self, pod: &Id, request: &ResourceList) {
        if self.loads.contains_key(pod) {
            return;
        }
        add_list(&mut self.used, request);
        self.loads.insert(Arc::clone(pod), Load { request: request.clone() });
    }

    /// The ask came to nothing.
    pub(crate) fn unload(&mut self, pod: &Id) {
        if let Some(load) = self.loads.remove(pod) {
            sub_list(&mut self.used, &load.request);
        }
    }

    /// The target has reserved what we asked for; its summaries will show it.
    pub(crate) fn answered(&mut self, pod: &Id, now: Duration) {
        if self.loads.contains_key(pod) {
            self.answered.push_back((now, Arc::clone(pod)));
        }
    }

    /// Forgets asks that summaries show by now. `fresh`: one has just come.
    pub(crate) fn age(&mut self, now: Duration, fresh: bool) {
        let limit = if fresh { SUMMARY_LAG } else { SUMMARY_AGE };
        while let Some((_, pod)) = self.answered.pop_front_if(|(at, _)| *at + limit <= now) {
            self.unload(&pod);
        }
    }

    /// Whether so many equal requests fit into what is shown to be free.
    pub(crate) fn has_room_for(&self, request: &ResourceList, count: usize) -> bool {
        let mut all = ResourceList::new();
        (0..count).for_each(|_| add_list(&mut all, request));
        self.room(&all).0
    }

    /// Whether a request fits into what is shown to be free, and how much would stay free, in millionths of
    /// what there is.
    pub(crate) fn room(&self, request: &ResourceList) -> (bool, i64) {
        let Some(summary) = &self.summary else { return (true, UNKNOWN_ROOM) };
        let free = if summary.free.is_empty() { &summary.allocatable } else { &summary.free };
        let amount = |list: &ResourceList, name: &str| list.get(name).copied().unwrap_or_else(Quantity::zero);
        let fits = request.iter().all(|(name, wanted)| {
            let mut rest = amount(free, name);
            rest -= &amount(&self.used, name);
            wanted.is_zero() || rest >= *wanted
        });
        let mine = i128::try_from(self.loads.len()).unwrap_or(i128::MAX);
        let pods_left = free.get("pods").map(|pods| i128::from(pods.value()) - mine);
        let mut shares = Vec::with_capacity(3);
        for name in ["cpu", "memory"] {
            let all = i128::from(amount(&summary.allocatable, name).milli());
            let mut rest = amount(free, name);
            rest -= &amount(&self.used, name);
            rest -= &amount(request, name);
            shares.push(share(i128::from(rest.milli()), all));
        }
        if let Some(left) = pods_left {
            shares.push(share(left - 1, i128::from(amount(&summary.allocatable, "pods").value())));
        }
        let mean = shares.iter().sum::<i64>() / i64::try_from(shares.len().max(1)).unwrap_or(1);
        (fits && pods_left.is_none_or(|left| left > 0), mean)
    }
}

/// Millionths; of nothing, nothing.
fn share(part: i128, whole: i128) -> i64 {
    if whole <= 0 {
        return 0;
    }
    i64::try_from(part * 1_000_000 / whole).unwrap_or_default()
}
