//! Pods whose claims and volumes are bound before they are.

use scheduling::VolumeWrite;
use scheduling::config::Config;
use scheduling::volumes::{Claim, PersistentVolume, StorageClass};

use super::*;
use crate::observe::{Read, StorageSeen};

/// What the API server holds, and the controllers that look after it.
#[derive(Clone)]
struct Cluster {
    version: u64,
    /// Claims and volumes, each by its name.
    claims: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    pod: Value,
    bound: Option<String>,
}

const NODES: [&str; 2] = ["n1", "n2"];

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}}},
    })
}

/// A volume of class `local` that only `node` can reach.
fn volume(name: &str, node: &str, size: &str) -> Value {
    let here = json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]);
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": here}}},
        "status": {"phase": "Available"},
    })
}

fn user(name: &str, scheduler: &str, claims: &[&str]) -> Value {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{name}"), "resourceVersion": "1"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "a"}], "volumes": volumes},
    })
}

impl Cluster {
    /// A pod that needs a volume of `n2` for `kept` and one to be made for `new`.
    fn new() -> Self {
        let claims = [claim("kept", "local", "5Gi"), claim("new", "made", "5Gi")];
        let by_name =
            |object: Value| (object["metadata"]["name"].as_str().unwrap_or_default().to_owned(), object);
        Self {
            version: 10,
            claims: claims.into_iter().map(by_name).collect(),
            volumes: [volume("disk", "n2", "8Gi")].into_iter().map(by_name).collect(),
            pod: user("a", "default-scheduler", &["kept", "new"]),
            bound: None,
        }
    }

    fn claim(&self, name: &str) -> Seen {
        Seen::Storage(StorageSeen::Claim(Change::Is(read_claim(&self.claims[name]))))
    }

    fn volume(&self, name: &str) -> Seen {
        Seen::Storage(StorageSeen::Volume(Change::Is(read_volume(&self.volumes[name]))))
    }

    fn pod(&self) -> PodSeen {
        let mut pod = self.pod.clone();
        if let Some(node) = &self.bound {
            pod["spec"]["nodeName"] = json!(node);
        }
        PodSeen::read(&serde_json::from_value(pod).expect("a pod"))
    }

    /// A scheduler that starts now.
    fn scheduler(&self) -> Bench {
        let mut bench = self.blind();
        for seen in self.listed() {
            bench.see(Seen::Storage(seen));
        }
        bench
    }

    /// The same before it has seen storage.
    fn blind(&self) -> Bench {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 20}},
            ]}],
        });
        let config = Config::parse(&config).expect("a configuration");
        let settings = Settings { config, storage: true, chaperons: false, ..Settings::default() };
        let mut bench = Bench { model: Model::new(settings), now: 100_000, version: 100, open: Vec::new() };
        let host = |name: &&str| {
            let NodeSeen::Usable(mut info) = node(name, json!({})) else { panic!("a node") };
            info.labels.insert("host", name);
            NodeSeen::Usable(info)
        };
        bench.see(Seen::Node(Change::All(NODES.iter().map(host).collect())));
        bench.see(Seen::Pod(Change::All(vec![self.pod()])));
        bench.see(Seen::Budget(Change::All(vec![])));
        bench
    }

    fn listed(&self) -> Vec<StorageSeen> {
        let class = |name: &str, provisioner: &str| {
            let raw = json!({"metadata": {"name": name}, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer"});
            (Name::new("", name), StorageClass::parse(&raw).ok())
        };
        vec![
            StorageSeen::Claim(Change::All(self.claims.values().map(read_claim).collect())),
            StorageSeen::Volume(Change::All(self.volumes.values().map(read_volume).collect())),
            StorageSeen::Class(Change::All(vec![
                class("local", "kubernetes.io/no-provisioner"),
                class("made", "a.csi"),
            ])),
            StorageSeen::CsiNode(Change::All(vec![])),
            StorageSeen::CsiDriver(Change::All(vec![])),
            StorageSeen::Capacity(Change::All(vec![])),
            StorageSeen::Attachment(Change::All(vec![])),
        ]
    }

    /// What the API server does with a call.
    fn carry_out(&mut self, action: &Action) -> Outcome {
        match action {
            Action::BindStorage { write: VolumeWrite::Volume { name, patch }, .. } => {
                self.version += 1;
                patched(self.volumes.get_mut(&**name), patch, self.version)
            }
            Action::BindStorage { write: VolumeWrite::Claim { name, patch, .. }, .. } => {
                self.version += 1;
                patched(self.claims.get_mut(&**name), patch, self.version)
            }
            Action::Bind { node, .. } if self.bound.is_none() => {
                self.bound = Some(node.to_string());
                Outcome::Done { version: None }
            }
            Action::Bind { .. } => Outcome::Conflict,
            _ => Outcome::Done { version: None },
        }
    }

    /// What the volume controller and the provisioner do by and by.
    fn controllers(&mut self) {
        for (name, claim) in &mut self.claims {
            let selected = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].clone();
            let kept =
                self.volumes.values().find(|volume| volume["spec"]["claimRef"]["name"] == name.as_str());
            let volume = match (kept, selected.as_str()) {
                (Some(volume), _) => volume["metadata"]["name"].clone(),
                (None, Some(node)) => {
                    let made = format!("made-for-{name}");
                    let mut made_volume = volume(&made, node, "5Gi");
                    made_volume["spec"]["claimRef"] =
                        json!({"namespace": "shop", "name": name, "uid": format!("uid-{name}")});
                    self.volumes.insert(made.clone(), made_volume);
                    json!(made)
                }
                (None, None) => continue,
            };
            if claim["spec"]["volumeName"].is_null() {
                self.version += 1;
                claim["spec"]["volumeName"] = volume;
                claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
                claim["metadata"]["resourceVersion"] = json!(self.version.to_string());
            }
        }
    }

    /// Everything, as the watches bring it.
    fn show(&self, bench: &mut Bench) {
        for name in self.volumes.keys() {
            bench.see(self.volume(name));
        }
        for name in self.claims.keys() {
            bench.see(self.claim(name));
        }
    }
}

