use super::{Action, capacities, plan};
use crate::facts::{Applied, Facts, Health, Link, Outcome, Reach, Refused, Seen, Summary, World};
use crate::kubelet::State;
use crate::node::{self, condition_of};
use api::Node;
use api::conditions::{Kind, Reason, is_true};
use api::v1alpha1::{Capacity, CapacityOf, TargetStatus};
use k8s_openapi::jiff::Timestamp;
use runtime::TargetKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn summary() -> Summary {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Summary {
        cluster_uid: Some("c1".to_owned()),
        protocol: Some("1".to_owned()),
        labels: map(&[("topology.kubernetes.io/region", "eu"), ("kubernetes.io/arch", "arm64")]),
        capacity: map(&[("cpu", "8"), ("memory", "64Gi"), ("pods", "110")]),
        allocatable: map(&[("cpu", "7900m"), ("memory", "60Gi"), ("pods", "110")]),
        free: map(&[("cpu", "1500m"), ("memory", "60Gi"), ("pods", "90")]),
        features: BTreeSet::new(),
    }
}

fn saw(summary: Summary) -> Health {
    Health::default().after(Outcome::Answered(summary))
}

fn target(namespace: &str, name: &str) -> Facts {
    Facts {
        key: TargetKey { namespace: namespace.to_owned(), name: name.to_owned() },
        uid: format!("uid-{name}"),
        generation: Some(1),
        created: Some(Timestamp::from_second(100).unwrap()),
        link: Link::Up,
        excluded: None,
        capacity: Capacity::default(),
        resource_version: "1".to_owned(),
        finalizers: Vec::new(),
        is_held: false,
        deleting: false,
        is_fenced: false,
        is_others: false,
        status: TargetStatus::default(),
        health: saw(summary()),
    }
}

fn world(targets: Vec<Facts>) -> World {
    let now = Timestamp::from_second(1_000).unwrap();
    World {
        targets,
        nodes: BTreeMap::new(),
        others: BTreeSet::new(),
        address: "10.0.0.1".to_owned(),
        ports: BTreeMap::new(),
        serving: None,
        now,
    }
}

/// What the shell and the API server make of an action.
fn obey(mut world: World, action: &Action) -> World {
    let put = |nodes: &mut BTreeMap<String, Seen>, name: &str, write: &dyn Fn(&mut Seen)| {
        if let Some(seen) = nodes.get_mut(name) {
            write(seen);
        }
    };
    match action {
        Action::PatchTarget { key, status, .. } => {
            for target in world.targets.iter_mut().filter(|target| target.key == *key) {
                target.status = status.clone();
            }
        }
        Action::HoldTarget { key, finalizers, .. } => {
            for target in world.targets.iter_mut().filter(|target| target.key == *key) {
                target.finalizers.clone_from(finalizers);
                target.is_held = true;
            }
        }
        Action::CreateNode { key } => {
            let mut made: Node = serde_json::from_value(node::new(key)).unwrap();
            made.metadata.uid = Some(format!("node-{key}"));
            world.nodes.insert(key.virtual_node(), Seen { node: made, applied: Applied::default() });
        }
        Action::ApplyLabels { name, labels, .. } => put(&mut world.nodes, name, &|seen| {
            seen.node.metadata.labels.get_or_insert_default().extend(labels.clone());
            seen.applied.labels = Some(labels.clone());
        }),
        Action::SetTaints { name, taints, .. } => {
            put(&mut world.nodes, name, &|seen| seen.node.spec["taints"] = json!(taints));
        }
        Action::ApplyStatus { name, status, .. } => put(&mut world.nodes, name, &|seen| {
            seen.node.status = status.sent.clone();
            seen.applied.status = Some(status.reduced.clone());
            seen.applied.stored = capacities(&seen.node.status);
        }),
        Action::PatchConditions { name, status, .. } => put(&mut world.nodes, name, &|seen| {
            for (field, value) in node::only_conditions(&status.sent).as_object().unwrap() {
                if !seen.node.status.is_object() {
                    seen.node.status = json!({});
                }
                seen.node.status[field] = value.clone();
            }
        }),
        Action::DeleteNode { name, .. } => {
            world.nodes.remove(name);
        }
    }
    world
}

/// Obeys until nothing is left to do.
#[track_caller]
fn settle(mut world: World) -> World {
    for _ in 0..5 {
        let actions = plan(&world);
        if actions.is_empty() {
            return world;
        }
        world = actions.iter().fold(world, obey);
    }
    panic!("does not settle: {:?}", plan(&world));
}

