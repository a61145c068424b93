//! What is done about a cluster, situation by situation.

use super::{Action, Addon, Observed, Plan, Registration, View, Workload, plan};
use crate::addons::Content;
use crate::catalog::Catalog;
use crate::openstack::{Credential, Group};
use api::Remote;
use api::provisioning::{AddonName, CloudAccountSpec, Release, ReleaseCatalogSpec, WorkloadClusterSpec};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const UID: &str = "uid-1";

fn spec(changes: &Value) -> WorkloadClusterSpec {
    let mut spec = json!({
        "kubernetes": {"version": "v1.33.x"},
        "cloudRef": {"name": "cloud"},
        "credentials": {"mode": "Shared"},
        "controlPlane": {"flavor": "plane", "antiAffinity": "None"},
        "nodePools": [
            {"name": "a", "flavor": "worker", "replicas": 2, "antiAffinity": "None"},
            {"name": "b", "flavor": "worker", "replicas": 1, "antiAffinity": "None"},
        ],
        "nodes": {"image": {"name": "image"}},
    });
    crate::render::merge(&mut spec, changes);
    serde_json::from_value(spec).unwrap()
}

fn release(version: &str) -> Release {
    Release { version: version.to_owned(), ..Release::default() }
}

/// A cluster that was declared a moment ago.
fn new() -> Observed {
    let kubernetes = vec![release("v1.33.4"), release("v1.34.0")];
    let account: CloudAccountSpec =
        serde_json::from_value(json!({"cloudsYaml": {"name": "s", "key": "clouds.yaml"}})).unwrap();
    Observed {
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        cluster: View {
            name: "prod".to_owned(),
            namespace: "team".to_owned(),
            uid: UID.to_owned(),
            generation: Some(1),
            held: true,
            spec: spec(&json!({})),
            ..View::default()
        },
        account: Some(account),
        cluster_api: true,
        cloud: Some(BTreeMap::from([("clouds.yaml".to_owned(), "Y2xvdWRz".to_owned())])),
        catalog: Catalog::of([ReleaseCatalogSpec { kubernetes, ..ReleaseCatalogSpec::default() }]),
        objects: BTreeMap::new(),
        identity: None,
        workload: Remote::Absent,
        server: None,
        registration: Registration::default(),
        addons: Vec::new(),
        openstack: None,
        workload_secret: None,
        inventories: Vec::new(),
        refusal: None,
    }
}

/// The world after the calls of a plan, as an API server and Cluster API would leave it.
fn obey(mut seen: Observed, plan: &Plan) -> Observed {
    seen.cluster.status = plan.status.clone();
    for action in &plan.actions {
        match action {
            Action::Hold => seen.cluster.held = true,
            Action::Apply(object) => put(&mut seen, object),
            Action::Delete(doomed) => {
                seen.objects.retain(|_, object| object["metadata"]["uid"] != doomed.uid.as_str());
                for slot in [
                    &mut seen.workload_secret,
                    &mut seen.registration.target,
                    &mut seen.registration.secret,
                    &mut seen.identity,
                ] {
                    if slot.as_ref().is_some_and(|object| object["metadata"]["uid"] == doomed.uid.as_str()) {
                        *slot = None;
                    }
                }
            }
            Action::Cordon(_) => seen.registration.cordoned = true,
            Action::Evict(pod) => seen.registration.pods.retain(|one| one != pod),
            Action::IssueToken => {
                seen.registration.secret = Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
                    "name": "prod-target-kubeconfig", "namespace": "team", "uid": "uid-secret",
                    "labels": {api::provisioning::OWNER_UID: UID},
                    "annotations": {super::registration::EXPIRES_KEY: "2026-01-02T00:00:00Z"},
                }}));
            }
            Action::ApplyInside(object) => {
                let place = crate::addons::place(&crate::addons::item(object));
                let mut object = object.clone();
                object["metadata"]["uid"] = json!(format!("inside-{}", place.name));
                for addon in &mut seen.addons {
                    if object["metadata"]["labels"][api::provisioning::ADDON] == addon.name.as_str() {
                        addon.live.insert(place.clone(), object.clone());
                    }
                }
            }
            Action::DeleteInside(item) => {
                for addon in &mut seen.addons {
                    addon.live.remove(&crate::addons::place(item));
                }
            }
            Action::IssueCredential { .. }
            | Action::DeleteCredential(_)
            | Action::CreateGroup(..)
            | Action::DeleteGroup(_) => in_cloud(&mut seen, action),
            Action::DeleteInventory(_) => seen.addons.retain(|addon| addon.wanted.is_some()),
            Action::Invite
            | Action::Release
            | Action::DeleteBalancer(_)
            | Action::DeleteClaim(_)
            | Action::RetainVolume(_) => {
                if let Remote::Present(workload) = &mut seen.workload {
                    inside(workload, action);
                }
            }
        }
    }
    seen
}

