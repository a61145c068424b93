//! `pluginConfig`: what plugins are told, checked as upstream checks it.

use std::collections::BTreeSet;

use thin_vec::ThinVec;

use crate::config::plugins::is_known;
use crate::config::read::Problems;
use crate::config::{
    BalanceArgs, CompanyArgs, FitArgs, NodeAffinityArgs, PluginArgs, PreemptionArgs, ResourceWeight,
    ScoringStrategy, ShapePoint, SpreadArgs, VolumeArgs,
};
use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::pod::{SpreadConstraint, node_terms, preferred_nodes};

/// Reads the arguments of all plugins.
pub(super) fn read(list: &Field<'_>, problems: &mut Problems) -> PluginArgs {
    let mut all = PluginArgs::default();
    let mut seen = BTreeSet::new();
    for item in problems.or(list.items(), Vec::new()) {
        problems.only(&item, &["name", "args"]);
        let name = problems.or(item.get("name").text(), None).unwrap_or_default();
        if !seen.insert(name) {
            problems.add(item.error(format!("{name} is configured twice")));
            continue;
        }
        let args = item.get("args");
        match name {
            "NodeResourcesFit" => all.fit = fit(&args, problems),
            "NodeResourcesBalancedAllocation" => all.balance = balance(&args, problems),
            "NodeAffinity" => all.node_affinity = node_affinity(&args, problems),
            "PodTopologySpread" => all.spread = spread(&args, problems),
            "InterPodAffinity" => all.company = company(&args, problems),
            "DefaultPreemption" => all.preemption = preemption(&args, problems),
            "VolumeBinding" => all.volumes = volumes(&args, problems),
            "DynamicResources" => problems.add(item.error(
                "DynamicResources takes no arguments in this scheduler (a search for devices ends after a number of steps, and devices with binding conditions are refused): remove this entry",
            )),
            name if is_known(name) => {
                problems.add(item.error(format!("{name} takes no arguments: remove this entry")));
            }
            name => problems.add(item.error_at(
                "name",
                format!("{name:?} is no plugin of this scheduler: remove this entry"),
            )),
        }
    }
    all
}

/// The arguments have only these fields, and are of the plugin's kind.
fn head(args: &Field<'_>, plugin: &str, known: &[&str], problems: &mut Problems) {
    problems.only(args, &[&["apiVersion", "kind"], known].concat());
    let kind = format!("{plugin}Args");
    if problems.or(args.get("kind").text(), None).is_some_and(|got| got != kind) {
        problems.add(args.error_at("kind", format!("must be {kind}")));
    }
    let version = "kubescheduler.config.k8s.io/v1";
    if problems.or(args.get("apiVersion").text(), None).is_some_and(|got| got != version) {
        problems.add(args.error_at("apiVersion", format!("must be {version}")));
    }
}

/// A number within bounds.
fn within(
    args: &Field<'_>,
    (key, default): (&str, i64),
    (from, to): (i64, i64),
    problems: &mut Problems,
) -> i64 {
    let number = problems.or(args.get(key).integer(), None).unwrap_or(default);
    if !(from..=to).contains(&number) {
        let to = if to == i64::MAX { "inf)".to_owned() } else { format!("{to}]") };
        problems.add(args.error_at(key, format!("not in valid range [{from}, {to}")));
    }
    number
}

fn fit(args: &Field<'_>, problems: &mut Problems) -> FitArgs {
    head(
        args,
        "NodeResourcesFit",
        &["ignoredResources", "ignoredResourceGroups", "scoringStrategy"],
        problems,
    );
    let ignored = problems.or(args.get("ignoredResources").texts(), Vec::new());
    let groups = problems.or(args.get("ignoredResourceGroups").texts(), Vec::new());
    for (key, names) in [("ignoredResources", &ignored), ("ignoredResourceGroups", &groups)] {
        for (index, name) in names.iter().enumerate() {
            let key = format!("{key}[{index}]");
            if key.starts_with("ignoredResourceGroups") && name.contains('/') {
                problems.add(args.error_at(&key, "resource group name can't contain '/'"));
            } else if !is_label_name(name) {
                problems.add(args.error_at(&key, format!("{name:?} is no valid name of a resource")));
            }
        }
    }
    let strategy = args.get("scoringStrategy");
    problems.only(&strategy, &["type", "resources", "requestedToCapacityRatio"]);
    FitArgs {
        ignored_resources: ignored.into_iter().collect(),
        ignored_groups: groups.into_iter().collect(),
        strategy: scoring_strategy(&strategy, problems),
        resources: resources(&strategy, (1, 100), problems).unwrap_or(FitArgs::default().resources),
    }
}

