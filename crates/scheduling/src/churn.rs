//! A cluster that never rests, on a virtual clock: nodes flap, change and vanish, pods come, move, end. At random
//! points all that was kept from change to change must say the same as a snapshot made anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use scheduling::{Cache, Framework, Labels, NodeInfo, PodInfo, Snapshot};
use serde_json::{Value, json};

/// A small generator of numbers that look random (SplitMix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap_or_default();
        &from[index]
    }
}

/// What happens next to one node or pod.
#[derive(Debug, Clone)]
enum Event {
    /// The next pod comes, and this again some time later.
    Arrival,
    /// The cluster says that a pod runs where it was assumed.
    Confirmed(Arc<str>),
    /// A pod begins to end.
    Ending(Arc<str>),
    Ended(Arc<str>),
    /// A node goes or comes back.
    Flap(u64),
    /// A node gets other labels, taints, sizes or images, or the same again.
    Change(u64),
    Namespace,
    /// A pod waits for a node from now on, and this again some time later.
    Nomination,
    /// A pod gives up the node that it waited for.
    Abandoned(Arc<str>),
}

/// How many operations there were, and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) placed: u64,
    pub(crate) refused: u64,
    pub(crate) compared: u64,
}

pub(crate) struct Churn {
    numbers: Numbers,
    framework: Framework,
    cache: Cache,
    snapshot: Snapshot,
    templates: Vec<PodInfo>,
    nodes: u64,
    now: u64,
    /// By time and number.
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    pods: u64,
    pub(crate) tally: Tally,
}

impl Churn {
    /// # Errors
    /// What is wrong with the manifests.
    pub(crate) fn new(seed: u64, nodes: u64) -> Result<Self, String> {
        let mut churn = Self {
            numbers: Numbers(seed),
            framework: Framework::builder().build(),
            cache: Cache::default(),
            snapshot: Snapshot::default(),
            templates: Vec::new(),
            nodes,
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            pods: 0,
            tally: Tally::default(),
        };
        for (number, spec) in templates().into_iter().enumerate() {
            let app = if number.is_multiple_of(3) { "db" } else { "web" };
            let namespace = if number.is_multiple_of(4) { "two" } else { "one" };
            let metadata = json!({"name": "template", "namespace": namespace, "labels": {"app": app}});
            let mut spec = spec;
            spec["priority"] = json!(number % 3);
            let raw = json!({"metadata": metadata, "spec": spec});
            churn.templates.push(PodInfo::parse(&raw).map_err(|error| error.to_string())?);
        }
        churn.snapshot.set_namespace("one", labels(&[("team", "a")]));
        churn.snapshot.set_namespace("two", labels(&[("team", "b")]));
        for node in 0..nodes {
            churn.set_node(node)?;
            churn.after(60_000, Event::Flap(node));
            churn.after(20_000, Event::Change(node));
        }
        churn.after(1, Event::Arrival);
        churn.after(100_000, Event::Namespace);
        churn.after(5_000, Event::Nomination);
        Ok(churn)
    }

    /// Something happens within `span` milliseconds.
    fn after(&mut self, span: u64, event: Event) {
        self.scheduled += 1;
        let time = self.now + 1 + self.numbers.below(span);
        self.events.insert((time, self.scheduled), event);
    }

