//! The model against a cluster that answers late, loses answers, restarts it and interleaves everything.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// What the cluster holds, as JSON; the model sees it through a queue of events.
struct World {
    model: Model,
    now: u64,
    version: u64,
    chaperons: BTreeMap<String, Value>,
    /// Chaperons that had a delegate once: their reservation is spent.
    spent: BTreeSet<String>,
    pods: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    events: VecDeque<Seen>,
    calls: Vec<Action>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(usize),
    AskAgain(usize),
    Allow(usize),
    Delete(usize),
    Delegate(usize),
    Kill(usize),
    Cordon(usize),
    Deliver(usize),
    /// Carry out a call; say so, or let the answer get lost.
    Answer {
        call: usize,
        heard: bool,
    },
    /// A call gets lost on its way.
    Lose(usize),
    Wait(u64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0usize..8;
    prop_oneof![
        6 => name.clone().prop_map(Step::Ask),
        2 => name.clone().prop_map(Step::AskAgain),
        4 => name.clone().prop_map(Step::Allow),
        1 => name.clone().prop_map(Step::Delete),
        4 => name.clone().prop_map(Step::Delegate),
        1 => name.prop_map(Step::Kill),
        1 => (0usize..3).prop_map(Step::Cordon),
        10 => (1usize..6).prop_map(Step::Deliver),
        14 => (0usize..8, prop::bool::weighted(0.85)).prop_map(|(call, heard)| Step::Answer { call, heard }),
        1 => (0usize..8).prop_map(Step::Lose),
        3 => prop_oneof![Just(1000u64), Just(15_000), Just(41_000)].prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ]
}

fn note(object: &Value, key: &str) -> Option<String> {
    object["metadata"]["annotations"][format!("{PREFIX}{key}")].as_str().map(str::to_owned)
}

impl World {
    fn new() -> Self {
        let nodes = (0..3).map(|number| {
            let name = format!("n{number}");
            let raw = json!({"metadata": {"name": name}, "spec": {}, "status": {
                "allocatable": {"cpu": "1300m", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]}});
            (name, raw)
        });
        let mut world = Self {
            model: Bench::unsynced().model,
            now: 0,
            version: 1,
            chaperons: BTreeMap::new(),
            spent: BTreeSet::new(),
            pods: BTreeMap::new(),
            nodes: nodes.collect(),
            events: VecDeque::new(),
            calls: Vec::new(),
        };
        world.restart();
        world
    }

    fn restart(&mut self) {
        self.model = Bench::unsynced().model;
        self.calls.clear();
        self.events.clear();
        self.events
            .push_back(Seen::Chaperon(Change::All(self.chaperons.values().map(see_chaperon).collect())));
        self.events.push_back(Seen::Pod(Change::All(self.pods.values().map(see_pod).collect())));
        self.events.push_back(Seen::Node(Change::All(self.nodes.values().map(see_node).collect())));
        self.events.push_back(Seen::Budget(Change::All(vec![])));
    }

    fn changed_chaperon(&mut self, name: &str) {
        self.version += 1;
        if let Some(chaperon) = self.chaperons.get_mut(name) {
            chaperon["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.events.push_back(Seen::Chaperon(Change::Is(see_chaperon(chaperon))));
        }
    }

    fn changed_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.get(name) {
            self.events.push_back(Seen::Pod(Change::Is(see_pod(pod))));
        }
    }

