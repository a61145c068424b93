//! Errors of one line, each of which the comparison must notice.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// A change of one line in crate `scheduling`.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// What is wrong then.
    pub name: &'static str,
    /// Below the crate's `src`.
    pub file: &'static str,
    /// Occurs exactly once in the file.
    pub right: &'static str,
    pub wrong: &'static str,
}

const fn mutant(name: &'static str, file: &'static str, right: &'static str, wrong: &'static str) -> Mutant {
    Mutant { name, file, right, wrong }
}

/// Every plugin has at least one.
pub const MUTANTS: &[Mutant] = &[
    mutant("gates are listed with commas", "plugins/gates.rs", "gates.join(\" \")", "gates.join(\", \")"),
    mutant(
        "a cordon is tolerated as NoExecute",
        "plugins/names.rs",
        "\"\", \"NoSchedule\")",
        "\"\", \"NoExecute\")",
    ),
    mutant(
        "another node than the requested one passes",
        "plugins/names.rs",
        "PreFilter::Only(BTreeSet::from([wanted.to_string()]), Box::new(filter))",
        "PreFilter::Filter(Box::new(filter))",
    ),
    mutant("NoExecute does not forbid", "node.rs", "\"NoSchedule\" | \"NoExecute\")", "\"NoSchedule\")"),
    mutant(
        "tolerated taints count",
        "plugins/taints.rs",
        "== \"PreferNoSchedule\" && !tolerated",
        "== \"PreferNoSchedule\" && tolerated",
    ),
    mutant(
        "a toleration of every effect is no preference",
        "plugins/taints.rs",
        "toleration.effect.is_empty() || toleration.effect ==",
        "toleration.effect ==",
    ),
    mutant(
        "selector or affinity is enough",
        "plugins/affinity.rs",
        "    selected && affine",
        "    selected || affine",
    ),
    mutant(
        "only the heaviest preference counts",
        "plugins/affinity.rs",
        "matching.map(|preferred| preferred.weight).sum()",
        "matching.map(|preferred| preferred.weight).max().unwrap_or_default()",
    ),
    mutant(
        "NotIn needs the label",
        "selector.rs",
        "value.is_none_or(|value| !has",
        "value.is_some_and(|value| !has",
    ),
    mutant(
        "ports of other protocols conflict",
        "pod/spec.rs",
        "self.protocol == other.protocol && same_address",
        "same_address",
    ),
    mutant(
        "a request of the whole node is hopeless",
        "plugins/resources.rs",
        "request > node.info.room.of(kind) {",
        "request >= node.info.room.of(kind) {",
    ),
    mutant(
        "a node takes one pod too many",
        "plugins/resources.rs",
        "node.pod_count() + 1 > node.info.max_pods",
        "node.pod_count() > node.info.max_pods",
    ),
    mutant("sidecars do not run beside init steps", "pod/requests.rs", "add_list(&mut step, &sidecars);", ""),
    mutant(
        "resources of score 0 count in ratios",
        "plugins/resources.rs",
        "if score > 0 || !by_ratio {",
        "if score >= 0 || !by_ratio {",
    ),
    mutant(
        "balance is not compared with before",
        "plugins/resources.rs",
        "(MAX_SCORE / 2 + with - without) / 2",
        "(MAX_SCORE / 2 + with - 75) / 2",
    ),
    mutant(
        "small images count",
        "plugins/images.rs",
        "const LEAST: i64 = 23 * MIB;",
        "const LEAST: i64 = 22 * MIB;",
    ),
    mutant(
        "one declared feature is enough",
        "plugins/features.rs",
        "pod.spec.features.iter().all(",
        "pod.spec.features.iter().any(",
    ),
    mutant(
        "a pod does not count itself",
        "plugins/spread.rs",
        "count + domains.own - domains.least",
        "count - domains.least",
    ),
    mutant(
        "as many domains as wanted are too few",
        "plugins/spread.rs",
        "known >= self.min_domains",
        "known > self.min_domains",
    ),
    mutant("pods that end are counted", "plugins/spread.rs", "!group.terminating() && ", ""),
    mutant("domains weigh less", "plugins/spread.rs", "((size + 2) as f64).ln()", "((size + 1) as f64).ln()"),
    mutant(
        "the fullest domain always scores 0",
        "plugins/spread.rs",
        "MAX_SCORE * (max + min - *score) / max",
        "MAX_SCORE * (max - *score) / max",
    ),
    mutant(
        "affinity is ignored where it is honored",
        "plugins/spread.rs",
        "constraint.affinity_policy == Policy::Ignore || affinity",
        "constraint.affinity_policy == Policy::Honor || affinity",
    ),
    mutant(
        "the first of any group finds a place",
        "plugins/company.rs",
        "self.none_wanted && self.wants_itself && ",
        "self.none_wanted && ",
    ),
    mutant(
        "anti-affinity attracts",
        "plugins/company.rs",
        "prefer(&pod.spec.anti_affinity.preferred, -1);",
        "prefer(&pod.spec.anti_affinity.preferred, 1);",
    ),
    mutant("running pods' dislikes attract", "plugins/company.rs", "=> -weight,", "=> weight,"),
    mutant(
        "equals are victims",
        "plugins/preemption/victims.rs",
        "pod.spec.priority < cycle.pod.spec.priority",
        "pod.spec.priority <= cycle.pod.spec.priority",
    ),
    mutant(
        "the most important victim does not matter",
        "plugins/preemption/rank.rs",
        "self.victims.iter().map(|pod| pod.spec.priority).max()",
        "self.victims.iter().map(|pod| pod.spec.priority).min()",
    ),
    mutant("budgets allow one disruption more", "budget.rs", "*allowed < 0", "*allowed < -1"),
    mutant(
        "a disk claimed once may be claimed again",
        "plugins/volume_restrictions.rs",
        "if self.users > 0 {",
        "if self.users > 1 {",
    ),
    mutant(
        "a node attaches one volume too few",
        "plugins/volume_limits.rs",
        "+ count > limit)",
        "+ count >= limit)",
    ),
    mutant(
        "zones by their old name only",
        "plugins/volume_zone.rs",
        "labels.get(key).or_else(|| labels.get(newer))",
        "labels.get(key)",
    ),
    mutant(
        "the largest volume is taken",
        "volumes/binding.rs",
        "sort_by_key(|volume| volume.capacity);",
        "sort_by_key(|volume| std::cmp::Reverse(volume.capacity));",
    ),
    mutant(
        "devices that somebody has are given again",
        "devices/allocator.rs",
        "|| self.devices.allocated().has_whole(&Self::id(slice, device))",
        "|| self.devices.allocated().has_whole(&Self::id(slice, device)) && device.shareable",
    ),
    mutant(
        "the oldest generation of a pool counts",
        "devices/pool.rs",
        "if slice.generation > generation {",
        "if slice.generation < generation {",
    ),
    mutant(
        "every alternative is as good as the first",
        "plugins/dynamic_resources.rs",
        "score += ALTERNATIVES - index;",
        "score += ALTERNATIVES;",
    ),
    mutant(
        "devices need not match",
        "devices/common.rs",
        "is_none_or(|first| same(value, first))",
        "is_none_or(|first| same(value, first) || !same(value, first))",
    ),
    mutant(
        "a device with NoSchedule is given",
        "devices/slice.rs",
        "\"NoSchedule\" | \"NoExecute\")",
        "\"NoExecute\")",
    ),
    mutant(
        "partitions take from counters of their own",
        "devices/allocator.rs",
        "*left >= taken.copied().unwrap_or_default()",
        "*left >= taken.copied().unwrap_or_default() || !left.is_negative()",
    ),
    mutant(
        "a part may be larger than what is left",
        "devices/capacity.rs",
        "        sum <= capacity.value",
        "        sum <= capacity.value || !sum.is_zero()",
    ),
    mutant(
        "a missing attribute is told in other words",
        "devices/selector.rs",
        "\"no such key: {key}.",
        "\"no key: {key}.",
    ),
    mutant(
        "a refused claim is waited for",
        "volumes/binding/plan.rs",
        "if claim.selected_node.as_ref() != Some(&node.name) {",
        "if claim.selected_node.as_ref().is_some_and(|selected| *selected != node.name) {",
    ),
    mutant("assumptions outlive what was seen", "volumes/cache.rs", "entry.assumed = None;", ""),
    mutant(
        "pods of equal priority keep no room",
        "nominator.rs",
        "other.spec.priority >= pod.spec.priority && other.uid != pod.uid",
        "other.spec.priority > pod.spec.priority && other.uid != pod.uid",
    ),
    mutant(
        "victims that end are not waited for",
        "plugins/preemption.rs",
        "other.preempted && other.spec.priority < pod.spec.priority",
        "other.preempted && other.spec.priority > pod.spec.priority",
    ),
];

impl Mutant {
    /// The file's text with the error in it.
    ///
    /// # Errors
    /// When the right text is not there exactly once: then the list must follow the code.
    pub fn apply(&self, source: &str) -> Result<String> {
        let count = source.matches(self.right).count();
        let (name, file, right) = (self.name, self.file, self.right);
        ensure!(count == 1, "mutant {name:?}: {file} has {right:?} {count} times instead of once");
        Ok(source.replace(self.right, self.wrong))
    }

    /// Reads the mutant's file of a workspace.
    ///
    /// # Errors
    /// When there is none.
    pub fn source(&self, workspace: &Path) -> Result<String> {
        let path = workspace.join("crates/scheduling/src").join(self.file);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_changes_one_line_of_the_code_as_it_is() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for mutant in MUTANTS {
            let source = mutant.source(&workspace).unwrap();
            let changed = mutant.apply(&source).unwrap();
            let different = source.lines().zip(changed.lines()).filter(|(old, new)| old != new).count();
            assert_eq!(different, 1, "{}", mutant.name);
        }
    }
}
