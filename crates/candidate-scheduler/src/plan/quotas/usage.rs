//! What a ResourceQuota limits, and what a pod takes of it.

use scheduling::resources::{add_list, parse_list};
use scheduling::{Quantity, ResourceList};
use serde_json::Value;

use crate::observe::Name;

/// A ResourceQuota.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaSeen {
    pub name: Name,
    hard: ResourceList,
    used: ResourceList,
    scopes: Vec<Scope>,
}

/// Which pods a quota is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Terminating(bool),
    BestEffort(bool),
    /// Priority classes; `true`: one of them, `false`: none of them.
    Class(bool, Vec<String>),
    /// A class at all, or none.
    AnyClass(bool),
    CrossNamespace,
    /// One that this release does not know: the dry run judges it.
    Unknown,
}

impl QuotaSeen {
    /// Reads one; what cannot be read limits nothing here, and the dry run still sees it.
    pub fn read(name: Name, quota: &Value) -> Self {
        let list = |pointer: &str| parse_list(quota.pointer(pointer)).unwrap_or_default();
        // The API server enforces what its status says, as soon as there is one.
        let status = list("/status/hard");
        let hard = if status.is_empty() { list("/spec/hard") } else { status };
        let names = quota.pointer("/spec/scopes").and_then(Value::as_array).into_iter().flatten();
        let names = names.filter_map(Value::as_str).map(|name| Scope::read(name, "Exists", Vec::new()));
        let selector = quota.pointer("/spec/scopeSelector/matchExpressions").and_then(Value::as_array);
        let selected = selector.into_iter().flatten().map(|term| {
            let text = |field: &str| term[field].as_str().unwrap_or_default();
            let values = term["values"].as_array().into_iter().flatten();
            let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
            Scope::read(text("scopeName"), text("operator"), values)
        });
        Self { name, hard, used: list("/status/used"), scopes: names.chain(selected).collect() }
    }

    /// Whether it is about a pod.
    pub(super) fn concerns(&self, usage: &Usage) -> bool {
        self.scopes.iter().all(|scope| scope.holds(usage))
    }

    /// What would be too much, in the words of the API server.
    pub(super) fn excess(&self, usage: &Usage, promised: &ResourceList) -> Option<String> {
        let mut exceeded = Vec::new();
        for (resource, limit) in &self.hard {
            let amount = |list: &ResourceList| list.get(resource).copied().unwrap_or_else(Quantity::zero);
            let wanted = usage.of_quota(resource).unwrap_or_else(Quantity::zero);
            let mut sum = amount(&self.used);
            let promised = Usage::named(promised, resource).unwrap_or_else(Quantity::zero);
            sum += &promised;
            sum += &wanted;
            if !wanted.is_zero() && sum > *limit {
                exceeded.push((resource, wanted, limit));
            }
        }
        if exceeded.is_empty() {
            return None;
        }
        let list = |pairs: Vec<String>| pairs.join(",");
        let requested = exceeded.iter().map(|(name, wanted, _)| format!("{name}={wanted}")).collect();
        let limited = exceeded.iter().map(|(name, _, limit)| format!("{name}={limit}")).collect();
        Some(format!("requested: {}, limited: {}", list(requested), list(limited)))
    }
}

impl Scope {
    fn read(name: &str, operator: &str, values: Vec<String>) -> Self {
        match (name, operator) {
            ("Terminating", _) => Scope::Terminating(true),
            ("NotTerminating", _) => Scope::Terminating(false),
            ("BestEffort", _) => Scope::BestEffort(true),
            ("NotBestEffort", _) => Scope::BestEffort(false),
            ("PriorityClass", "In") => Scope::Class(true, values),
            ("PriorityClass", "NotIn") => Scope::Class(false, values),
            ("PriorityClass", "Exists") => Scope::AnyClass(true),
            ("PriorityClass", "DoesNotExist") => Scope::AnyClass(false),
            ("CrossNamespacePodAffinity", _) => Scope::CrossNamespace,
            _ => Scope::Unknown,
        }
    }