fn in_cloud(seen: &mut Observed, action: &Action) {
    let now = seen.now;
    let Some(Ok(facts)) = &mut seen.openstack else { panic!("a call to a cloud that was not asked") };
    match action {
        Action::IssueCredential { purpose, name, expires } => {
            let id = format!("id-{name}");
            facts.credentials.push(Credential { id: id.clone(), name: name.clone() });
            let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
                "name": purpose.secret(&seen.cluster), "namespace": "team", "uid": format!("uid-{name}"),
                "labels": {api::provisioning::OWNER_UID: UID},
                "annotations": {super::cloud::CREDENTIAL: id, super::cloud::ISSUED: now.to_string()},
            }});
            if let Some(expires) = expires {
                secret["metadata"]["annotations"][super::registration::EXPIRES_KEY] =
                    json!(expires.to_string());
            }
            match purpose {
                super::cloud::Purpose::Infrastructure => seen.identity = Some(secret),
                super::cloud::Purpose::Workload => seen.workload_secret = Some(secret),
            }
        }
        Action::DeleteCredential(id) => facts.credentials.retain(|one| one.id != *id),
        Action::CreateGroup(name, policy) => {
            facts.groups.push(Group { id: format!("id-{name}"), name: name.clone(), policy: policy.clone() });
        }
        Action::DeleteGroup(id) => facts.groups.retain(|one| one.id != *id),
        _other => {}
    }
}

fn inside(workload: &mut Workload, action: &Action) {
    match action {
        Action::Invite => {
            workload.invited = true;
            workload.account = true;
        }
        Action::DeleteBalancer(name) => workload.balancers.retain(|one| one != name),
        Action::DeleteClaim(name) => {
            workload.claims.retain(|one| one != name);
            workload.volumes.clear();
        }
        Action::RetainVolume(name) => workload.volumes.retain(|one| one != name),
        _other => {}
    }
}

fn put(seen: &mut Observed, object: &Value) {
    let key = super::key(object);
    let mut object = object.clone();
    object["metadata"]["uid"] = json!(format!("uid-{}-{}", key.0, key.1));
    match key.0.as_str() {
        "Secret" => seen.identity = Some(object),
        "AddonInventory" => {
            for addon in &mut seen.addons {
                if object["spec"]["addon"] == addon.name.as_str() {
                    addon.inventory = serde_json::from_value(object["spec"].clone()).unwrap();
                }
            }
        }
        "Target" | "ClusterTarget" => seen.registration.target = Some(object),
        _kind => {
            let old = seen.objects.get(&key).cloned().unwrap_or_default();
            object["status"] = old["status"].clone();
            seen.objects.insert(key, object);
        }
    }
}

fn all_good(seen: &mut Observed) {
    for ((kind, _), object) in &mut seen.objects {
        let count = object["spec"]["replicas"].clone();
        object["status"] = json!({"replicas": count, "readyReplicas": count, "upToDateReplicas": count});
        if kind == "Cluster" {
            object["status"] = json!({"conditions": [
                {"type": "InfrastructureReady", "status": "True"},
                {"type": "ControlPlaneAvailable", "status": "True"},
                {"type": "WorkersAvailable", "status": "True"},
            ]});
        }
    }
}

/// As [`new`], some rounds later: everything is there and nothing is left to do.
fn settled() -> Observed {
    let mut seen = new();
    for _ in 0..4 {
        let made = plan(&seen);
        seen = obey(seen, &made);
    }
    all_good(&mut seen);
    seen.workload = Remote::Present(Workload { uid: "w".to_owned(), is_target: true, ..Workload::default() });
    for _ in 0..6 {
        let made = plan(&seen);
        seen = obey(seen, &made);
        if let Some(target) = &mut seen.registration.target {
            target["status"] =
                json!({"virtualNode": "admiralty-prod", "conditions": [{"type": "Ready", "status": "True"}]});
        }
    }
    seen
}

fn condition<'a>(plan: &'a Plan, kind: &str) -> (&'a str, &'a str, &'a str) {
    let found = plan.status.conditions.iter().find(|one| one.type_ == kind).unwrap();
    (found.status.as_str(), found.reason.as_str(), found.message.as_str())
}