fn read_claim(raw: &Value) -> Read<Claim> {
    (Name::new("shop", raw["metadata"]["name"].as_str().unwrap_or_default()), Claim::parse(raw).ok())
}

fn read_volume(raw: &Value) -> Read<PersistentVolume> {
    (Name::new("", raw["metadata"]["name"].as_str().unwrap_or_default()), PersistentVolume::parse(raw).ok())
}

/// A merge patch, which has to name the object and the version that it is about.
fn patched(object: Option<&mut Value>, patch: &Value, version: u64) -> Outcome {
    let Some(object) = object else { return Outcome::NotFound };
    let (wanted, there) = (&patch["metadata"], &object["metadata"]);
    assert!(wanted["uid"].is_string() && wanted["resourceVersion"].is_string(), "{patch}");
    if wanted["uid"] != there["uid"] || wanted["resourceVersion"] != there["resourceVersion"] {
        return Outcome::Conflict;
    }
    merge(object, patch);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    Outcome::Done { version: Some(Arc::from(version.to_string())) }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in fields {
        merge(&mut into[key], value);
    }
}

/// What is written next, in few words.
fn brief(actions: &[Action]) -> Vec<String> {
    let one = |action: &Action| match action {
        Action::BindStorage { write: VolumeWrite::Volume { name, .. }, .. } => format!("volume {name}"),
        Action::BindStorage { write: VolumeWrite::Claim { name, .. }, .. } => format!("claim {name}"),
        Action::Bind { node, .. } => format!("bind {node}"),
        Action::RefusePod { reason, .. } => (*reason).to_owned(),
        Action::Tell(story) => story.end.clone().map_or_else(|text| text, |node| format!("told {node}")),
        other => panic!("{other:?}"),
    };
    actions.iter().map(one).collect()
}

#[track_caller]
fn check_wants(bench: &mut Bench, want: &[&str]) -> Vec<Action> {
    let wanted = bench.wants();
    assert_eq!(brief(&wanted), want);
    wanted
}

#[test]
fn claims_and_volumes_are_bound_one_after_the_other_and_then_the_pod() {
    let mut cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    for want in ["volume disk", "claim new"] {
        let wanted = check_wants(&mut bench, &[want]);
        let outcome = cluster.carry_out(&wanted[0]);
        bench.end(&wanted[0], outcome);
    }
    check_wants(&mut bench, &[]);
    assert_eq!(bench.model.next_wakeup(), Some(bench.now + 20_000));
    // Our own writes alone are not enough.
    cluster.show(&mut bench);
    check_wants(&mut bench, &[]);
    cluster.controllers();
    cluster.show(&mut bench);
    let wanted = check_wants(&mut bench, &["bind n2"]);
    let outcome = cluster.carry_out(&wanted[0]);
    bench.end(&wanted[0], outcome);
    check_wants(&mut bench, &["told n2"]);
    assert!(bench.model.bindings.is_empty());
}