    fn set_node(&mut self, number: u64) -> Result<(), String> {
        let numbers = &mut self.numbers;
        let zone = numbers.pick(&["a", "a", "b", "c"]);
        let mut labels =
            json!({"kubernetes.io/hostname": format!("n{number}"), "disk": numbers.pick(&["ssd", "hdd"])});
        if numbers.below(10) > 0 {
            labels["topology.kubernetes.io/zone"] = json!(zone);
        }
        let taints = match numbers.below(6) {
            0 => json!([{"key": "spot", "effect": "NoSchedule"}]),
            1 => json!([{"key": "old", "effect": "PreferNoSchedule"}]),
            _ => json!([]),
        };
        let images = match numbers.below(3) {
            0 => json!([{"names": ["web:1"], "sizeBytes": 300_000_000}]),
            1 => {
                json!([{"names": ["web:1", "web"], "sizeBytes": 290_000_000}, {"names": ["db:1"], "sizeBytes": 700_000_000}])
            }
            _ => json!([]),
        };
        let room = json!({"cpu": numbers.pick(&["2", "4", "8"]), "memory": "16Gi", "pods": numbers.pick(&["4", "12"])});
        let raw = json!({
            "metadata": {"name": format!("n{number}"), "labels": labels},
            "spec": {"taints": taints, "unschedulable": numbers.below(12) == 0},
            "status": {"allocatable": room, "images": images},
        });
        self.snapshot.set_node(NodeInfo::parse(&raw).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The next thing happens.
    ///
    /// # Errors
    /// The cached answer is not the full one.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        let Some(((now, _), event)) = self.events.pop_first() else {
            return Err("nothing happens".to_owned());
        };
        self.now = now;
        self.tally.operations += 1;
        match event {
            Event::Arrival => {
                self.arrive()?;
                self.after(300, Event::Arrival);
            }
            Event::Confirmed(uid) => {
                if let (Some(pod), Some(node)) = (self.snapshot.pod(&uid), self.snapshot.place_of(&uid)) {
                    let pod = Arc::new(pod.placed(node));
                    self.snapshot.add_pod(pod);
                }
            }
            Event::Ending(uid) => {
                if let (Some(pod), Some(node)) = (self.snapshot.pod(&uid), self.snapshot.place_of(&uid)) {
                    let pod = Arc::new(PodInfo { terminating: true, ..pod.placed(node) });
                    self.snapshot.add_pod(pod);
                }
                self.after(10_000, Event::Ended(uid));
            }
            Event::Ended(uid) => {
                self.snapshot.remove_pod(&uid);
            }
            Event::Flap(number) => {
                let name = format!("n{number}");
                if self.snapshot.node(&name).is_some() {
                    self.snapshot.remove_node(&name);
                    self.after(10_000, Event::Flap(number));
                } else {
                    self.set_node(number)?;
                    self.after(120_000, Event::Flap(number));
                }
            }
            Event::Change(number) => {
                if let Some(node) = self.snapshot.node(&format!("n{number}")) {
                    let same = NodeInfo::clone(&node.info);
                    self.snapshot.set_node(same);
                    self.set_node(number)?;
                }
                self.after(40_000, Event::Change(number));
            }
            Event::Nomination => {
                self.nominate();
                self.after(5_000, Event::Nomination);
            }
            Event::Abandoned(uid) => {
                self.snapshot.nominator_mut().remove(&uid);
            }
            Event::Namespace => {
                let team = *self.numbers.pick(&["a", "b"]);
                self.snapshot.set_namespace("two", labels(&[("team", team)]));
                self.after(100_000, Event::Namespace);
            }
        }
        Ok(())
    }

    /// A new pod, whose template is chosen at random.
    fn pod(&mut self) -> PodInfo {
        self.pods += 1;
        let uid: Arc<str> = Arc::from(format!("p{}", self.pods));
        let template = self.numbers.pick(&self.templates).clone();
        PodInfo { uid: Arc::clone(&uid), name: uid, ..template }
    }

    fn nominate(&mut self) {
        let (pod, number) = (self.pod(), self.numbers.below(self.nodes));
        self.after(10_000, Event::Abandoned(Arc::clone(&pod.uid)));
        self.snapshot.nominator_mut().nominate(Arc::new(pod), &Arc::from(format!("n{number}")));
    }

    fn arrive(&mut self) -> Result<(), String> {
        let pod = self.pod();
        let uid = Arc::clone(&pod.uid);
        if self.numbers.below(16) == 0 {
            self.check(&pod)?;
        }
        let Ok(best) = self.framework.schedule(&mut self.cache, &pod, &self.snapshot) else {
            self.tally.refused += 1;
            return Ok(());
        };
        self.tally.placed += 1;
        self.snapshot.assume(Arc::new(pod), &best.node);
        self.after(2_000, Event::Confirmed(Arc::clone(&uid)));
        let lives = 50 * self.nodes * 30;
        self.after(lives, Event::Ending(uid));
        Ok(())
    }

    /// The short way must lead to what the long way says.
    fn check(&mut self, pod: &PodInfo) -> Result<(), String> {
        let short = self.framework.schedule(&mut self.cache, pod, &self.snapshot);
        let long = self.framework.evaluate(pod, &self.snapshot);
        let short = short.map(|best| (best.node, best.score)).map_err(|diagnosis| diagnosis.message());
        let long = long.map(|best| (best.node, best.score)).map_err(|diagnosis| diagnosis.message());
        if short == long { Ok(()) } else { Err(format!("{:?}: {short:?}, but {long:?}", pod.spec)) }
    }