fn applied(plan: &Plan) -> Vec<String> {
    let shown = |action: &Action| match action {
        Action::Apply(object) => {
            let (kind, name) = super::key(object);
            Some(format!("{kind} {name}"))
        }
        _other => None,
    };
    plan.actions.iter().filter_map(shown).collect()
}

#[test]
fn nothing_is_made_before_the_finalizer_is_on() {
    let mut seen = new();
    seen.cluster.held = false;
    assert_eq!(plan(&seen).actions, [Action::Hold]);
}

#[test]
fn a_settled_cluster_is_not_written_to() {
    let seen = settled();
    let made = plan(&seen);
    assert_eq!(made.actions, [], "{:?}", made.actions);
    assert_eq!(made.status, seen.cluster.status);
    assert_eq!(condition(&made, "Ready").0, "True");
    assert_eq!(condition(&made, "TargetReady").0, "True");
    assert_eq!(made.recheck, super::RESYNC);
}

#[test]
fn what_is_missing_is_told_and_nothing_is_made() {
    #[track_caller]
    fn check(change: impl FnOnce(&mut Observed), stage: &str, reason: &str) {
        let mut seen = new();
        change(&mut seen);
        let made = plan(&seen);
        assert_eq!(condition(&made, stage).1, reason, "{:?}", made.status.conditions);
        assert_eq!(condition(&made, "Ready").0, "False");
        assert_eq!(made.actions, []);
    }
    check(|seen| seen.cluster_api = false, "PreflightPassed", "NoClusterApi");
    check(|seen| seen.account = None, "PreflightPassed", "CloudAccountNotFound");
    check(|seen| seen.cloud = None, "CredentialsReady", "SecretNotFound");
    check(|seen| seen.catalog = Catalog::default(), "PreflightPassed", "NoVersion");
    check(|seen| seen.cluster.spec.nodes.image.name = None, "PreflightPassed", "NoImage");
    check(
        |seen| seen.cluster.spec = spec(&json!({"controlPlane": {"apiAccess": {"mode": "InternalOnly"}}})),
        "PreflightPassed",
        "SpecInvalid",
    );
}

#[test]
fn case_116_an_object_of_our_name_that_is_somebody_elses_is_not_touched() {
    let mut seen = new();
    let key = ("Cluster".to_owned(), "prod".to_owned());
    let labels = json!({api::provisioning::OWNER_UID: "uid-2"});
    seen.objects.insert(key, json!({"kind": "Cluster", "metadata": {"name": "prod", "labels": labels}}));
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "PreflightPassed").1, "NameTaken");
}

#[test]
fn drift_is_put_back_and_only_drift() {
    let mut seen = settled();
    let key = ("MachineDeployment".to_owned(), "prod-a".to_owned());
    seen.objects.get_mut(&key).unwrap()["spec"]["replicas"] = json!(9);
    assert_eq!(applied(&plan(&seen)), ["MachineDeployment prod-a"]);
}

#[test]
fn a_field_that_is_not_ours_stays() {
    let mut seen = settled();
    let key = ("MachineDeployment".to_owned(), "prod-a".to_owned());
    seen.objects.get_mut(&key).unwrap()["metadata"]["annotations"]["somebody"] = json!("else");
    assert_eq!(plan(&seen).actions, []);
}

#[test]
fn a_field_that_is_no_longer_set_is_taken_back() {
    let mut seen = settled();
    seen.cluster.spec.node_pools[0].zone = Some("az1".to_owned());
    let made = plan(&seen);
    let mut seen = obey(seen, &made);
    all_good(&mut seen);
    seen.cluster.spec.node_pools[0].zone = None;
    assert_eq!(applied(&plan(&seen)), ["MachineDeployment prod-a"]);
}

