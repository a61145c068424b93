//! A machine with targets and nodes in front of it, and words for what happens to it.

use crate::machine::{
    Action, ChaperonSeen, Election, Event, Failure, Grant, GrantKind, Hold, Id, Live, Machine, Name, Outcome,
    Place, PodSeen, Preference, Promise, Refusal, Scope, Seed, Stage, Summary, TargetSeen, Width, Wish,
};
use api::{Pod, PodChaperon};
use scheduling::{NodeInfo, PodInfo, Quantity, ResourceList};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn id(text: &str) -> Id {
    Id::from(text)
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A ready virtual node.
pub(super) fn node(name: &str, more: &Value) -> NodeInfo {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        node[key] = value.clone();
    }
    NodeInfo::parse(&node).unwrap()
}

/// A target of every namespace, usable.
pub(super) fn target(name: &str) -> TargetSeen {
    TargetSeen {
        id: id(name),
        namespace: String::new(),
        name: id(name),
        cluster_uid: id(&format!("cluster-{name}")),
        is_self: false,
        width: None,
        order: 0,
        weight: None,
        start_deadline: None,
        unusable: None,
    }
}

pub(super) fn list(cpu: &str) -> ResourceList {
    let pairs = [("cpu", cpu), ("memory", "100Gi"), ("pods", "100000")];
    pairs.into_iter().map(|(name, amount)| (name.to_owned(), Quantity::parse(amount).unwrap())).collect()
}

pub(super) fn summary(free_cpu: &str) -> Option<Summary> {
    Some(Summary { labels: BTreeMap::new(), allocatable: list("100"), free: list(free_cpu) })
}

/// An unbound pod in namespace `ns` that asks for one CPU. Its UID is its name.
pub(super) fn pod(name: &str, spec: &Value) -> PodSeen {
    let mut whole = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    let value = json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": whole});
    let info = Arc::new(PodInfo::parse(&value).unwrap());
    let wish = Wish {
        info: Arc::clone(&info),
        class: id("ns/class"),
        width: None,
        preference: Preference::default(),
        hold: Hold::No,
        epoch: 0,
        grant: None,
        is_direct: false,
        seed: Arc::new(Seed { pod: Pod::default(), template: PodChaperon::default() }),
    };
    PodSeen {
        uid: id(name),
        name: Name { namespace: id("ns"), name: id(name) },
        version: "1".to_owned(),
        terminating: false,
        finished: false,
        place: Place::Unbound(Arc::new(wish)),
        info,
        group: 0,
        gang: None,
        owned: true,
        start_deadline: None,
        shown: None,
    }
}

/// The same pod with another wish.
pub(super) fn wishing(mut pod: PodSeen, change: impl FnOnce(&mut Wish)) -> PodSeen {
    if let Place::Unbound(wish) = &pod.place {
        let mut wish = Wish::clone(wish);
        change(&mut wish);
        pod.place = Place::Unbound(Arc::new(wish));
    }
    pod
}

pub(super) fn asking(pod: PodSeen, width: Width) -> PodSeen {
    wishing(pod, |wish| wish.width = Some(width))
}

/// The machine's surroundings, as far as one test needs them.
pub(super) struct Desk {
    pub(super) machine: Machine,
    pub(super) now: Duration,
    said: Vec<Action>,
    versions: u64,
    chaperons: BTreeMap<(Id, Id), ChaperonSeen>,
}

impl Desk {
    /// Targets of these names, all empty, with a hundred CPUs each; the first has most room.
    pub(super) fn new(targets: &[&str]) -> Self {
        let mut desk = Self::bare();
        desk.see(Event::NamespacesReplaced(vec![]));
        desk.see(Event::ScoresReplaced(vec![]));
        desk.see(Event::Targets(targets.iter().map(|name| target(name)).collect()));
        desk.see(Event::NodesReplaced(targets.iter().map(|name| node(name, &Value::Null)).collect()));
        for (index, name) in targets.iter().enumerate() {
            desk.lists(name, vec![]);
            let free = 100_usize.saturating_sub(5 * index).to_string();
            desk.see(Event::SummarySeen { target: id(name), summary: summary(&free) });
        }
        desk.see(Event::PodsReplaced(vec![]));
        desk
    }

    /// A machine that knows nothing.
    pub(super) fn bare() -> Self {
        Self {
            machine: Machine::default(),
            now: Duration::ZERO,
            said: Vec::new(),
            versions: 10,
            chaperons: BTreeMap::new(),
        }
    }