fn settled() -> World {
    settle(world(vec![target("", "t1")]))
}

fn condition(world: &World, at: usize, kind: Kind) -> (String, String) {
    let condition = world.targets[at].status.conditions.iter().find(|c| c.type_ == kind.as_str()).unwrap();
    (condition.status.clone(), condition.reason.clone())
}

fn says(status: &str, reason: Reason) -> (String, String) {
    (status.to_owned(), reason.as_str().to_owned())
}

fn only_node(world: &World) -> &Node {
    assert_eq!(world.nodes.len(), 1);
    &world.nodes.values().next().unwrap().node
}

fn node_ready(world: &World) -> Value {
    condition_of(&only_node(world).status, "Ready").unwrap().clone()
}

fn silent(health: &Health, times: usize) -> Health {
    (0..times).fold(health.clone(), |health, _| health.after(Outcome::Silent("no route".to_owned())))
}

#[test]
fn an_answering_target_is_accepted_and_has_a_ready_node() {
    let world = settled();
    for kind in [Kind::Accepted, Kind::Reachable, Kind::Ready] {
        assert!(is_true(&world.targets[0].status.conditions, kind));
    }
    assert_eq!(world.targets[0].status.cluster_uid.as_deref(), Some("c1"));
    assert_eq!(world.targets[0].status.virtual_node.as_deref(), Some("admiralty-t1"));
    let node = only_node(&world);
    assert_eq!(node_ready(&world)["status"], "True");
    assert_eq!(node.status["allocatable"]["cpu"], "7900m");
    assert_eq!(node.status["nodeInfo"]["architecture"], "arm64");
    assert_eq!(node.label("topology.kubernetes.io/region"), Some("eu"));
    assert_eq!(node.spec["taints"][0]["key"], "virtual-kubelet.io/provider");
}

#[test]
fn a_crash_between_any_two_writes_converges() {
    let done = settled();
    let mut world = world(vec![target("", "t1")]);
    while let Some(action) = plan(&world).first() {
        world = obey(world.clone(), action);
        // A new process has forgotten what it applied.
        let mut restarted = world.clone();
        restarted.nodes.values_mut().for_each(|seen| seen.applied = Applied::default());
        let end = settle(restarted);
        assert_eq!(only_node(&end).status, only_node(&done).status);
        assert_eq!(end.targets[0].status, done.targets[0].status);
    }
}

#[test]
fn w13_a_silent_target_shows_in_its_conditions_and_its_node() {
    let mut world = settled();
    world.targets[0].health = silent(&world.targets[0].health, 3);
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Reachable), says("False", Reason::Unreachable));
    assert_eq!(condition(&world, 0, Kind::Ready), says("False", Reason::Unreachable));
    assert_eq!(node_ready(&world)["reason"], "TargetUnreachable");
    assert_eq!(node_ready(&world)["status"], "False");
    assert_eq!(only_node(&world).status["allocatable"]["cpu"], "7900m");
}

#[test]
fn w14_a_silent_target_stays_accepted() {
    let mut world = settled();
    world.targets[0].health = silent(&Health::default(), 9);
    assert_eq!(condition(&settle(world), 0, Kind::Accepted), says("True", Reason::Ok));
}

#[test]
fn w14_a_target_without_its_secret_keeps_identity_and_node() {
    let mut world = settled();
    world.targets[0].link = Link::Broken { reason: Reason::SecretNotFound, message: "no Secret".to_owned() };
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::SecretNotFound));
    assert_eq!(condition(&world, 0, Kind::Reachable), says("False", Reason::SecretNotFound));
    assert_eq!(world.targets[0].status.cluster_uid.as_deref(), Some("c1"));
    assert_eq!(node_ready(&world)["status"], "False");
}

#[test]
fn a_single_failed_probe_says_nothing() {
    assert_eq!(silent(&saw(summary()), 2).reach, Reach::Yes);
    assert!(matches!(silent(&saw(summary()), 3).reach, Reach::No { .. }));
}

#[test]
fn case_091_two_answers_in_a_row_heal_a_silent_target() {
    let once = silent(&saw(summary()), 9).after(Outcome::Answered(summary()));
    assert!(matches!(once.reach, Reach::No { .. }));
    assert!(matches!(silent(&once, 1).after(Outcome::Answered(summary())).reach, Reach::No { .. }));
    assert_eq!(once.after(Outcome::Answered(summary())).reach, Reach::Yes);
}