/// Applies plans until a group is busy, and says in which order groups got another template.
#[test]
fn case_125_the_control_plane_is_replaced_first_and_then_pool_by_pool() {
    let mut seen = settled();
    seen.cluster.spec = spec(&json!({"kubernetes": {"version": "v1.34.x"}}));
    let first = plan(&seen);
    let groups = &first.status.plan.as_ref().unwrap().groups;
    assert_eq!(groups, &["control-plane", "a", "b"]);
    assert_eq!(first.status.plan.as_ref().unwrap().replaced_nodes, 4);
    let pools = |made: &Plan| -> Vec<String> {
        let versioned = |action: &Action| match action {
            Action::Apply(object) if object["spec"]["template"]["spec"]["version"] == "v1.34.0" => {
                Some(super::key(object).1)
            }
            _other => None,
        };
        made.actions.iter().filter_map(versioned).collect()
    };
    assert_eq!(pools(&first), Vec::<String>::new());
    let plane = ("KubeadmControlPlane".to_owned(), "prod-control-plane".to_owned());
    let mut seen = obey(seen, &first);
    assert_eq!(seen.objects[&plane]["spec"]["version"], "v1.34.0");
    seen.objects.get_mut(&plane).unwrap()["status"]["upToDateReplicas"] = json!(0);
    let waits = plan(&seen);
    assert_eq!(pools(&waits), Vec::<String>::new());
    assert_eq!(condition(&waits, "UpToDate").1, "RollingOut");
    let mut seen = obey(seen, &waits);
    all_good(&mut seen);
    let second = plan(&seen);
    assert_eq!(pools(&second), ["prod-a"]);
    let mut seen = obey(seen, &second);
    let pool = ("MachineDeployment".to_owned(), "prod-a".to_owned());
    seen.objects.get_mut(&pool).unwrap()["status"]["upToDateReplicas"] = json!(1);
    assert_eq!(pools(&plan(&seen)), Vec::<String>::new());
    all_good(&mut seen);
    assert_eq!(pools(&plan(&seen)), ["prod-b"]);
}

#[test]
fn a_paused_cluster_is_told_what_would_be_replaced_and_is_not_touched() {
    let mut seen = settled();
    seen.cluster.spec = spec(&json!({"paused": true, "kubernetes": {"version": "v1.34.x"}}));
    let made = plan(&seen);
    assert_eq!(applied(&made), ["Cluster prod"]);
    assert_eq!(made.status.plan.as_ref().unwrap().replaced_nodes, 4);
    let seen = obey(seen, &made);
    assert_eq!(plan(&seen).actions, []);
}

#[test]
fn case_122_the_words_of_the_cloud_reach_the_condition() {
    let mut seen = settled();
    let cluster = ("Cluster".to_owned(), "prod".to_owned());
    seen.objects.get_mut(&cluster).unwrap()["status"]["conditions"] = json!([
        {"type": "WorkersAvailable", "status": "False", "reason": "NotAvailable", "message": "0 of 2"},
    ]);
    let machine = json!({"kind": "OpenStackMachine", "metadata": {"name": "m"}, "status": {"conditions": [
        {"type": "InstanceReady", "status": "False", "severity": "Error", "message": "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores"},
    ]}});
    seen.objects.insert(("OpenStackMachine".to_owned(), "m".to_owned()), machine);
    let made = plan(&seen);
    let (status, reason, message) = condition(&made, "WorkersReady");
    assert_eq!((status, reason), ("False", "NotAvailable"));
    assert!(message.contains("0 of 2") && message.contains("Quota exceeded for cores"), "{message}");
    assert!(condition(&made, "Ready").2.contains("Quota exceeded for cores"));
}

#[test]
fn a_cluster_in_trouble_stays_a_target() {
    let mut seen = settled();
    seen.workload = Remote::Unknown;
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "ControlPlaneReady").1, "Unreachable");
    assert_eq!(condition(&made, "TargetReady").0, "Unknown");
}

#[test]
fn case_127_a_token_is_renewed_before_half_of_its_life_is_over() {
    let mut seen = settled();
    seen.now = "2026-01-01T11:59:00Z".parse().unwrap();
    assert_eq!(plan(&seen).actions, []);
    seen.now = "2026-01-01T12:01:00Z".parse().unwrap();
    assert_eq!(plan(&seen).actions, [Action::IssueToken]);
}

#[test]
fn a_cluster_without_the_components_of_a_target_is_none() {
    let mut seen = settled();
    seen.registration = Registration::default();
    seen.workload = Remote::Present(Workload::default());
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "TargetReady").1, "NoAgent");
}

#[test]
fn gates_keep_a_cluster_from_becoming_a_target() {
    let mut seen = settled();
    seen.registration = Registration::default();
    seen.cluster.spec = spec(&json!({"target": {"readyGates": ["Checked"]}}));
    assert_eq!(condition(&plan(&seen), "TargetReady").1, "GateFailed");
}

#[test]
fn what_an_api_server_refuses_is_said() {
    let seen = Observed { refusal: Some("cannot apply: no".to_owned()), ..settled() };
    assert_eq!(condition(&plan(&seen), "Ready"), ("False", "Refused", "cannot apply: no"));
}