    pub(super) fn see(&mut self, event: Event) -> &mut Self {
        self.machine.handle(event, self.now);
        let actions = self.machine.settle(self.now);
        self.said.extend(actions);
        self
    }

    pub(super) fn lists(&mut self, name: &str, chaperons: Vec<ChaperonSeen>) -> &mut Self {
        for chaperon in &chaperons {
            self.chaperons.insert((id(name), Arc::clone(&chaperon.parent)), chaperon.clone());
        }
        self.see(Event::ChaperonsReplaced { target: id(name), chaperons })
    }

    pub(super) fn applied(&mut self, pod: PodSeen) -> &mut Self {
        self.see(Event::PodApplied(pod))
    }

    /// A pod without any constraints appears.
    pub(super) fn pod(&mut self, name: &str) -> &mut Self {
        self.applied(pod(name, &Value::Null))
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    /// The PodChaperon of a pod in a target as it is there now.
    pub(super) fn chaperon(&mut self, pod: &str, target: &str) -> ChaperonSeen {
        let version = self.version();
        let chaperon = self.chaperons.entry((id(target), id(pod))).or_insert_with(|| fresh(pod, target));
        chaperon.version = version;
        chaperon.clone()
    }

    pub(super) fn change(
        &mut self,
        pod: &str,
        target: &str,
        change: impl FnOnce(&mut ChaperonSeen),
    ) -> &mut Self {
        let mut chaperon = self.chaperon(pod, target);
        change(&mut chaperon);
        self.chaperons.insert((id(target), id(pod)), chaperon.clone());
        self.see(Event::ChaperonApplied { target: id(target), chaperon })
    }

    pub(super) fn ends(&mut self, pod: &str, outcome: Outcome) -> &mut Self {
        self.see(Event::Finished { pod: id(pod), outcome })
    }

    /// The create succeeds.
    pub(super) fn made(&mut self, pod: &str, target: &str) -> &mut Self {
        self.made_after(pod, target, self.now)
    }

    /// The create, sent then, succeeds.
    pub(super) fn made_after(&mut self, pod: &str, target: &str, sent: Duration) -> &mut Self {
        let chaperon = self.chaperon(pod, target);
        let sent = Some(sent);
        self.ends(pod, Outcome::Created { target: id(target), sent, result: Ok(chaperon) })
    }

    /// The create fails.
    pub(super) fn fails(&mut self, pod: &str, target: &str, scope: Scope, why: &str) -> &mut Self {
        let failure = Failure { scope, message: why.to_owned() };
        self.ends(pod, Outcome::Created { target: id(target), sent: None, result: Err(failure) })
    }

    /// The target reserves for the current attempt.
    pub(super) fn reserves(&mut self, pod: &str, target: &str) -> &mut Self {
        self.change(pod, target, |chaperon| {
            chaperon.promise = Some(Promise { attempt: chaperon.attempt, lasts: ms(30_000) });
            chaperon.reserved_attempt = chaperon.attempt;
        })
    }

    pub(super) fn refuses(&mut self, pod: &str, target: &str, why: &str) -> &mut Self {
        self.change(pod, target, |chaperon| chaperon.refused = refusal(why, chaperon.attempt))
    }

    /// The renewal arrives.
    pub(super) fn renews(&mut self, pod: &str, target: &str) -> &mut Self {
        let mut chaperon = self.chaperon(pod, target);
        chaperon.attempt += 1;
        self.chaperons.insert((id(target), id(pod)), chaperon.clone());
        let sent = self.now;
        self.ends(pod, Outcome::Renewed { target: id(target), sent, result: Ok(chaperon) })
    }

    pub(super) fn bound(&mut self, pod: &str) -> &mut Self {
        self.ends(pod, Outcome::Bound(Ok(())))
    }

    /// The grant, or its end, has been written.
    pub(super) fn granted(&mut self, pod: PodSeen, grant: Option<(&str, GrantKind, u64)>) -> &mut Self {
        let version = self.version();
        let uid = Arc::clone(&pod.uid);
        let seen = wishing(PodSeen { version, ..pod }, |wish| {
            // It stays when the grant goes.
            wish.epoch = grant.map_or(1, |(_, _, epoch)| epoch);
            wish.grant = grant.map(|(target, kind, epoch)| Grant {
                kind,
                election: Election {
                    target_uid: id(&format!("cluster-{target}")),
                    chaperon_uid: id(&format!("uid-{uid}-{target}")),
                    epoch,
                    lease: None,
                },
            });
        });
        self.ends(&uid, Outcome::Granted(Ok(Box::new(seen))))
    }

    /// The change of the elected PodChaperon arrives, and the watch shows it.
    pub(super) fn allowed(
        &mut self,
        pod: &str,
        target: &str,
        change: impl FnOnce(&mut ChaperonSeen),
    ) -> &mut Self {
        let mut chaperon = self.chaperon(pod, target);
        change(&mut chaperon);
        self.chaperons.insert((id(target), id(pod)), chaperon.clone());
        self.ends(pod, Outcome::Allowed { target: id(target), result: Ok(chaperon) })
    }

    pub(super) fn not_bound(&mut self, pod: &str, live: Live<PodSeen>) -> &mut Self {
        self.ends(pod, Outcome::Bound(Err(live)))
    }

    /// The reason has been written to the pod.
    pub(super) fn told(&mut self, pod: &str) -> &mut Self {
        self.ends(pod, Outcome::Explained(Ok("5".to_owned())))
    }

    /// Time passes, and every timer goes off when it is due.
    pub(super) fn pass(&mut self, millis: u64) -> &mut Self {
        let end = self.now + ms(millis);
        while let Some(at) = self.machine.next_wakeup().filter(|at| *at <= end) {
            self.now = at;
            self.see(Event::Tick);
        }
        self.now = end;
        self.see(Event::Tick)
    }

    /// What the machine asked for since the last time, in short words.
    pub(super) fn said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said).iter().map(words).collect()
    }

    #[track_caller]
    pub(super) fn check(&mut self, want: &[&str]) -> &mut Self {
        assert_eq!(self.said(), want);
        self
    }
}