#[test]
fn the_same_trouble_in_other_words_is_no_news() {
    let health = silent(&saw(summary()), 3);
    assert_eq!(health.after(Outcome::Silent("timed out".to_owned())), health);
}

#[test]
fn after_a_restart_of_ours_nothing_is_written_before_the_first_probe() {
    let mut world = settled();
    world.targets[0].health = Health::default();
    world.nodes.values_mut().for_each(|seen| seen.applied = Applied::default());
    assert_eq!(plan(&world), []);
}

#[test]
fn after_a_restart_of_ours_a_refused_target_stays_refused() {
    let mut target = target("", "t1");
    target.health = Health::default().after(Outcome::NoSummary);
    let mut world = settle(world(vec![target]));
    world.targets[0].health = Health::default();
    assert_eq!(plan(&world), []);
}

#[test]
fn capacity_stays_when_the_target_is_silent_since_our_start() {
    let mut world = settled();
    world.targets[0].health = silent(&Health::default(), 3);
    world.nodes.values_mut().for_each(|seen| seen.applied = Applied::default());
    let world = settle(world);
    assert_eq!(node_ready(&world)["status"], "False");
    assert_eq!(only_node(&world).status["capacity"]["cpu"], "8");
}

#[test]
fn case_029_a_target_that_must_not_be_watched_is_not_ready() {
    let mut world = settled();
    world.targets[0].health =
        (0..3).fold(saw(summary()), |health, _| health.after(Outcome::Refused("cannot watch".to_owned())));
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Reachable), says("False", Reason::Forbidden));
    assert_eq!(node_ready(&world)["message"], "cannot watch");
}

#[test]
fn case_055_a_foreign_ready_condition_is_overwritten_at_once() {
    let mut world = settled();
    for seen in world.nodes.values_mut() {
        seen.node.status["conditions"][0]["status"] = json!("Unknown");
    }
    assert_eq!(node_ready(&settle(world))["status"], "True");
}

fn serving(port: u16, version: &str) -> World {
    let mut world = settled();
    world.ports = [(world.targets[0].key.virtual_node(), port)].into();
    let state = State { status: "True", reason: "CertificateIssued", message: "m".to_owned() };
    world.serving = Some(state);
    world.targets[0].health.version = Some(version.to_owned());
    settle(world)
}

#[test]
fn w38_a_node_shows_where_its_kubelet_api_is_and_whether_it_can_be_trusted() {
    let world = serving(10_251, "v1.37.2");
    let status = &only_node(&world).status;
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10_251);
    assert_eq!(status["addresses"], json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
    assert_eq!(condition_of(status, "KubeletServing").unwrap()["reason"], "CertificateIssued");
    assert_eq!(condition_of(&only_node(&settled()).status, "KubeletServing"), None);
}

#[test]
fn web_sockets_are_passed_on_to_targets_that_take_them() {
    for (version, declared) in [
        ("v1.37.2", true),
        ("v1.31.0-gke.1", true),
        ("1.31+", true),
        ("v1.30.9", false),
        ("v1.4", false),
        ("", false),
        ("nonsense", false),
    ] {
        let world = serving(10_250, version);
        let features = &only_node(&world).status["declaredFeatures"];
        assert_eq!(features == &json!(["ExtendWebSocketsToKubelet"]), declared, "{version}: {features}");
    }
}

#[test]
fn a_new_leader_writes_its_address_and_port_at_once() {
    let mut world = serving(10_250, "v1.37.2");
    world.address = "10.0.0.2".to_owned();
    world.ports.values_mut().for_each(|port| *port = 10_252);
    assert!(plan(&world).iter().any(|action| matches!(action, Action::ApplyStatus { .. })));
    let status = &only_node(&settle(world)).status.clone();
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10_252);
    assert_eq!(status["addresses"][0]["address"], "10.0.0.2");
}

#[test]
fn w21_what_is_known_before_there_is_a_node_is_written_as_soon_as_there_is_one() {
    let mut world = world(vec![target("", "t1")]);
    let name = world.targets[0].key.virtual_node();
    world.ports = [(name, 10_250)].into();
    let first = plan(&world);
    assert!(first.iter().any(|action| matches!(action, Action::CreateNode { .. })), "{first:?}");
    let world = settle(world);
    let status = &only_node(&world).status;
    assert_eq!(status["allocatable"]["cpu"], "7900m");
    assert_eq!(node::port(status), Some(10_250));
}