fn deleting() -> Observed {
    let mut seen = settled();
    seen.cluster.deleting = true;
    seen.registration.pods = vec!["team/one".to_owned()];
    if let Remote::Present(workload) = &mut seen.workload {
        workload.balancers = vec!["web/front".to_owned()];
    }
    seen
}

/// The steps of a deletion, with what each does first.
fn steps(mut seen: Observed) -> Vec<(String, Vec<Action>)> {
    let mut steps: Vec<(String, Vec<Action>)> = Vec::new();
    for _ in 0..40 {
        let made = plan(&seen);
        let step = made.status.deletion.as_ref().map(|one| one.step.clone()).unwrap_or_default();
        if steps.last().is_none_or(|(last, _)| *last != step) {
            steps.push((step, Vec::new()));
        }
        steps.last_mut().unwrap().1.extend(made.actions.iter().cloned());
        if made.actions == [Action::Release] {
            return steps;
        }
        seen = obey(seen, &made);
    }
    panic!("it does not end: {steps:?}")
}

#[test]
fn case_119_case_121_a_deletion_ends_in_its_order() {
    let steps = steps(deleting());
    let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Drain", "Unregister", "CleanUp", "Infrastructure", "Credentials"]);
    assert_eq!(
        steps[0].1,
        [Action::Cordon("admiralty-prod".to_owned()), Action::Evict("team/one".to_owned())]
    );
    assert_eq!(steps[2].1, [Action::DeleteBalancer("web/front".to_owned())]);
    let deleted = |step: usize| -> Vec<String> {
        let doomed = |action: &Action| match action {
            Action::Delete(doomed) => Some(doomed.kind.clone()),
            _other => None,
        };
        steps[step].1.iter().filter_map(doomed).collect()
    };
    assert_eq!(deleted(1), ["Target", "Secret"]);
    assert_eq!(deleted(3)[0], "Cluster");
    assert_eq!(deleted(4), ["Secret"]);
}

#[test]
fn a_protected_cluster_is_not_deleted() {
    let mut seen = deleting();
    seen.cluster.spec = spec(&json!({"deletion": {"protected": true}}));
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "DeletionBlocked").1, "Protected");
}

/// A deletion that has come to the workload cluster.
fn cleaning(volumes: &str) -> Observed {
    let mut seen = deleting();
    seen.cluster.spec = spec(&json!({"deletion": {"volumes": volumes}}));
    seen.registration = Registration::default();
    if let Remote::Present(workload) = &mut seen.workload {
        workload.balancers = vec![];
        workload.claims = vec!["web/data".to_owned()];
        workload.volumes = vec!["pv-1".to_owned()];
    }
    seen
}

#[test]
fn volumes_block_go_or_stay_as_the_user_says() {
    let made = plan(&cleaning("Block"));
    assert_eq!(made.actions, []);
    assert!(condition(&made, "DeletionBlocked").2.contains("web/data"));
    assert_eq!(plan(&cleaning("Delete")).actions, [Action::DeleteClaim("web/data".to_owned())]);
    assert_eq!(plan(&cleaning("Retain")).actions, [Action::RetainVolume("pv-1".to_owned())]);
}

#[test]
fn a_step_that_somebody_abandons_is_skipped_and_remembered() {
    let mut seen = cleaning("Block");
    seen.cluster.abandon = Some("CleanUp".to_owned());
    let made = plan(&seen);
    let deletion = made.status.deletion.clone().unwrap();
    assert_eq!(
        (deletion.step.as_str(), deletion.abandoned.as_slice()),
        ("Infrastructure", &["CleanUp".to_owned()][..])
    );
    let mut seen = obey(seen, &made);
    seen.cluster.abandon = None;
    assert_eq!(plan(&seen).status.deletion.unwrap().abandoned, ["CleanUp"]);
}

#[test]
fn case_119_a_silent_workload_cluster_is_waited_for_and_then_deleted() {
    let mut seen = cleaning("Block");
    seen.workload = Remote::Unknown;
    let made = plan(&seen);
    assert_eq!(made.status.deletion.as_ref().unwrap().step, "CleanUp");
    let mut seen = obey(seen, &made);
    seen.now = "2026-01-01T00:06:00Z".parse().unwrap();
    assert_eq!(plan(&seen).status.deletion.unwrap().step, "Infrastructure");
}