    fn kill(&mut self, name: &str) {
        if self.pods.remove(name).is_some() {
            self.events.push_back(Seen::Pod(Change::Gone(Name::new("shop", name))));
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask(number) => self.ask(&format!("c{number}")),
            Step::AskAgain(number) => self.ask_again(&format!("c{number}")),
            Step::Allow(number) => self.allow(&format!("c{number}")),
            Step::Delete(number) => {
                let name = format!("c{number}");
                self.kill(&name);
                self.spent.remove(&name);
                if self.chaperons.remove(&name).is_some() {
                    self.events.push_back(Seen::Chaperon(Change::Gone(Name::new("shop", &name))));
                }
            }
            Step::Delegate(number) => self.delegate(&format!("c{number}")),
            Step::Kill(number) => self.kill(&format!("c{number}")),
            Step::Cordon(number) => {
                let Some(node) = self.nodes.get_mut(&format!("n{number}")) else { return };
                let cordoned = node["spec"]["unschedulable"] == true;
                node["spec"]["unschedulable"] = json!(!cordoned);
                self.events.push_back(Seen::Node(Change::Is(see_node(node))));
            }
            Step::Deliver(count) => {
                for _ in 0..count {
                    let Some(event) = self.events.pop_front() else { break };
                    self.model.see(event, self.now);
                }
            }
            Step::Answer { call, heard } if !self.calls.is_empty() => {
                let action = self.calls.remove(call % self.calls.len());
                let outcome = self.carry_out(&action);
                self.model.finish(action, if heard { outcome } else { Outcome::Unknown }, self.now);
            }
            Step::Lose(call) if !self.calls.is_empty() => {
                let action = self.calls.remove(call % self.calls.len());
                self.model.finish(action, Outcome::Unknown, self.now);
            }
            Step::Answer { .. } | Step::Lose(_) => {}
            Step::Wait(time) => self.now += time,
            Step::Restart => self.restart(),
        }
        let actions = self.model.decide(self.now);
        self.calls.extend(actions);
    }

    fn ask(&mut self, name: &str) {
        if self.chaperons.contains_key(name) {
            return;
        }
        self.version += 1;
        let mut raw = raw_chaperon(name, &[("attempt", "1")], self.version);
        raw["metadata"]["uid"] = json!(format!("{name}-{}", self.version));
        self.chaperons.insert(name.to_owned(), raw);
        self.changed_chaperon(name);
    }

    fn ask_again(&mut self, name: &str) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        let attempt: u64 = note(chaperon, "attempt").and_then(|text| text.parse().ok()).unwrap_or_default();
        chaperon["metadata"]["annotations"][format!("{PREFIX}attempt")] = json!((attempt + 1).to_string());
        self.changed_chaperon(name);
    }

    fn allow(&mut self, name: &str) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        let answered = note(chaperon, "reserved-attempt") == note(chaperon, "attempt");
        if answered && note(chaperon, "is-reserved").is_some() {
            chaperon["metadata"]["annotations"][format!("{PREFIX}is-allowed")] = json!("true");
            self.changed_chaperon(name);
        }
    }

    fn delegate(&mut self, name: &str) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        if note(chaperon, "is-allowed").is_none() || self.pods.contains_key(name) {
            return;
        }
        self.version += 1;
        let owner = json!([{"apiVersion": "multicluster.admiralty.io/v1alpha1", "kind": "PodChaperon",
            "name": name, "uid": chaperon["metadata"]["uid"], "controller": true}]);
        let pod = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("pod-{}", self.version),
            "ownerReferences": owner}, "spec": spec()});
        self.pods.insert(name.to_owned(), pod);
        self.spent.insert(name.to_owned());
        self.changed_pod(name);
    }

    /// What the API server does with a call.
    fn carry_out(&mut self, action: &Action) -> Outcome {
        match action {
            Action::DryRun { manifest, .. } => {
                let pod = json!({"metadata": manifest["metadata"], "spec": manifest["spec"]});
                Outcome::Admitted(Admission::Pod(Arc::new(PodInfo::parse(&pod).expect("a pod"))))
            }
            Action::Reserve { chaperon, uid, node, attempt, .. } => {
                let reserve = [
                    ("is-reserved", json!("true")),
                    ("reserved-node", json!(&**node)),
                    ("reserved-attempt", json!(attempt.to_string())),
                ];
                self.annotate(chaperon, uid, None, &reserve)
            }
            Action::Release { chaperon, uid, version } => {
                let release = [("is-reserved", Value::Null), ("reserved-node", Value::Null)];
                self.annotate(chaperon, uid, Some(version), &release)
            }
            Action::Refuse { chaperon, uid, version, .. } => self.annotate(chaperon, uid, Some(version), &[]),
            Action::Bind { pod, uid, node } => self.bind(pod, uid, node),
            Action::RefusePod { .. } | Action::CreateSummary(_) | Action::PatchSummary(_) => {
                Outcome::Done { version: None }
            }
            Action::Unnominate { .. } | Action::Disrupt(_) | Action::Evict(_) | Action::TellVictim(_) => {
                panic!("all have the same priority")
            }
            Action::BindStorage { .. } | Action::BindClaim { .. } | Action::Deallocate { .. } => {
                panic!("delegates have none")
            }
            Action::Tell(_) | Action::TellAgain { .. } => panic!("the story of delegates is told elsewhere"),
        }
    }

    fn annotate(
        &mut self,
        name: &Name,
        uid: &str,
        version: Option<&Arc<str>>,
        notes: &[(&str, Value)],
    ) -> Outcome {
        let Some(chaperon) = self.chaperons.get_mut(&*name.name) else { return Outcome::NotFound };
        let metadata = &mut chaperon["metadata"];
        if metadata["uid"] != *uid || version.is_some_and(|version| metadata["resourceVersion"] != **version)
        {
            return Outcome::Conflict;
        }
        for (key, value) in notes {
            metadata["annotations"][format!("{PREFIX}{key}")] = value.clone();
        }
        self.changed_chaperon(&name.name);
        Outcome::Done { version: Some(Arc::from(self.version.to_string())) }
    }

    fn bind(&mut self, name: &Name, uid: &str, node: &str) -> Outcome {
        let Some(pod) = self.pods.get_mut(&*name.name) else { return Outcome::NotFound };
        if pod["metadata"]["uid"] != *uid || pod["spec"]["nodeName"].is_string() {
            return Outcome::Conflict;
        }
        pod["spec"]["nodeName"] = json!(node);
        self.changed_pod(&name.name);
        Outcome::Done { version: None }
    }

    /// Pods and promises on each node; each of them takes 600m of 1300m.
    fn load(&self) -> BTreeMap<String, usize> {
        let mut load = BTreeMap::new();
        for pod in self.pods.values() {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                *load.entry(node.to_owned()).or_default() += 1;
            }
        }
        for (name, chaperon) in &self.chaperons {
            let node = note(chaperon, "reserved-node").filter(|_| note(chaperon, "is-reserved").is_some());
            if let (Some(node), false) = (node, self.spent.contains(name)) {
                *load.entry(node).or_default() += 1;
            }
        }
        load
    }

    /// Lets everything that is under way come to its end.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.take(Step::Deliver(50));
            let calls = self.calls.len();
            for _ in 0..calls {
                self.take(Step::Answer { call: 0, heard: true });
            }
            if self.calls.is_empty() && self.events.is_empty() {
                match self.model.next_wakeup() {
                    Some(time) if time < self.now + 12_000 => self.now = self.now.max(time),
                    _ => break,
                }
            }
        }
    }
}