#[test]
fn case_056_a_deleted_node_is_made_again() {
    let mut world = settled();
    world.nodes.clear();
    assert_eq!(plan(&world), [Action::CreateNode { key: world.targets[0].key.clone() }]);
    assert_eq!(settle(world).nodes.len(), 1);
}

#[test]
fn case_059_a_status_refused_for_its_huge_pages_is_sent_without_them() {
    let mut target = target("", "t1");
    let mut pages = summary();
    for list in [&mut pages.capacity, &mut pages.allocatable] {
        list.insert("hugepages-2Mi".to_owned(), "1Gi".to_owned());
        list.insert("hugepages-1Gi".to_owned(), "4Gi".to_owned());
    }
    target.health = saw(pages);
    let mut world = settle(world(vec![target]));
    assert!(only_node(&world).status["capacity"].get("hugepages-2Mi").is_some());
    for seen in world.nodes.values_mut() {
        let status = seen.applied.status.take().unwrap();
        seen.applied.refused = Some(Refused { status, also_without_huge_pages: false });
    }
    let status = only_node(&settle(world)).status.clone();
    assert!(status["capacity"].get("hugepages-2Mi").is_none());
    assert_eq!(status["capacity"]["cpu"], "8");
}

#[test]
fn a_status_refused_altogether_still_says_whether_the_node_is_there() {
    let mut world = settled();
    for seen in world.nodes.values_mut() {
        let status = seen.applied.status.take().unwrap();
        seen.applied.refused = Some(Refused { status, also_without_huge_pages: true });
        seen.node.status = Value::Null;
    }
    assert_eq!(node_ready(&settle(world))["status"], "True");
}

#[test]
fn case_061_a_label_that_left_the_summary_leaves_what_we_apply() {
    let mut world = settled();
    let mut less = summary();
    less.labels.remove("topology.kubernetes.io/region");
    world.targets[0].health = saw(less);
    let applied = settle(world).nodes.into_values().next().unwrap().applied;
    assert!(!applied.labels.unwrap().contains_key("topology.kubernetes.io/region"));
}

#[test]
fn w39_labels_of_a_target_never_change_what_the_node_is() {
    let mut target = target("", "t1");
    let mut bold = summary();
    for (key, value) in [
        ("virtual-kubelet.io/provider", "other"),
        ("type", "other"),
        ("kubernetes.io/hostname", "h"),
        ("node-role.kubernetes.io/control-plane", ""),
        ("multicluster.admiralty.io/target-name", "x"),
    ] {
        bold.labels.insert(key.to_owned(), value.to_owned());
    }
    target.health = saw(bold);
    let world = settle(world(vec![target]));
    let node = only_node(&world);
    assert_eq!(node.label("virtual-kubelet.io/provider"), Some("admiralty"));
    assert_eq!(node.label("type"), Some("virtual-kubelet"));
    assert_eq!(node.label("kubernetes.io/hostname"), Some(node.name()));
    assert_eq!(node.label("node-role.kubernetes.io/control-plane"), None);
    assert_eq!(node.label("multicluster.admiralty.io/target-name"), None);
}

#[test]
fn w39_excluded_labels_are_not_shown() {
    let mut target = target("", "t1");
    target.excluded = Some("region=e".to_owned());
    assert_eq!(only_node(&settle(world(vec![target]))).label("topology.kubernetes.io/region"), None);
}

#[test]
fn w39_labels_taints_and_the_cordon_of_users_stay() {
    let mut world = settled();
    for seen in world.nodes.values_mut() {
        seen.node.metadata.labels.get_or_insert_default().insert("mine".to_owned(), "yes".to_owned());
        seen.node.spec["unschedulable"] = json!(true);
        seen.node.spec["taints"].as_array_mut().unwrap().push(json!({"key": "mine", "effect": "NoSchedule"}));
    }
    assert_eq!(plan(&world), []);
}

#[test]
fn our_taint_is_put_back_beside_those_of_others() {
    let mut world = settled();
    for seen in world.nodes.values_mut() {
        seen.node.spec["taints"] = json!([{"key": "mine", "effect": "NoSchedule"}]);
    }
    let world = settle(world);
    assert_eq!(only_node(&world).spec["taints"].as_array().unwrap().len(), 2);
}