#[test]
fn a_drain_ends_when_its_time_is_over() {
    let mut seen = deleting();
    seen.cluster.spec = spec(&json!({"target": {"drainTimeoutSeconds": 60}}));
    seen.registration.cordoned = true;
    let made = plan(&seen);
    assert_eq!(made.status.deletion.as_ref().unwrap().blockers, ["Pod team/one"]);
    seen.cluster.status = made.status;
    seen.now = "2026-01-01T00:02:00Z".parse().unwrap();
    assert_eq!(plan(&seen).status.deletion.unwrap().step, "Unregister");
}

#[test]
fn case_116_a_deletion_touches_nothing_of_another_cluster() {
    let mut seen = deleting();
    let labels = json!({api::provisioning::OWNER_UID: "uid-2"});
    let other = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": "other", "namespace": "team", "uid": "uid-other", "labels": labels}});
    seen.objects.insert(("MachineDeployment".to_owned(), "other".to_owned()), other);
    let all: Vec<Action> = steps(seen).into_iter().flat_map(|(_, actions)| actions).collect();
    let touched = |action: &Action| matches!(action, Action::Delete(doomed) if doomed.uid == "uid-other");
    assert!(!all.iter().any(touched));
}

fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "web",
        "labels": {api::provisioning::ADDON: "flux"}}, "data": {"a": "b"}})
}

/// As [`settled`], with an add-on of these objects that has just been switched on.
fn with_addon(objects: Vec<Value>) -> Observed {
    let content = Content { version: "v2.0.0".to_owned(), objects };
    let addon = Addon {
        name: AddonName::Flux,
        wanted: Some(Ok(content)),
        inventory: None,
        live: BTreeMap::new(),
        unchanged: BTreeSet::new(),
    };
    Observed { addons: vec![addon], ..settled() }
}

/// As [`with_addon`], some rounds later.
fn with_old_addon(objects: Vec<Value>) -> Observed {
    let mut seen = with_addon(objects);
    for _ in 0..4 {
        let made = plan(&seen);
        seen = obey(seen, &made);
    }
    seen
}

fn names_of(actions: &[Action]) -> Vec<String> {
    let shown = |action: &Action| match action {
        Action::Apply(object) => super::key(object).0,
        Action::ApplyInside(object) => format!("+{}", super::key(object).1),
        Action::DeleteInside(item) => format!("-{}", item.name),
        Action::DeleteInventory(name) => format!("-{name}"),
        other => format!("{other:?}"),
    };
    actions.iter().map(shown).collect()
}

#[test]
fn an_add_on_is_remembered_before_it_is_made() {
    let mut seen = with_addon(vec![object("ConfigMap", "one"), object("ConfigMap", "two")]);
    let first = plan(&seen);
    assert_eq!(names_of(&first.actions), ["AddonInventory", "+one", "+two"]);
    assert_eq!(condition(&first, "AddonsReady").1, "Applying");
    seen = obey(seen, &first);
    let second = plan(&seen);
    assert_eq!(names_of(&second.actions), ["AddonInventory"]);
    seen = obey(seen, &second);
    let inventory = seen.addons[0].inventory.clone().unwrap();
    assert_eq!(inventory.items[1].uid.as_deref(), Some("inside-two"));
    let third = plan(&seen);
    assert_eq!(third.actions, []);
    assert_eq!(condition(&third, "AddonsReady").0, "True");
    assert_eq!(third.status.addons["flux"].version, "v2.0.0");
}

#[test]
fn an_object_of_an_add_on_that_somebody_changed_or_deleted_is_put_back() {
    let one = || with_old_addon(vec![object("ConfigMap", "one"), object("ConfigMap", "two")]);
    let mut seen = one();
    for live in seen.addons[0].live.values_mut().filter(|live| live["metadata"]["name"] == "one") {
        live["data"]["a"] = json!("c");
    }
    assert_eq!(names_of(&plan(&seen).actions), ["+one"]);
    for live in seen.addons[0].live.values_mut() {
        live["metadata"]["annotations"][api::provisioning::DRIFT] = json!("Ignore");
    }
    assert_eq!(names_of(&plan(&seen).actions), Vec::<String>::new());
    let mut seen = one();
    seen.addons[0].live.retain(|place, _| place.name != "two");
    assert_eq!(names_of(&plan(&seen).actions)[0], "+two");
}