fn see_chaperon(raw: &Value) -> ChaperonSeen {
    let mut raw = raw.clone();
    // A null in a merge patch removes the key.
    if let Some(notes) = raw["metadata"]["annotations"].as_object_mut() {
        notes.retain(|_, value| !value.is_null());
    }
    ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"))
}

fn see_pod(raw: &Value) -> PodSeen {
    PodSeen::read(&serde_json::from_value(raw.clone()).expect("a pod"))
}

fn see_node(raw: &Value) -> NodeSeen {
    NodeSeen::read(&serde_json::from_value(raw.clone()).expect("a node"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_node_gets_more_than_it_has_and_everybody_gets_an_answer(
        steps in prop::collection::vec(step(), 1..160)
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            for (node, count) in world.load() {
                prop_assert!(count <= 2, "{count} on {node} after {step:?}");
            }
        }
        for node in world.nodes.values_mut() {
            node["spec"]["unschedulable"] = json!(false);
            world.events.push_back(Seen::Node(Change::Is(see_node(node))));
        }
        world.settle();
        let load = world.load();
        for (node, count) in &load {
            prop_assert!(*count <= 2, "{count} on {node} at the end");
        }
        // Every delegate is bound if there is room, and every ask is answered.
        let pending = world.pods.values().filter(|pod| !pod["spec"]["nodeName"].is_string()).count();
        let held: usize = world.model.snapshot.pods().count();
        prop_assert!(pending == 0 || held >= 6, "{pending} delegates wait although there is room");
        for (name, chaperon) in &world.chaperons {
            let answered = note(chaperon, "reserved-attempt") == note(chaperon, "attempt");
            let refused = world.model.chaperons.get(&Name::new("shop", name)).is_some_and(Chaperon::is_refused);
            prop_assert!(answered || refused || note(chaperon, "is-allowed").is_some(), "{name} got no answer");
            prop_assert!(answered || !refused || held >= 6, "{name} was refused although there is room");
        }
    }
}