    fn holds(&self, usage: &Usage) -> bool {
        match self {
            Scope::Terminating(wanted) => usage.terminating == *wanted,
            Scope::BestEffort(wanted) => usage.best_effort == *wanted,
            Scope::Class(wanted, classes) => classes.contains(&usage.class) == *wanted,
            Scope::AnyClass(wanted) => usage.class.is_empty() != *wanted,
            Scope::CrossNamespace => usage.cross_namespace,
            Scope::Unknown => false,
        }
    }
}

/// What a pod takes of quotas.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Usage {
    /// Requests by their plain names, limits behind `limits.`, and the pod itself as `pods`.
    pub(super) amounts: ResourceList,
    terminating: bool,
    best_effort: bool,
    class: String,
    cross_namespace: bool,
}

impl Usage {
    /// Of the requests that admission returned, and the spec as it is submitted.
    pub(super) fn of(requests: &ResourceList, spec: &Value) -> Self {
        let mut amounts = requests.clone();
        amounts.insert("pods".to_owned(), Quantity::parse("1").unwrap_or_else(|_| Quantity::zero()));
        let limits = limits(spec);
        let computes = |list: &ResourceList| {
            ["cpu", "memory"].iter().any(|name| list.get(*name).is_some_and(|amount| !amount.is_zero()))
        };
        let best_effort = !computes(requests) && !computes(&limits);
        amounts.extend(limits.into_iter().map(|(name, amount)| (format!("limits.{name}"), amount)));
        Self {
            amounts,
            terminating: spec["activeDeadlineSeconds"].is_number(),
            best_effort,
            class: spec["priorityClassName"].as_str().unwrap_or_default().to_owned(),
            cross_namespace: crosses_namespaces(&spec["affinity"]),
        }
    }

    /// What it takes of a resource as quotas call it.
    fn of_quota(&self, resource: &str) -> Option<Quantity> {
        Self::named(&self.amounts, resource)
    }

    fn named(amounts: &ResourceList, resource: &str) -> Option<Quantity> {
        let name = match resource {
            "count/pods" => "pods",
            other => other.strip_prefix("requests.").unwrap_or(other),
        };
        amounts.get(name).copied()
    }
}