#[test]
fn what_an_add_on_no_longer_has_is_removed_in_reverse() {
    let mut seen = with_old_addon(vec![
        object("ConfigMap", "one"),
        object("ConfigMap", "two"),
        object("ConfigMap", "three"),
    ]);
    let Some(Ok(content)) = &mut seen.addons[0].wanted else { panic!("not wanted") };
    content.objects.truncate(1);
    let made = plan(&seen);
    assert_eq!(names_of(&made.actions)[..2], ["-three", "-two"]);
    let seen = obey(seen, &made);
    let made = plan(&seen);
    let seen = obey(seen, &made);
    assert_eq!(plan(&seen).actions, []);
    assert_eq!(seen.addons[0].inventory.as_ref().unwrap().items.len(), 1);
}

#[test]
fn an_add_on_that_is_switched_off_goes_and_its_inventory_last() {
    let mut seen = with_old_addon(vec![object("ConfigMap", "one")]);
    seen.addons[0].wanted = None;
    let made = plan(&seen);
    assert_eq!(names_of(&made.actions), ["-one"]);
    let seen = obey(seen, &made);
    let made = plan(&seen);
    assert_eq!(names_of(&made.actions), ["-prod-flux"]);
    assert!(!made.status.addons.contains_key("flux"));
}

#[test]
fn an_object_that_somebody_made_again_is_not_removed() {
    let mut seen = with_old_addon(vec![object("ConfigMap", "one")]);
    seen.addons[0].wanted = None;
    for live in seen.addons[0].live.values_mut() {
        live["metadata"]["uid"] = json!("another");
    }
    assert_eq!(names_of(&plan(&seen).actions), ["-prod-flux"]);
}

#[test]
fn what_takes_more_with_it_waits_for_a_person() {
    let mut seen = with_old_addon(vec![object("CustomResourceDefinition", "one")]);
    seen.addons[0].wanted = None;
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "AddonsReady").1, "PruneBlocked");
    seen.cluster.confirmed = vec!["flux".to_owned()];
    assert_eq!(names_of(&plan(&seen).actions), ["-one"]);
}

#[test]
fn an_orphaned_add_on_is_forgotten_and_stays() {
    let mut seen = with_old_addon(vec![object("ConfigMap", "one")]);
    seen.cluster.spec = spec(&json!({"addons": {"removal": "Orphan"}}));
    seen.addons[0].wanted = None;
    let actions = names_of(&plan(&seen).actions);
    assert!(
        actions.contains(&"-prod-flux".to_owned()) && !actions.contains(&"-one".to_owned()),
        "{actions:?}"
    );
}

#[test]
fn a_job_that_changed_is_made_anew() {
    let mut seen = with_old_addon(vec![object("Job", "one")]);
    let Some(Ok(content)) = &mut seen.addons[0].wanted else { panic!("not wanted") };
    content.objects[0]["data"]["a"] = json!("c");
    let made = plan(&seen);
    assert_eq!(names_of(&made.actions), ["-one"]);
    assert_eq!(names_of(&plan(&obey(seen, &made)).actions)[0], "+one");
}

#[test]
fn one_add_on_without_content_does_not_stop_the_others() {
    let mut seen = with_addon(vec![object("ConfigMap", "one")]);
    let lost = Addon {
        name: AddonName::Cilium,
        wanted: Some(Err("no catalogue has it".to_owned())),
        inventory: None,
        live: BTreeMap::new(),
        unchanged: BTreeSet::new(),
    };
    seen.addons.insert(0, lost);
    let made = plan(&seen);
    assert_eq!(names_of(&made.actions), ["AddonInventory", "+one"]);
    let (_, reason, message) = condition(&made, "AddonsReady");
    assert_eq!(reason, "Failed");
    assert!(message.contains("cilium: no catalogue has it"), "{message}");
}

/// As [`new`], with credentials of its own and server groups, in a cloud where others have things too.
fn in_a_cloud() -> Observed {
    let mut seen = new();
    seen.cluster.spec = spec(&json!({
        "credentials": {"mode": "PerCluster"},
        "controlPlane": {"antiAffinity": "Hard"},
        "nodePools": [{"name": "a", "flavor": "worker", "replicas": 2}],
    }));
    let facts = super::cloud::Facts {
        project: "project".to_owned(),
        credentials: vec![Credential {
            id: "other".to_owned(),
            name: "prod-uid2-infrastructure-1".to_owned(),
        }],
        groups: vec![Group {
            id: "other".to_owned(),
            name: "prod-control-plane".to_owned(),
            policy: "affinity".to_owned(),
        }],
    };
    seen.openstack = Some(Ok(facts));
    seen
}