fn scoring_strategy(field: &Field<'_>, problems: &mut Problems) -> ScoringStrategy {
    let ratio = field.get("requestedToCapacityRatio");
    problems.only(&ratio, &["shape"]);
    let kind = problems.or(field.get("type").text(), None);
    let strategy = match kind {
        None if !field.present() => ScoringStrategy::LeastAllocated,
        Some("LeastAllocated") => ScoringStrategy::LeastAllocated,
        Some("MostAllocated") => ScoringStrategy::MostAllocated,
        Some("RequestedToCapacityRatio") if ratio.present() => {
            return ScoringStrategy::RequestedToCapacityRatio(shape(&ratio, problems));
        }
        Some("RequestedToCapacityRatio") => {
            let problem = "must be specified when type is RequestedToCapacityRatio";
            problems.add(field.error_at("requestedToCapacityRatio", problem));
            return ScoringStrategy::default();
        }
        Some(_) | None => {
            let known = "LeastAllocated, MostAllocated or RequestedToCapacityRatio";
            problems.add(field.error_at("type", format!("must be {known}")));
            return ScoringStrategy::default();
        }
    };
    if ratio.present() {
        problems.add(ratio.error("must be nil when type is not RequestedToCapacityRatio"));
    }
    strategy
}

/// Points of a broken line in rising order.
fn shape(field: &Field<'_>, problems: &mut Problems) -> Vec<ShapePoint> {
    let mut points: Vec<ShapePoint> = Vec::new();
    for item in problems.or(field.get("shape").items(), Vec::new()) {
        problems.only(&item, &["utilization", "score"]);
        let utilization = within(&item, ("utilization", 0), (0, 100), problems);
        let score = within(&item, ("score", 0), (0, 10), problems);
        if points.last().is_some_and(|last| last.utilization >= utilization) {
            problems.add(item.error_at("utilization", "values must be sorted in increasing order"));
        }
        points.push(ShapePoint { utilization, score });
    }
    if points.is_empty() {
        problems.add(field.error_at("shape", "at least one point must be specified"));
    }
    points
}

/// Resources with their weights, 1 where none is given. None if there are none.
fn resources(
    field: &Field<'_>,
    (from, to): (i64, i64),
    problems: &mut Problems,
) -> Option<Vec<ResourceWeight>> {
    let mut resources = Vec::new();
    for item in problems.or(field.get("resources").items(), Vec::new()) {
        problems.only(&item, &["name", "weight"]);
        let name = problems.or(item.get("name").text(), None).unwrap_or_default().to_owned();
        let weight = match problems.or(item.get("weight").integer(), None).unwrap_or_default() {
            0 => 1,
            weight => weight,
        };
        if !(from..=to).contains(&weight) {
            problems.add(match to {
                1 => item.error_at("weight", "must be 1"),
                _ => {
                    item.error_at("weight", format!("resource weight of {name} not in valid range (0, 100]"))
                }
            });
        }
        resources.push(ResourceWeight { name, weight });
    }
    (!resources.is_empty()).then_some(resources)
}

fn balance(args: &Field<'_>, problems: &mut Problems) -> BalanceArgs {
    head(args, "NodeResourcesBalancedAllocation", &["resources"], problems);
    let Some(resources) = resources(args, (1, 1), problems) else { return BalanceArgs::default() };
    let names: Vec<_> = resources.into_iter().map(|resource| resource.name).collect();
    for (index, name) in names.iter().enumerate() {
        if names.iter().take(index).any(|other| other == name) {
            let key = format!("resources[{index}].name");
            problems.add(args.error_at(&key, format!("{name} is named twice")));
        }
    }
    BalanceArgs { resources: names }
}

fn node_affinity(args: &Field<'_>, problems: &mut Problems) -> NodeAffinityArgs {
    head(args, "NodeAffinity", &["addedAffinity"], problems);
    let added = args.get("addedAffinity");
    let (hard, soft) = (
        added.get("requiredDuringSchedulingIgnoredDuringExecution"),
        added.get("preferredDuringSchedulingIgnoredDuringExecution"),
    );
    problems.only(
        &added,
        &[
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ],
    );
    let required = problems.or(node_terms(&hard), None);
    let preferred = problems.or(preferred_nodes(&added), ThinVec::new());
    let terms = hard.get("nodeSelectorTerms");
    for (index, term) in required.iter().flatten().enumerate() {
        if term.is_malformed() {
            problems.add(FieldError {
                path: format!("{}[{index}]", terms.path()),
                problem: "is no valid term of a node selector".to_owned(),
            });
        }
    }
    for (index, preferred) in preferred.iter().enumerate() {
        if preferred.term.is_malformed() {
            problems.add(FieldError {
                path: format!("{}[{index}].preference", soft.path()),
                problem: "is no valid term of a node selector".to_owned(),
            });
        }
    }
    NodeAffinityArgs { required, preferred }
}