/// Runs until nothing is left to do. Time passes only when nothing else can happen.
fn run(cluster: &mut Cluster, bench: &mut Bench) {
    for _ in 0..50 {
        let wanted = bench.wants();
        for action in &wanted {
            let outcome = cluster.carry_out(action);
            bench.end(action, outcome);
        }
        cluster.controllers();
        cluster.show(bench);
        match bench.model.next_wakeup() {
            _ if !wanted.is_empty() => {}
            Some(time) if cluster.bound.is_none() => bench.now = bench.now.max(time),
            Some(_) | None => break,
        }
    }
}

/// The process dies when it has done `calls` calls, of which the last was not heard of, and another one takes over.
#[track_caller]
fn check_crash(calls: usize, controllers: bool) {
    let mut cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    let mut done = 0;
    while done < calls {
        let wanted = bench.wants();
        assert!(!wanted.is_empty() || done == 2, "stuck after {done}");
        for action in wanted {
            let outcome = cluster.carry_out(&action);
            done += 1;
            if done < calls {
                bench.end(&action, outcome);
            }
        }
        if done == 2 {
            cluster.controllers();
            cluster.show(&mut bench);
        }
    }
    if controllers {
        cluster.controllers();
    }
    let mut successor = cluster.scheduler();
    run(&mut cluster, &mut successor);
    assert_eq!(cluster.bound.as_deref(), Some("n2"), "after {calls} calls");
    assert!(cluster.volumes.len() <= 2, "storage was made twice: {:?}", cluster.volumes.keys());
    assert!(successor.model.bindings.is_empty());
}

#[test]
fn a_crash_between_any_two_writes_costs_neither_the_pod_nor_its_storage() {
    for calls in 0..=3 {
        check_crash(calls, false);
        check_crash(calls, true);
    }
}

#[test]
fn an_answer_that_got_lost_is_found_out_and_the_write_is_not_made_twice() {
    let mut cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    let wanted = check_wants(&mut bench, &["volume disk"]);
    cluster.carry_out(&wanted[0]);
    bench.end(&wanted[0], Outcome::Unknown);
    cluster.show(&mut bench);
    bench.now += RETRY_MS;
    let again = check_wants(&mut bench, &["volume disk"]);
    assert_eq!(cluster.carry_out(&again[0]), Outcome::Conflict);
    bench.end(&again[0], Outcome::Conflict);
    let text = "running PreBind plugin \"VolumeBinding\": the claim or volume has been modified";
    let said = check_wants(&mut bench, &[text, "SchedulerError"]);
    said.iter().for_each(|action| bench.done(action));
    bench.now += 2000;
    check_wants(&mut bench, &["claim new"]);
}

#[test]
fn a_write_that_lost_a_race_is_decided_anew_after_a_pause() {
    let mut cluster = Cluster::new();
    cluster.volumes.insert("spare".to_owned(), volume("spare", "n2", "9Gi"));
    let mut bench = cluster.scheduler();
    let wanted = check_wants(&mut bench, &["volume disk"]);
    let taken =
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"claimRef": {"name": "x", "uid": "x"}}});
    merge(cluster.volumes.get_mut("disk").expect("a volume"), &taken);
    bench.end(&wanted[0], Outcome::Conflict);
    cluster.show(&mut bench);
    assert_eq!(bench.wants().len(), 2);
    bench.now += 999;
    check_wants(&mut bench, &[]);
    bench.now += 1001;
    check_wants(&mut bench, &["volume spare"]);
}

/// All is written, and the controllers have not done anything yet.
fn written() -> (Cluster, Bench) {
    let mut cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    for _ in 0..2 {
        let wanted = bench.wants();
        let outcome = cluster.carry_out(&wanted[0]);
        bench.end(&wanted[0], outcome);
    }
    cluster.show(&mut bench);
    check_wants(&mut bench, &[]);
    (cluster, bench)
}