/// Rounds until everything in the cloud is there.
fn made_in_a_cloud() -> Observed {
    let mut seen = in_a_cloud();
    for _ in 0..5 {
        let made = plan(&seen);
        seen = obey(seen, &made);
    }
    seen
}

fn facts(seen: &Observed) -> super::cloud::Facts {
    seen.openstack.clone().unwrap().unwrap()
}

#[test]
fn server_groups_are_made_before_machines_and_found_by_their_whole_name() {
    let first = plan(&in_a_cloud());
    assert_eq!(
        first.actions,
        [
            Action::CreateGroup(
                "prod-uid1-control-plane-anti-affinity".to_owned(),
                "anti-affinity".to_owned()
            ),
            Action::CreateGroup("prod-uid1-a-soft-anti-affinity".to_owned(), "soft-anti-affinity".to_owned()),
        ]
    );
    assert_eq!(condition(&first, "ServerGroupsReady").1, "Creating");
    let seen = made_in_a_cloud();
    let machines = seen.objects.values().find(|object| object["kind"] == "OpenStackMachineTemplate").unwrap();
    let id = &machines["spec"]["template"]["spec"]["serverGroup"]["id"];
    assert!(id.as_str().unwrap().starts_with("id-prod-uid1-"), "{id}");
    assert_eq!(facts(&seen).groups.len(), 3);
}

#[test]
fn a_cluster_gets_two_credentials_and_cluster_api_only_one_of_them() {
    let seen = made_in_a_cloud();
    let names: Vec<String> = facts(&seen).credentials.into_iter().map(|one| one.name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(seen.cluster.status.openstack.as_ref().unwrap().application_credentials.len(), 2);
    assert_ne!(seen.identity, seen.workload_secret);
    assert_eq!(condition(&plan(&seen), "CredentialsReady").0, "True");
}

#[test]
fn a_credential_is_replaced_before_it_ends_and_the_old_one_goes_after_a_while() {
    let mut seen = made_in_a_cloud();
    seen.now = "2026-03-15T00:00:00Z".parse().unwrap();
    assert!(!plan(&seen).actions.iter().any(|action| matches!(action, Action::IssueCredential { .. })));
    seen.now = "2026-03-20T00:00:00Z".parse().unwrap();
    let renews = plan(&seen);
    let issues =
        |made: &Plan| made.actions.iter().filter(|one| matches!(one, Action::IssueCredential { .. })).count();
    assert_eq!(issues(&renews), 2);
    let mut seen = obey(seen, &renews);
    let deletes =
        |made: &Plan| made.actions.iter().filter(|one| matches!(one, Action::DeleteCredential(_))).count();
    assert_eq!((issues(&plan(&seen)), deletes(&plan(&seen))), (0, 0));
    seen.now = "2026-03-20T00:11:00Z".parse().unwrap();
    let retires = plan(&seen);
    assert_eq!(deletes(&retires), 2);
    assert!(!retires.actions.contains(&Action::DeleteCredential("other".to_owned())));
}

#[test]
fn a_cloud_that_does_not_answer_has_deleted_nothing() {
    let mut seen = made_in_a_cloud();
    seen.openstack = Some(Err("the cloud does not answer".to_owned()));
    let made = plan(&seen);
    assert_eq!(made.actions, []);
    assert_eq!(condition(&made, "ServerGroupsReady").0, "True");
    assert_eq!(condition(&made, "CredentialsReady"), ("False", "CloudRefused", "the cloud does not answer"));
}

#[test]
fn case_121_credentials_go_last_and_others_stay() {
    let mut seen = made_in_a_cloud();
    seen.cluster.deleting = true;
    let all = steps(seen.clone());
    assert_eq!(all.last().unwrap().0, "Credentials");
    let last = &all.last().unwrap().1;
    let kinds: Vec<&str> = last
        .iter()
        .map(|action| match action {
            Action::DeleteGroup(_) => "group",
            Action::DeleteCredential(_) => "credential",
            Action::Delete(_) => "secret",
            Action::Release => "release",
            _other => "other",
        })
        .collect();
    assert_eq!(kinds, ["group", "group", "credential", "credential", "secret", "secret", "release"]);
    for action in last {
        assert!(!matches!(action, Action::DeleteGroup(id) | Action::DeleteCredential(id) if id == "other"));
    }
    seen.openstack = Some(Err("the cloud answers 401".to_owned()));
    seen.objects.clear();
    let made = plan(&seen);
    assert_eq!(made.status.deletion.unwrap().blockers, ["the cloud answers 401"]);
}