    /// What was kept must say the same as what is made anew.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn compare(&mut self) -> Result<(), String> {
        self.tally.compared += 1;
        let mut fresh = Snapshot::default();
        for namespace in ["one", "two"] {
            fresh.set_namespace(namespace, self.snapshot.namespace(namespace).cloned().unwrap_or_default());
        }
        for node in self.snapshot.nodes() {
            fresh.set_node(NodeInfo::clone(&node.info));
        }
        for (node, pod) in self.snapshot.pods() {
            fresh.assume(Arc::clone(pod), &node.info.name);
        }
        for number in 0..self.nodes {
            let node = Arc::from(format!("n{number}"));
            for pod in self.snapshot.nominator().waiting(&node) {
                fresh.nominator_mut().nominate(Arc::clone(pod), &node);
            }
        }
        for template in self.templates.clone() {
            let (kept, made) = (
                self.framework.evaluate(&template, &self.snapshot),
                self.framework.evaluate(&template, &fresh),
            );
            if kept != made {
                return Err(format!("{:?}: {kept:?}, but anew {made:?}", template.spec));
            }
            self.check(&template)?;
        }
        Ok(())
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

/// Pods of every kind that what is kept could get wrong.
fn templates() -> Vec<Value> {
    let zone = "topology.kubernetes.io/zone";
    let host = "kubernetes.io/hostname";
    let web = json!({"matchLabels": {"app": "web"}});
    let term = |key: &str, selector: &Value| json!({"topologyKey": key, "labelSelector": selector});
    let team = json!({"topologyKey": zone, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "b"}}});
    let requires = |term: &Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let prefers = |term: &Value, weight: i64| {
        let preferred = json!([{"weight": weight, "podAffinityTerm": term}]);
        json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred})
    };
    let near = |affinity: Value| json!({"affinity": {"podAffinity": affinity}});
    let far = |affinity: Value| json!({"affinity": {"podAntiAffinity": affinity}});
    let spread = |key: &str, when: &str, extra: Value| {
        let mut constraint =
            json!({"topologyKey": key, "maxSkew": 2, "whenUnsatisfiable": when, "labelSelector": web});
        for (key, value) in extra.as_object().into_iter().flatten() {
            constraint[key] = value.clone();
        }
        json!({"topologySpreadConstraints": [constraint]})
    };
    let some = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    let ssd = json!([{"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]);
    let named = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]});
    let mut honours = spread(zone, "DoNotSchedule", json!({"nodeTaintsPolicy": "Honor", "minDomains": 2}));
    honours["nodeSelector"] = json!({"disk": "ssd"});
    let specs = vec![
        json!({}),
        json!({"tolerations": [{"key": "spot", "operator": "Exists"}]}),
        json!({"nodeSelector": {"disk": "ssd"}}),
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": ssd}}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": named}}}),
        far(requires(&term(host, &web))),
        far(requires(&team)),
        near(requires(&term(zone, &web))),
        far(prefers(&term(host, &web), 5)),
        near(prefers(&term(zone, &some), 3)),
        spread(zone, "DoNotSchedule", json!({})),
        spread(host, "DoNotSchedule", json!({})),
        spread(zone, "ScheduleAnyway", json!({})),
        spread(host, "ScheduleAnyway", json!({"nodeAffinityPolicy": "Ignore"})),
        spread("disk", "ScheduleAnyway", json!({"minDomains": 3})),
        honours,
        json!({"hostPort": 80}),
    ];
    specs.into_iter().enumerate().map(|(number, spec)| with_container(number, spec)).collect()
}

fn with_container(number: usize, mut spec: Value) -> Value {
    let cpu = format!("{}m", 100 + 50 * (number % 5));
    let image = if number.is_multiple_of(2) { "web:1" } else { "db:1" };
    let mut container =
        json!({"name": "a", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "200Mi"}}});
    if let Some(port) = spec.as_object_mut().and_then(|spec| spec.remove("hostPort")) {
        container["ports"] = json!([{"hostPort": port}]);
    }
    spec["containers"] = json!([container]);
    spec
}