#[test]
fn controllers_have_as_long_as_the_configuration_says() {
    let (_, mut bench) = written();
    bench.now += 19_999;
    check_wants(&mut bench, &[]);
    bench.now += 1;
    let text = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    check_wants(&mut bench, &[text, "SchedulerError"]);
    assert_eq!(bench.model.snapshot.place_of("pod-a"), None);
    // What was written still stands, and the next try goes on from there.
    bench.now += 2000;
    check_wants(&mut bench, &[]);
    assert_eq!(bench.model.snapshot.place_of("pod-a").map(|node| &**node), Some("n2"));
}

#[test]
fn a_provisioner_that_gives_up_gives_another_try() {
    let (mut cluster, mut bench) = written();
    cluster.controllers();
    let claim = cluster.claims.get_mut("new").expect("a claim");
    claim["spec"]["volumeName"] = Value::Null;
    claim["metadata"]["annotations"] = json!({});
    claim["metadata"]["resourceVersion"] = json!("99");
    cluster.volumes.remove("made-for-new");
    cluster.show(&mut bench);
    let text =
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"new\"";
    check_wants(&mut bench, &[text, "SchedulerError"]);
    bench.now += 2000;
    check_wants(&mut bench, &["claim new"]);
}

#[test]
fn a_pod_that_is_deleted_meanwhile_gets_no_storage_any_more() {
    let cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    let wanted = check_wants(&mut bench, &["volume disk"]);
    bench.see(Seen::Pod(Change::Gone(Name::new("shop", "a"))));
    bench.done(&wanted[0]);
    check_wants(&mut bench, &[]);
    assert!(bench.model.bindings.is_empty());
    // Another pod may have what was not written.
    let other = user("b", "default-scheduler", &["kept"]);
    bench.pod(PodSeen::read(&serde_json::from_value(other).expect("a pod")));
    check_wants(&mut bench, &["volume disk"]);
}

#[test]
fn a_node_that_vanishes_meanwhile_is_not_bound_to() {
    let (mut cluster, mut bench) = written();
    bench.see(Seen::Node(Change::Gone(Arc::from("n2"))));
    let text = "running PreBind plugin \"VolumeBinding\": binding volumes: failed to get node \"n2\"";
    check_wants(&mut bench, &[text, "SchedulerError"]);
    cluster.controllers();
    cluster.show(&mut bench);
    check_wants(&mut bench, &[]);
}

#[test]
fn a_pod_waits_for_its_claim_and_is_tried_when_it_appears() {
    let mut cluster = Cluster::new();
    let kept = cluster.claims.remove("kept").expect("a claim");
    let mut bench = cluster.scheduler();
    let text = "0/2 nodes are available: persistentvolumeclaim \"kept\" not found. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    let said = check_wants(&mut bench, &[text, "Unschedulable"]);
    said.iter().for_each(|action| bench.done(action));
    cluster.claims.insert("kept".to_owned(), kept);
    bench.now += 2000;
    bench.see(cluster.claim("kept"));
    check_wants(&mut bench, &["volume disk"]);
}

#[test]
fn nothing_is_decided_before_all_storage_was_seen() {
    let cluster = Cluster::new();
    let mut bench = cluster.blind();
    for seen in cluster.listed() {
        check_wants(&mut bench, &[]);
        bench.see(Seen::Storage(seen));
    }
    check_wants(&mut bench, &["volume disk"]);
}

#[test]
fn what_a_new_list_does_not_name_is_gone() {
    let cluster = Cluster::new();
    let mut bench = cluster.blind();
    for seen in cluster.listed() {
        bench.see(Seen::Storage(seen));
    }
    bench.see(Seen::Storage(StorageSeen::Volume(Change::All(vec![]))));
    bench.see(Seen::Storage(StorageSeen::Class(Change::Gone(Name::new("", "made")))));
    assert_eq!(bench.model.snapshot.volumes().volumes().count(), 0);
    assert_eq!(bench.model.snapshot.volumes().classes().count(), 1);
}

#[test]
fn w30_the_storage_of_a_delegate_is_bound_like_that_of_any_pod() {
    let cluster = Cluster::new();
    let mut bench = cluster.scheduler();
    bench.see(Seen::Pod(Change::Gone(Name::new("shop", "a"))));
    let delegate = user("d", "admiralty-candidate", &["kept"]);
    bench.pod(PodSeen::read(&serde_json::from_value(delegate).expect("a pod")));
    let wanted = bench.wants();
    let [Action::BindStorage { write: VolumeWrite::Volume { name, .. }, .. }] = wanted.as_slice() else {
        panic!("{wanted:?}")
    };
    assert_eq!(&**name, "disk");
}