fn spread(args: &Field<'_>, problems: &mut Problems) -> SpreadArgs {
    head(args, "PodTopologySpread", &["defaultConstraints", "defaultingType"], problems);
    let items = problems.or(args.get("defaultConstraints").items(), Vec::new());
    let kind = problems.or(args.get("defaultingType").text(), None).filter(|kind| !kind.is_empty());
    let system = match kind {
        None | Some("System") => true,
        Some("List") => false,
        Some(_) => {
            problems.add(args.error_at("defaultingType", "must be System or List"));
            return SpreadArgs::default();
        }
    };
    if system {
        if !items.is_empty() {
            problems
                .add(args.error_at("defaultingType", "must be List when .defaultConstraints are not empty"));
        }
        return SpreadArgs::default();
    }
    let mut constraints: Vec<SpreadConstraint> = Vec::new();
    for item in &items {
        let Some(constraint) = default_constraint(item, problems) else { continue };
        let same = |other: &SpreadConstraint| {
            other.topology_key == constraint.topology_key && other.required == constraint.required
        };
        if constraints.iter().any(same) {
            problems.add(item.error("repeats the topologyKey and whenUnsatisfiable of another"));
        }
        constraints.push(constraint);
    }
    SpreadArgs { system, constraints }
}

fn default_constraint(item: &Field<'_>, problems: &mut Problems) -> Option<SpreadConstraint> {
    problems.only(
        item,
        &[
            "maxSkew",
            "topologyKey",
            "whenUnsatisfiable",
            "labelSelector",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
            "matchLabelKeys",
        ],
    );
    let skew = problems.or(item.get("maxSkew").integer(), None).unwrap_or_default();
    if skew <= 0 {
        problems.add(item.error_at("maxSkew", "not in valid range (0, inf)"));
    }
    let key = problems.or(item.get("topologyKey").text(), None).unwrap_or_default();
    if key.is_empty() {
        problems.add(item.error_at("topologyKey", "can not be empty"));
    } else if !is_label_name(key) {
        problems.add(item.error_at("topologyKey", "is no valid name of a label"));
    }
    if !item.get("whenUnsatisfiable").present() {
        problems.add(item.error_at("whenUnsatisfiable", "can not be empty"));
    }
    if item.get("labelSelector").present() {
        let problem = "constraint must not define a selector, as they deduced for each pod";
        problems.add(item.error_at("labelSelector", problem));
    }
    problems.or(SpreadConstraint::parse(item, &Labels::new()).map(Some), None)
}

fn company(args: &Field<'_>, problems: &mut Problems) -> CompanyArgs {
    let ignore = "ignorePreferredTermsOfExistingPods";
    head(args, "InterPodAffinity", &["hardPodAffinityWeight", ignore], problems);
    CompanyArgs {
        hard_weight: within(args, ("hardPodAffinityWeight", 1), (0, 100), problems),
        ignore_preferred_of_existing: problems.or(args.get(ignore).flag(), false),
    }
}

fn preemption(args: &Field<'_>, problems: &mut Problems) -> PreemptionArgs {
    let (percentage, absolute) = ("minCandidateNodesPercentage", "minCandidateNodesAbsolute");
    head(args, "DefaultPreemption", &[percentage, absolute], problems);
    let read = PreemptionArgs {
        min_candidate_percentage: within(args, (percentage, 10), (0, 100), problems),
        min_candidates: within(args, (absolute, 100), (0, i64::MAX), problems),
    };
    if read.min_candidate_percentage == 0 && read.min_candidates == 0 {
        for (key, other) in [(percentage, absolute), (absolute, percentage)] {
            problems.add(args.error_at(key, format!("cannot be zero at the same time as {other}")));
        }
    }
    read
}

fn volumes(args: &Field<'_>, problems: &mut Problems) -> VolumeArgs {
    head(args, "VolumeBinding", &["bindTimeoutSeconds", "shape"], problems);
    let defaults = VolumeArgs::default();
    let timeout = problems.or(args.get("bindTimeoutSeconds").integer(), None);
    let timeout = timeout.unwrap_or(defaults.bind_timeout_seconds);
    if timeout < 0 {
        problems.add(args.error_at("bindTimeoutSeconds", "should not be a negative value"));
    }
    let given = problems.or(args.get("shape").items(), Vec::new());
    let shape = if given.is_empty() { defaults.shape } else { shape(args, problems) };
    VolumeArgs { bind_timeout_seconds: timeout, shape }
}

/// True for the name of a label or resource: at most 63 characters of letters, digits, `-`, `_` and `.`, letters or
/// digits at both ends; before it perhaps a DNS name and a slash.
fn is_label_name(name: &str) -> bool {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    let ends = |text: &str| {
        let mut ends = text.chars().next().into_iter().chain(text.chars().next_back());
        !text.is_empty() && ends.all(|c| c.is_ascii_alphanumeric())
    };
    let word = ends(name)
        && name.len() <= 63
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    let dns = |prefix: &str| {
        let label = |label: &str| {
            let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            ends(label) && label.chars().all(valid)
        };
        prefix.len() <= 253 && prefix.split('.').all(label)
    };
    word && prefix.is_none_or(dns)
}
