//! Which plugin decided what, in the answers of upstream: a comparison proves nothing about a plugin that never spoke.

use std::collections::BTreeMap;
use std::fmt;

use crate::answer::{Answer, Verdict};

/// What a plugin can do to a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// It refused the pod, or a node for it.
    Refused,
    /// It had an opinion, and a node passed.
    Passed,
    /// Its scores told nodes apart.
    Decided,
}

use Deed::{Decided, Passed, Refused};

/// What every plugin must have done in a comparison that is worth the name.
const EXPECTED: &[(&str, &[Deed])] = &[
    ("SchedulingGates", &[Refused, Passed]),
    ("NodeName", &[Refused, Passed]),
    ("NodeUnschedulable", &[Refused, Passed]),
    ("TaintToleration", &[Refused, Passed, Decided]),
    ("NodeAffinity", &[Refused, Passed, Decided]),
    ("NodePorts", &[Refused, Passed]),
    ("NodeResourcesFit", &[Refused, Passed, Decided]),
    ("VolumeRestrictions", &[Refused, Passed]),
    ("NodeVolumeLimits", &[Refused, Passed]),
    ("VolumeBinding", &[Refused, Passed, Decided]),
    ("VolumeZone", &[Refused, Passed]),
    ("PodTopologySpread", &[Refused, Passed, Decided]),
    ("InterPodAffinity", &[Refused, Passed, Decided]),
    ("DynamicResources", &[Refused, Passed, Decided]),
    ("NodeDeclaredFeatures", &[Refused, Passed]),
    ("DefaultPreemption", &[Refused, Passed]),
    ("NodeResourcesBalancedAllocation", &[Decided]),
    ("ImageLocality", &[Decided]),
    (PRE_BIND, &[Refused, Passed]),
];

/// What came of claims after they were written.
const PRE_BIND: &str = "VolumeBinding, PreBind";

/// How often each plugin did what.
#[derive(Debug, Clone, Default)]
pub struct Table {
    counts: BTreeMap<(String, Deed), usize>,
}

impl Table {
    pub fn count(&mut self, answer: &Answer) {
        if let Some(gate) = &answer.gate {
            self.add(&gate.plugin, Refused);
            return;
        }
        self.add("SchedulingGates", Passed);
        if let Some(refusal) = &answer.pre_filter {
            self.add(&refusal.plugin, Refused);
        }
        for plugin in &answer.restricting {
            self.add(plugin, Refused);
        }
        for group in &answer.refused {
            self.add(&group.refusal.plugin, Refused);
        }
        if answer.verdict == Verdict::Schedulable {
            for (plugin, deeds) in EXPECTED {
                let asked = !matches!(*plugin, "SchedulingGates" | "DefaultPreemption" | PRE_BIND);
                if asked && deeds.contains(&Passed) && !answer.skipped.iter().any(|skipped| skipped == plugin)
                {
                    self.add(plugin, Passed);
                }
            }
        }
        if let Some(made) = &answer.preemption {
            self.add("DefaultPreemption", if made.nominated.is_empty() { Refused } else { Passed });
        }
        match answer.binding.as_str() {
            "" | "waiting" => {}
            "bound" => self.add(PRE_BIND, Passed),
            _ => self.add(PRE_BIND, Refused),
        }
        for plugin in &answer.decisive {
            self.add(plugin, Decided);
        }
    }

    fn add(&mut self, plugin: &str, deed: Deed) {
        *self.counts.entry((plugin.to_owned(), deed)).or_default() += 1;
    }

    /// Adds the counts of another table.
    pub fn merge(&mut self, other: Self) {
        for (key, count) in other.counts {
            *self.counts.entry(key).or_default() += count;
        }
    }

    fn get(&self, plugin: &str, deed: Deed) -> usize {
        self.counts.get(&(plugin.to_owned(), deed)).copied().unwrap_or_default()
    }

    /// Cells that must not be zero and are.
    #[must_use]
    pub fn zeros(&self) -> Vec<String> {
        let cells =
            EXPECTED.iter().flat_map(|(plugin, deeds)| deeds.iter().map(move |deed| (*plugin, *deed)));
        cells
            .filter(|(plugin, deed)| self.get(plugin, *deed) == 0)
            .map(|(plugin, deed)| format!("{plugin} never {}", format!("{deed:?}").to_lowercase()))
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{:<33}{:>10}{:>10}{:>10}", "plugin (pods)", "refused", "passed", "decided")?;
        for (plugin, deeds) in EXPECTED {
            let cell = |deed| match deeds.contains(&deed) {
                true => self.get(plugin, deed).to_string(),
                false => "-".to_owned(),
            };
            writeln!(out, "{plugin:<33}{:>10}{:>10}{:>10}", cell(Refused), cell(Passed), cell(Decided))?;
        }
        Ok(())
    }
}
