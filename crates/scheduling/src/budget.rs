//! PodDisruptionBudgets: how many pods of a kind may be disrupted at once.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::pod::PodInfo;
use crate::selector::LabelSelector;

/// A PodDisruptionBudget, reduced to what preemption looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub namespace: String,
    pub name: String,
    /// None matches nothing, and so does a selector that is empty or cannot be read.
    selector: Option<LabelSelector>,
    /// How many more pods may be disrupted now.
    pub allowed: i64,
    /// Names of pods whose disruption is counted already.
    disrupted: BTreeSet<String>,
}

impl Budget {
    /// Reads a raw PodDisruptionBudget.
    pub fn parse(budget: &Value) -> Result<Self, FieldError> {
        let root = Field::root(budget);
        let (metadata, status) = (root.get("metadata"), root.get("status"));
        let text = |key: &str| metadata.get(key).text().map(Option::unwrap_or_default);
        let selector = LabelSelector::parse(&root.get("spec").get("selector")).unwrap_or_default();
        Ok(Self {
            namespace: text("namespace")?.to_owned(),
            name: text("name")?.to_owned(),
            selector: selector.filter(|selector| !selector.is_empty()),
            allowed: status.get("disruptionsAllowed").integer()?.unwrap_or_default(),
            disrupted: status.get("disruptedPods").keys()?,
        })
    }

    /// Is the disruption of `pod` one that this budget has to allow?
    fn covers(&self, pod: &PodInfo) -> bool {
        *self.namespace == *pod.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.spec.labels))
            && !self.disrupted.contains(&*pod.name)
    }
}

/// The budgets of a cluster, in order of namespace and name.
#[derive(Debug, Clone, Default)]
pub struct Budgets(BTreeMap<(String, String), Budget>);

impl Budgets {
    pub fn set(&mut self, budget: Budget) {
        self.0.insert((budget.namespace.clone(), budget.name.clone()), budget);
    }

    pub fn remove(&mut self, namespace: &str, name: &str) {
        self.0.remove(&(namespace.to_owned(), name.to_owned()));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Budget> {
        self.0.values()
    }

    /// Which of `pods` would break a budget if they were disrupted one after the other.
    ///
    /// A pod uses up each budget that covers it until one does not allow it, in the order of names; upstream takes
    /// them in no particular order.
    pub(crate) fn broken_by(&self, pods: impl Iterator<Item = impl AsRef<PodInfo>>) -> Vec<bool> {
        let mut left: Vec<_> = self.0.values().map(|budget| (budget, budget.allowed)).collect();
        let mut breaks = |pod: &PodInfo| {
            // A selector may match a pod without labels; upstream does not ask it.
            !pod.spec.labels.is_empty()
                && left.iter_mut().filter(|(budget, _)| budget.covers(pod)).any(|(_, allowed)| {
                    *allowed -= 1;
                    *allowed < 0
                })
        };
        pods.map(|pod| breaks(pod.as_ref())).collect()
    }
}
