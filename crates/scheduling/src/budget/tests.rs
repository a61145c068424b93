use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, labels: &Value) -> Arc<PodInfo> {
    let raw = json!({"metadata": {"name": name, "namespace": "shop", "labels": labels}});
    Arc::new(PodInfo::parse(&raw).expect("a pod"))
}

fn web(name: &str) -> Arc<PodInfo> {
    pod(name, &json!({"app": "web"}))
}

fn budget(name: &str, selector: &Value, allowed: i64) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed}})
}

fn web_budget(name: &str, allowed: i64) -> Value {
    budget(name, &json!({"matchLabels": {"app": "web"}}), allowed)
}

#[track_caller]
fn check(budgets: &[Value], pods: &[Arc<PodInfo>], want: &[bool]) {
    let mut all = Budgets::default();
    for budget in budgets {
        all.set(Budget::parse(budget).expect("a budget"));
    }
    assert_eq!(all.broken_by(pods.iter()), want);
}

#[test]
fn a_budget_is_used_up_by_one_pod_after_the_other() {
    check(&[web_budget("b", 1)], &[web("1"), web("2"), web("3")], &[false, true, true]);
}

#[test]
fn a_budget_covers_its_namespace_and_its_labels_only() {
    let elsewhere = json!({"metadata": {"namespace": "bank", "name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": 0}});
    check(&[elsewhere], &[web("1")], &[false]);
    check(&[web_budget("b", 0)], &[pod("1", &json!({"app": "db"}))], &[false]);
}

#[test]
fn a_budget_without_a_selector_that_selects_covers_nothing() {
    check(&[budget("b", &Value::Null, 0)], &[web("1")], &[false]);
    check(&[budget("b", &json!({}), 0)], &[web("1")], &[false]);
    let nonsense = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    check(&[budget("b", &nonsense, 0)], &[web("1")], &[false]);
}

#[test]
fn a_pod_without_labels_is_covered_by_no_budget() {
    let absent = json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
    check(&[budget("b", &absent, 0)], &[pod("1", &json!({}))], &[false]);
    check(&[budget("b", &absent, 0)], &[pod("1", &json!({"tier": "a"}))], &[true]);
}

#[test]
fn a_pod_whose_disruption_is_counted_already_uses_up_nothing() {
    let mut counted = web_budget("b", 1);
    counted["status"]["disruptedPods"] = json!({"1": "2026-01-01T00:00:00Z"});
    check(&[counted], &[web("1"), web("2"), web("3")], &[false, false, true]);
}

#[test]
fn a_pod_uses_up_budgets_in_their_order_until_one_does_not_allow_it() {
    // The first budget forbids the first pod, so that the second still has what it allows to the second pod.
    let tier = budget("z", &json!({"matchLabels": {"tier": "a"}}), 1);
    let both = pod("1", &json!({"app": "web", "tier": "a"}));
    let one = pod("2", &json!({"app": "db", "tier": "a"}));
    check(&[tier, web_budget("a", 0)], &[both, one], &[true, false]);
}

#[test]
fn a_budget_is_replaced_and_removed_by_name() {
    let mut all = Budgets::default();
    all.set(Budget::parse(&web_budget("b", 0)).expect("a budget"));
    all.set(Budget::parse(&web_budget("b", 1)).expect("a budget"));
    assert_eq!(all.iter().count(), 1);
    assert_eq!(all.broken_by([web("1")].iter()), [false]);
    all.remove("shop", "b");
    assert_eq!(all.iter().count(), 0);
}