/// What a target says of an attempt that it cannot take.
pub(super) fn refusal(why: &str, attempt: u64) -> Option<Refusal> {
    Some(Refusal { message: why.to_owned(), preempts: false, stamp: attempt.to_string() })
}

/// A PodChaperon just made.
pub(super) fn fresh(pod: &str, target: &str) -> ChaperonSeen {
    ChaperonSeen {
        parent: id(pod),
        name: Name { namespace: id("ns"), name: id(&format!("{pod}-{target}")) },
        uid: id(&format!("uid-{pod}-{target}")),
        version: "1".to_owned(),
        attempt: 1,
        promise: None,
        reserved_attempt: 0,
        refused: None,
        allowed: false,
        grant: false,
        revoked: false,
        stage: Stage::Unknown,
        terminating: false,
        finalizers: vec![],
        lease: None,
        claims: BTreeMap::new(),
    }
}

fn words(action: &Action) -> String {
    match action {
        Action::Create { target, pod, .. } => format!("create {pod} {target}"),
        Action::Forgo { target, pod } => format!("forgo {pod} {target}"),
        Action::Renew { chaperon, attempt } => {
            format!("renew {} {} #{attempt}", chaperon.parent, chaperon.target)
        }
        Action::Bind { pod, node, election, .. } => format!("bind {} {node} @{}", pod.uid, election.epoch),
        Action::Allow { chaperon, epoch, grant: None, .. } => {
            format!("allow {} {} @{epoch}", chaperon.parent, chaperon.target)
        }
        Action::Allow { chaperon, grant: Some(kind), .. } => {
            format!("allow {} {} to {}", chaperon.parent, chaperon.target, kind.as_str())
        }
        Action::Revoke { chaperon, on } => {
            format!("{} {} {}", if *on { "revoke" } else { "keep" }, chaperon.parent, chaperon.target)
        }
        Action::Grant { pod, target, grant: Some(grant) } => {
            format!("grant {} {target} {} @{}", pod.uid, grant.kind.as_str(), grant.election.epoch)
        }
        Action::Grant { pod, target, grant: None } => format!("take back {} {target}", pod.uid),
        Action::Delete { chaperon } => format!("delete {} {}", chaperon.parent, chaperon.target),
        Action::Explain { pod, message, .. } => format!("explain {}: {message}", pod.uid),
        Action::Reread { pod } => format!("reread {}", pod.uid),
        Action::Scheduled { pod, node } => format!("scheduled {} {node}", pod.uid),
    }
}