#[test]
fn w43_a_long_target_name_still_makes_valid_labels() {
    let world = settle(world(vec![target("ns", &"a".repeat(100))]));
    assert!(only_node(&world).label("multicluster.admiralty.io/target-name").unwrap().len() <= 63);
}

#[test]
fn w15_of_two_targets_for_one_cluster_only_the_older_counts() {
    let (older, mut younger) = (target("a", "t1"), target("", "t2"));
    younger.created = Some(Timestamp::from_second(200).unwrap());
    let world = settle(world(vec![younger, older]));
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::SameCluster));
    assert_eq!(condition(&world, 1, Kind::Accepted), says("True", Reason::Ok));
    assert_eq!(only_node(&world).name(), "admiralty-a-t1");
}

#[test]
fn w15_of_two_of_the_same_age_the_lower_uid_counts() {
    let world = settle(world(vec![target("a", "t2"), target("a", "t1")]));
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::SameCluster));
}

#[test]
fn w15_targets_of_two_namespaces_share_a_cluster() {
    assert_eq!(settle(world(vec![target("a", "t1"), target("b", "t2")])).nodes.len(), 2);
}

#[test]
fn w15_an_older_target_that_is_broken_still_stands_for_its_cluster() {
    let mut world = settled();
    world.targets[0].link = Link::Broken { reason: Reason::SecretNotFound, message: String::new() };
    let mut younger = target("", "t2");
    younger.created = Some(Timestamp::from_second(200).unwrap());
    world.targets.push(younger);
    assert_eq!(condition(&settle(world), 1, Kind::Accepted), says("False", Reason::SameCluster));
}

#[test]
fn w15_the_younger_takes_over_when_the_older_is_deleted() {
    let mut younger = target("", "t2");
    younger.created = Some(Timestamp::from_second(200).unwrap());
    let mut world = settle(world(vec![target("", "t1"), younger]));
    world.targets.remove(0);
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Accepted), says("True", Reason::Ok));
    assert_eq!(only_node(&world).name(), "admiralty-t2");
}

#[test]
fn another_cluster_behind_the_same_target_is_not_adopted() {
    let mut world = settled();
    world.targets[0].health = saw(Summary { cluster_uid: Some("c2".to_owned()), ..summary() });
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::IdentityChanged));
    assert_eq!(world.targets[0].status.cluster_uid.as_deref(), Some("c1"));
    assert_eq!(node_ready(&world)["status"], "False");
}

#[test]
fn a_target_that_speaks_no_protocol_of_ours_is_not_accepted() {
    let mut target = target("", "t1");
    target.health = saw(Summary { protocol: None, ..summary() });
    let world = settle(world(vec![target]));
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::OldProtocol));
    assert!(world.nodes.is_empty());
}

#[test]
fn a_target_without_summary_has_no_identity() {
    let mut target = target("", "t1");
    target.health = Health::default().after(Outcome::NoSummary);
    let world = settle(world(vec![target]));
    assert_eq!(condition(&world, 0, Kind::Accepted), says("False", Reason::IdentityUnknown));
    assert_eq!(condition(&world, 0, Kind::Reachable), says("True", Reason::Ok));
    assert!(world.nodes.is_empty());
}

#[test]
fn a_target_not_asked_yet_is_neither_accepted_nor_refused() {
    let mut target = target("", "t1");
    target.health = Health::default();
    let world = settle(world(vec![target]));
    assert_eq!(condition(&world, 0, Kind::Accepted), says("Unknown", Reason::Pending));
}

#[test]
fn w19_the_node_of_a_deleted_target_is_deleted() {
    let mut world = settled();
    world.targets.clear();
    let uid = only_node(&world).uid().to_owned();
    let delete = Action::DeleteNode { name: "admiralty-t1".to_owned(), uid, namespace: String::new() };
    assert_eq!(plan(&world), [delete]);
}

#[test]
fn w19_a_node_without_our_labels_is_never_deleted() {
    let mut world = settled();
    world.targets.clear();
    for seen in world.nodes.values_mut() {
        seen.node
            .metadata
            .labels
            .get_or_insert_default()
            .remove("multicluster.admiralty.io/cluster-target-name");
    }
    assert_eq!(plan(&world), []);
}