/// The limits of a pod: containers together, or the largest of those that come before them, and the overhead.
fn limits(spec: &Value) -> ResourceList {
    let of = |container: &Value| parse_list(container.pointer("/resources/limits")).unwrap_or_default();
    let containers = |field: &str| spec[field].as_array().into_iter().flatten();
    let mut sum = ResourceList::new();
    containers("containers").for_each(|container| add_list(&mut sum, &of(container)));
    for container in containers("initContainers") {
        let own = of(container);
        if container["restartPolicy"] == "Always" {
            add_list(&mut sum, &own);
            continue;
        }
        for (name, amount) in own {
            let known = sum.entry(name).or_insert_with(Quantity::zero);
            *known = (*known).max(amount);
        }
    }
    if !sum.is_empty() {
        let overhead = parse_list(spec.get("overhead")).unwrap_or_default();
        for (name, amount) in overhead {
            sum.entry(name).and_modify(|sum| *sum += &amount);
        }
    }
    sum
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let terms = ["podAffinity", "podAntiAffinity"].into_iter().flat_map(|kind| {
        let hard = affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
        let soft = affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
        let soft = soft.into_iter().flatten().map(|weighted| &weighted["podAffinityTerm"]);
        hard.into_iter().flatten().chain(soft)
    });
    let mut terms = terms;
    terms.any(|term| {
        term["namespaceSelector"].is_object()
            || term["namespaces"].as_array().is_some_and(|all| !all.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::{QuotaSeen, Usage};
    use crate::observe::Name;
    use scheduling::ResourceList;
    use scheduling::resources::{add_list, parse_list};
    use serde_json::{Value, json};

    fn quota(more: &Value) -> QuotaSeen {
        QuotaSeen::read(Name::new("shop", "q"), more)
    }

    fn usage(requests: &Value, spec: &Value) -> Usage {
        Usage::of(&parse_list(Some(requests)).unwrap(), spec)
    }

    fn plain() -> Usage {
        usage(&json!({"cpu": "500m", "nvidia.com/gpu": "1"}), &json!({}))
    }

    #[track_caller]
    fn check(hard: &Value, used: &Value, promised: usize, want: Option<&str>) {
        let quota = quota(&json!({"spec": {"hard": hard}, "status": {"hard": hard, "used": used}}));
        let mut all = ResourceList::new();
        (0..promised).for_each(|_| add_list(&mut all, &plain().amounts));
        assert_eq!(quota.excess(&plain(), &all).as_deref(), want);
    }

    #[test]
    fn what_is_used_promised_and_requested_is_counted_together() {
        check(&json!({"pods": "3"}), &json!({"pods": "1"}), 1, None);
        check(&json!({"pods": "3"}), &json!({"pods": "1"}), 2, Some("requested: pods=1, limited: pods=3"));
        check(
            &json!({"count/pods": "1"}),
            &json!({"count/pods": "1"}),
            0,
            Some("requested: count/pods=1, limited: count/pods=1"),
        );
        check(&json!({"requests.cpu": "1"}), &json!({}), 1, None);
        check(&json!({"cpu": "1"}), &json!({}), 2, Some("requested: cpu=500m, limited: cpu=1"));
        check(
            &json!({"requests.nvidia.com/gpu": "1"}),
            &json!({}),
            1,
            Some("requested: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1"),
        );
    }

    #[test]
    fn what_a_pod_does_not_ask_for_keeps_it_from_nothing() {
        check(&json!({"memory": "1Gi", "services": "0"}), &json!({"memory": "2Gi"}), 3, None);
    }

    #[test]
    fn a_quota_without_status_limits_by_its_spec() {
        let quota = quota(&json!({"spec": {"hard": {"pods": "0"}}}));
        assert!(quota.excess(&plain(), &ResourceList::new()).is_some());
    }

    #[test]
    fn limits_are_those_of_all_containers_or_of_the_largest_before_them() {
        let with = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}});
        let spec = json!({"containers": [with("1"), with("1")], "initContainers": [sidecar, with("9")],
            "overhead": {"cpu": "1"}});
        let quota = |most: &str| quota(&json!({"spec": {"hard": {"limits.cpu": most}}}));
        let usage = usage(&json!({}), &spec);
        assert_eq!(quota("10").excess(&usage, &ResourceList::new()), None);
        assert!(quota("9").excess(&usage, &ResourceList::new()).is_some());
    }

    #[test]
    fn a_quota_of_a_scope_is_about_pods_of_that_scope() {
        let of = |scope: &str, operator: &str, values: &[&str]| {
            quota(&json!({"spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [
                {"scopeName": scope, "operator": operator, "values": values}]}}}))
        };
        let bare = usage(&json!({}), &json!({}));
        let high =
            usage(&json!({"cpu": "1"}), &json!({"priorityClassName": "high", "activeDeadlineSeconds": 5}));
        for (quota, of_bare, of_high) in [
            (of("BestEffort", "Exists", &[]), true, false),
            (of("NotBestEffort", "Exists", &[]), false, true),
            (of("Terminating", "Exists", &[]), false, true),
            (of("NotTerminating", "Exists", &[]), true, false),
            (of("PriorityClass", "In", &["high"]), false, true),
            (of("PriorityClass", "NotIn", &["high"]), true, false),
            (of("PriorityClass", "Exists", &[]), false, true),
            (of("CrossNamespacePodAffinity", "Exists", &[]), false, false),
            (of("Whatever", "Exists", &[]), false, false),
            (quota(&json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}})), true, false),
        ] {
            assert_eq!((quota.concerns(&bare), quota.concerns(&high)), (of_bare, of_high), "{quota:?}");
        }
        let far = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"namespaces": ["other"]}]}}});
        assert!(of("CrossNamespacePodAffinity", "Exists", &[]).concerns(&usage(&json!({}), &far)));
    }
}