#[test]
fn w18_the_node_of_a_deleted_target_stays_while_pods_are_bound_to_it() {
    let mut world = settled();
    world.targets.clear();
    world.nodes.values_mut().for_each(|seen| seen.applied.is_used = true);
    let uid = only_node(&world).uid().to_owned();
    let delete = Action::DeleteNode { name: "admiralty-t1".to_owned(), uid, namespace: String::new() };
    // What the shell does not carry out as long as there are pods.
    let still =
        |world: &World| plan(world).into_iter().filter(|action| *action != delete).collect::<Vec<_>>();
    let world = still(&world).iter().fold(world, obey);
    assert_eq!(node_ready(&world)["reason"], "TargetRemoved");
    assert_eq!(taints(&world), ["virtual-kubelet.io/provider", "multicluster.admiralty.io/not-ready"]);
    assert_eq!(still(&world), []);
    assert_eq!(plan(&world), [delete]);
}

fn taints(world: &World) -> Vec<String> {
    let taints = only_node(world).spec["taints"].as_array().unwrap();
    taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn w13_a_taint_comes_and_goes_with_the_reach_of_a_target() {
    let mut world = settled();
    assert_eq!(taints(&world), ["virtual-kubelet.io/provider"]);
    world.targets[0].health = silent(&world.targets[0].health, 3);
    let mut world = settle(world);
    assert_eq!(taints(&world).last().unwrap(), "multicluster.admiralty.io/not-ready");
    assert_eq!(only_node(&world).spec["taints"][1]["value"], "TargetUnreachable");
    let health =
        world.targets[0].health.after(Outcome::Answered(summary())).after(Outcome::Answered(summary()));
    world.targets[0].health = health;
    assert_eq!(taints(&settle(world)), ["virtual-kubelet.io/provider"]);
}

#[test]
fn w12_case_033_the_beginning_of_an_outage_outlives_a_restart_of_ours() {
    let mut world = settled();
    world.targets[0].health = silent(&world.targets[0].health, 3);
    let mut world = settle(world);
    let since = |world: &World| {
        let all = &world.targets[0].status.conditions;
        all.iter().find(|c| c.type_ == Kind::Reachable.as_str()).unwrap().last_transition_time.clone()
    };
    let began = since(&world);
    // A new process knows nothing at first, and then finds the same.
    world.now = Timestamp::from_second(5_000).unwrap();
    world.targets[0].health = Health::default();
    let mut world = settle(world);
    assert_eq!((condition(&world, 0, Kind::Reachable).0, since(&world)), ("False".to_owned(), began.clone()));
    world.targets[0].health = silent(&Health::default(), 3);
    let world = settle(world);
    assert_eq!(since(&world), began);
}

#[test]
fn case_091_a_target_whose_watches_stand_still_is_not_reachable() {
    let mut world = settled();
    let stalled = |health: Health| health.after(Outcome::Stalled("nothing new".to_owned()));
    world.targets[0].health = (0..3).fold(world.targets[0].health.clone(), |health, _| stalled(health));
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Reachable), says("False", Reason::WatchStalled));
    assert_eq!(node_ready(&world)["status"], "False");
}

#[test]
fn case_043_a_target_is_accepted_with_its_finalizer_and_not_before() {
    let mut world = world(vec![target("", "t1")]);
    let actions = plan(&world);
    assert!(matches!(&actions[..], [Action::HoldTarget { .. }, Action::CreateNode { .. }]), "{actions:?}");
    world.targets[0].finalizers = vec!["example.com/theirs".to_owned()];
    let world = settle(world);
    assert_eq!(world.targets[0].finalizers, ["example.com/theirs", "multicluster.admiralty.io/target"]);
    assert!(is_true(&world.targets[0].status.conditions, Kind::Accepted));
}

#[test]
fn case_043_a_target_that_is_deleted_takes_no_pods_and_says_what_it_waits_for() {
    let mut world = settled();
    world.targets[0].deleting = true;
    world.targets[0].health = silent(&world.targets[0].health, 3);
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Ready), says("False", Reason::Deleting));
    assert!(is_true(&world.targets[0].status.conditions, Kind::Accepted), "what is there can still be ended");
    let message = &world.targets[0].status.conditions.iter().find(|c| c.type_ == "Ready").unwrap().message;
    assert!(message.contains("force-removal=c1") && message.contains("fenced=c1"), "{message}");
    assert_eq!(only_node(&world).spec["taints"][1]["value"], "TargetDeleting");
}

#[test]
fn case_043_a_target_that_is_deleted_is_not_held_anew() {
    let mut target = target("", "t1");
    target.deleting = true;
    let actions = plan(&world(vec![target]));
    let holds = |action: &Action| matches!(action, Action::HoldTarget { .. } | Action::CreateNode { .. });
    assert!(!actions.iter().any(holds), "{actions:?}");
}

#[test]
fn a_fenced_target_takes_no_pods_even_when_it_answers() {
    let mut world = settled();
    world.targets[0].is_fenced = true;
    let world = settle(world);
    assert_eq!(condition(&world, 0, Kind::Ready), says("False", Reason::Fenced));
    assert_eq!(condition(&world, 0, Kind::Reachable), says("True", Reason::Ok));
    assert_eq!(only_node(&world).spec["taints"][1]["value"], "TargetFenced");
}

#[test]
fn what_another_replica_looks_after_is_left_alone() {
    let mut world = world(vec![target("", "t1"), target("", "t2")]);
    world.targets[1].is_others = true;
    world.targets[1].status.cluster_uid = Some("c2".to_owned());
    world.others = BTreeSet::from(["admiralty-t2".to_owned()]);
    let mut world = settle(world);
    assert_eq!(only_node(&world).name(), "admiralty-t1");
    assert!(world.targets[1].status.conditions.is_empty());
    // Nor is its node deleted when its target is gone.
    let mut left: Node = serde_json::from_value(node::new(&world.targets[1].key)).unwrap();
    left.metadata.uid = Some("node-t2".to_owned());
    world.nodes.insert("admiralty-t2".to_owned(), Seen { node: left, applied: Applied::default() });
    world.targets.remove(1);
    assert_eq!(plan(&world), []);
    world.others.clear();
    assert!(matches!(&plan(&world)[..], [Action::DeleteNode { .. }]));
}

#[test]
fn w15_a_target_waits_for_the_first_word_on_an_older_one_that_another_replica_asks() {
    let (mut older, mut younger) = (target("", "t1"), target("", "t2"));
    younger.created = Some(Timestamp::from_second(200).unwrap());
    (older.is_others, older.health) = (true, Health::default());
    let mut world = settle(world(vec![older, younger]));
    assert_eq!(condition(&world, 1, Kind::Accepted), says("Unknown", Reason::Pending));
    assert!(world.nodes.is_empty());
    world.targets[0].status.cluster_uid = Some("c1".to_owned());
    let mut world = settle(world);
    assert_eq!(condition(&world, 1, Kind::Accepted), says("False", Reason::SameCluster));
    world.targets[0].status.cluster_uid = Some("c9".to_owned());
    assert_eq!(condition(&settle(world), 1, Kind::Accepted), says("True", Reason::Ok));
}

#[test]
fn features_that_all_nodes_of_a_target_declare_are_declared_besides_our_own() {
    let mut target = target("", "t1");
    let features = ["ExtendWebSocketsToKubelet", "GuaranteedQoSPodCPUResize"];
    target.health = saw(Summary { features: features.map(str::to_owned).into(), ..summary() });
    // Without a kubelet API nothing can be streamed, whatever the nodes of the target can.
    let declared = |world: &World| only_node(world).status["declaredFeatures"].clone();
    let mut world = settle(world(vec![target]));
    assert_eq!(declared(&world), json!(["GuaranteedQoSPodCPUResize"]));
    world.ports = [("admiralty-t1".to_owned(), 10_250)].into();
    world.targets[0].health.version = Some("v1.37.2".to_owned());
    assert_eq!(declared(&settle(world)), json!(features));
}

#[test]
fn w39_the_node_shows_what_its_user_wants_to_see_of_the_capacity() {
    let mut world = settled();
    world.targets[0].capacity = Capacity {
        of: Some(CapacityOf::Free),
        up_to: BTreeMap::from([("nvidia.com/gpu".to_owned(), "8".to_owned())]),
        ..Capacity::default()
    };
    let mut world = settle(world);
    let status = &only_node(&world).status;
    assert_eq!((&status["allocatable"]["cpu"], &status["capacity"]["cpu"]), (&json!("1500m"), &json!("8")));
    assert_eq!(status["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(status["capacity"]["nvidia.com/gpu"], "8");
    world.targets[0].capacity.up_to.insert("cpu".to_owned(), "some".to_owned());
    assert_eq!(condition(&settle(world), 0, Kind::Accepted), says("False", Reason::SpecInvalid));
}
