//! The streams that feed the machine, and the tasks that carry out what it says.

use crate::apply::{Home, Remote};
use crate::args::Args;
use crate::call::{Call, Lane};
use crate::error::Error;
use crate::machine::{Action, Event, GroupKind, GroupSeen, Id, Machine, Outcome};
use crate::metrics::Metrics;
use crate::observe::{self, Source};
use crate::watches::Watches;
use api::claims::Mapping as Names;
use api::{Node, Pod, TargetScore, keys};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::runtime::watcher::Config;
use kube::{Api, Resource};
use runtime::{CancellationToken, Runtime, Seen, Targets, lease, watch};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tracing::{debug, info};

/// Asks in flight to one target; permissions and deletions pass beside them.
const ASKS: usize = 32;
/// How often it is looked whether a kind is served by now that not every cluster has.
const SERVED_YET: Duration = Duration::from_secs(30);
/// Events that are taken in before the machine decides.
const BATCH: usize = 512;

/// What the main loop is woken by.
pub(crate) enum Message {
    Seen(Box<Event>),
    /// The registry has changed; what it holds is read when the message is.
    Targets,
}

pub(crate) type Sender = mpsc::UnboundedSender<Message>;

/// Serves until shutdown.
///
/// # Errors
///
/// Metrics cannot be registered, leader election fails, or this cluster cannot say who it is.
pub async fn serve(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let metrics = Metrics::new(&runtime.metrics.registry)?;
    // A standby follows the targets as well, so that it can begin at once.
    let targets = Targets::start(&runtime);
    runtime.readiness.set("started", true);
    lease::lead(&runtime, |token| {
        let seat =
            Seat { runtime: &runtime, args: &args, metrics: metrics.clone(), targets: targets.clone() };
        seat.lead(token)
    })
    .await
}

/// What a leader needs.
#[derive(Debug)]
pub struct Seat<'a> {
    pub runtime: &'a Runtime,
    pub args: &'a Args,
    pub metrics: Metrics,
    pub targets: Targets,
}

impl Seat<'_> {
    /// Works as the leader until the token is cancelled.
    ///
    /// # Errors
    ///
    /// This cluster cannot say who it is.
    pub async fn lead(self, token: CancellationToken) -> anyhow::Result<()> {
        let Self { runtime, args, metrics, targets } = self;
        let uid = tokio::select! { uid = identity(&runtime.client) => uid?, () = token.cancelled() => return Ok(()) };
        let source = Arc::new(Source { name: args.cluster_name.clone(), uid });
        info!(cluster = source.uid, "places the pods of this cluster");
        let (sender, inbox) = mpsc::unbounded_channel();
        let pods = watch_pods(runtime.clone(), Arc::clone(&source), sender.clone());
        let nodes = watch_nodes(runtime.clone(), sender.clone());
        tokio::spawn(token.clone().run_until_cancelled_owned(pods));
        tokio::spawn(token.clone().run_until_cancelled_owned(nodes));
        let namespaces = watch_namespaces(runtime.clone(), sender.clone());
        tokio::spawn(token.clone().run_until_cancelled_owned(namespaces));
        let claims = watch_claims(runtime.clone(), Arc::clone(&source), sender.clone());
        tokio::spawn(token.clone().run_until_cancelled_owned(claims));
        let scores = watch_scores(runtime.clone(), sender.clone());
        tokio::spawn(token.clone().run_until_cancelled_owned(scores));
        spawn_groups(runtime, &sender, &token);
        let registry = follow_registry(targets.clone(), sender.clone());
        let remote =
            Watches { runtime: runtime.clone(), source: Arc::clone(&source), sender: sender.clone() };
        let remote = remote.drive(targets.clone(), token.clone());
        let home = Home {
            client: runtime.client.clone(),
            manager: runtime.manager().into(),
            source,
            clock: runtime.clock,
        };
        let (remotes, asking) = (HashMap::new(), HashMap::new());
        let mut machine = Machine::default();
        machine.weigh_scores(args.score_weights.0.clone());
        let shell = Shell { home, metrics, targets, remotes, asking, sender, token: token.clone() };
        tokio::select! {
            () = token.cancelled() => (),
            () = shell.work(machine, inbox) => (),
            ((), ()) = futures::future::join(registry, remote) => (),
        }
        Ok(())
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The UID of this cluster.
async fn identity(client: &kube::Client) -> Result<String, Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        namespaces.get("kube-system").await.map_err(|source| Error::Identity { source: Box::new(source) })?;
    namespace.metadata.uid.ok_or(Error::NoIdentity)
}

/// Sends; when nobody listens any more, leadership is over and the sender is about to be dropped too.
pub(crate) fn send(sender: &Sender, message: Message) {
    if sender.send(message).is_err() {
        debug!("an event came after the end of leadership");
    }
}

async fn watch_pods(runtime: Runtime, source: Arc<Source>, sender: Sender) {
    let config = Config::default().fields(&format!("spec.schedulerName={}", keys::PROXY_SCHEDULER));
    let mut events =
        Box::pin(watch(Api::<Pod>::all(runtime.client.clone()), config, "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let event = match event {
            Seen::Replaced(pods) => {
                Event::PodsReplaced(pods.into_iter().map(|pod| observe::pod(pod, &source)).collect())
            }
            Seen::Applied(pod) => Event::PodApplied(observe::pod(pod, &source)),
            Seen::Deleted(pod) => Event::PodDeleted(pod.uid().into()),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

async fn watch_nodes(runtime: Runtime, sender: Sender) {
    let config = Config::default().labels(&format!("{}={}", keys::PROVIDER, keys::PROVIDER_VALUE));
    let mut events =
        Box::pin(watch(Api::<Node>::all(runtime.client.clone()), config, "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let event = match event {
            Seen::Replaced(nodes) => Event::NodesReplaced(nodes.iter().filter_map(observe::node).collect()),
            Seen::Applied(node) => observe::node(&node)
                .map_or_else(|| Event::NodeDeleted(node.name().into()), Event::NodeApplied),
            Seen::Deleted(node) => Event::NodeDeleted(node.name().into()),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

async fn watch_namespaces(runtime: Runtime, sender: Sender) {
    let api = Api::<Namespace>::all(runtime.client.clone());
    let mut events = Box::pin(watch(api, Config::default(), "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let event = match event {
            Seen::Replaced(all) => {
                Event::NamespacesReplaced(all.into_iter().map(observe::namespace).collect())
            }
            Seen::Applied(namespace) => {
                let (name, labels) = observe::namespace(namespace);
                Event::NamespaceApplied(name, labels)
            }
            Seen::Deleted(namespace) => Event::NamespaceDeleted(observe::namespace(namespace).0),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

async fn watch_claims(runtime: Runtime, source: Arc<Source>, sender: Sender) {
    let api = Api::<PersistentVolumeClaim>::all(runtime.client.clone());
    let mut events = Box::pin(watch(api, Config::default(), "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let event = match event {
            Seen::Replaced(all) => {
                Event::ClaimsReplaced(all.iter().map(|claim| observe::claim(claim, &source)).collect())
            }
            Seen::Applied(claim) => Event::ClaimApplied(observe::claim(&claim, &source)),
            Seen::Deleted(claim) => Event::ClaimDeleted(observe::claim(&claim, &source).name),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

async fn watch_scores(runtime: Runtime, sender: Sender) {
    let (api, clock) = (Api::<TargetScore>::all(runtime.client.clone()), runtime.clock);
    let mut events = Box::pin(watch(api, Config::default(), "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let seen = |score| observe::score(score, clock.now());
        let event = match event {
            Seen::Replaced(all) => Event::ScoresReplaced(all.into_iter().map(seen).collect()),
            Seen::Applied(score) => Event::ScoreApplied(seen(score)),
            Seen::Deleted(score) => Event::ScoreDeleted(score.metadata.name.unwrap_or_default().into()),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

/// PodGroups of both kinds, where they are served.
fn spawn_groups(runtime: &Runtime, sender: &Sender, token: &CancellationToken) {
    let kind = GroupKind::Coscheduling;
    let groups = watch_groups(runtime.clone(), sender.clone(), kind, observe::coscheduling_group);
    tokio::spawn(token.clone().run_until_cancelled_owned(groups));
    let groups = watch_groups(runtime.clone(), sender.clone(), GroupKind::Workload, observe::workload_group);
    tokio::spawn(token.clone().run_until_cancelled_owned(groups));
}

async fn watch_groups<K>(runtime: Runtime, sender: Sender, kind: GroupKind, seen: fn(&K) -> GroupSeen)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    while !is_served::<K>(&runtime.client).await {
        tokio::time::sleep(SERVED_YET).await;
    }
    let api = Api::<K>::all(runtime.client.clone());
    let mut events = Box::pin(watch(api, Config::default(), "local", &runtime.metrics));
    while let Some(event) = events.next().await {
        let event = match event {
            Seen::Replaced(all) => Event::GroupsReplaced(kind, all.iter().map(seen).collect()),
            Seen::Applied(group) => Event::GroupApplied(kind, seen(&group)),
            Seen::Deleted(group) => Event::GroupDeleted(kind, seen(&group).name),
            Seen::Failed(_) => continue,
        };
        send(&sender, Message::Seen(Box::new(event)));
    }
}

/// Whether this cluster has a kind that not every cluster has.
async fn is_served<K: Resource<DynamicType = ()>>(client: &kube::Client) -> bool {
    let served = client.list_api_group_resources(&K::api_version(&())).await;
    served.is_ok_and(|list| list.resources.iter().any(|resource| resource.name == K::plural(&())))
}

async fn follow_registry(mut targets: Targets, sender: Sender) {
    targets.synced().await;
    loop {
        send(&sender, Message::Targets);
        targets.changed().await;
    }
}

/// Everything that calls need.
struct Shell {
    home: Home,
    metrics: Metrics,
    targets: Targets,
    remotes: HashMap<Id, Lane>,
    /// Creates that have not ended, by pod and target; cancelled while they wait in their lane, they never leave.
    asking: HashMap<(Id, Id), CancellationToken>,
    sender: Sender,
    token: CancellationToken,
}

impl Shell {
    /// Feeds the machine and starts what it says, for ever.
    async fn work(mut self, mut machine: Machine, mut inbox: mpsc::UnboundedReceiver<Message>) {
        let start = Instant::now();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let wakeup = machine.next_wakeup().map(|at| start + at);
            // Nothing is judged by the clock while it is not known what has been heard.
            let waiting = BATCH.max(inbox.len());
            tokio::select! {
                biased;
                _count = inbox.recv_many(&mut batch, waiting) => (),
                () = sleep_until(wakeup) => (),
            }
            let now = start.elapsed();
            for message in batch.drain(..) {
                let event = match message {
                    Message::Seen(event) => {
                        self.note(&event);
                        *event
                    }
                    Message::Targets => self.take_targets(),
                };
                machine.handle(event, now);
            }
            for action in machine.settle(now) {
                self.run(action, start);
            }
            self.metrics.show(&machine, now);
        }
    }

    /// Reads the registry as it is now.
    fn take_targets(&mut self) -> Event {
        let current = self.targets.current();
        let mut remotes = HashMap::new();
        for target in current.values() {
            let Some((client, cluster_uid)) = target.usable() else { continue };
            let id = Id::from(target.virtual_node());
            let lane =
                self.remotes.remove(&id).map_or_else(|| Arc::new(Semaphore::new(ASKS)), |(_, lane)| lane);
            let remote = Remote {
                key: target.key.clone(),
                id: Arc::clone(&id),
                client: client.clone(),
                cluster_uid: cluster_uid.to_owned(),
                labels: target.settings.label_rewriting,
                accounts: Names::new(&target.annotations, keys::SERVICE_ACCOUNTS),
                classes: Names::new(&target.annotations, keys::STORAGE_CLASSES),
                failover: target.settings.failover,
                fence_epoch: target.fence_epoch(),
            };
            remotes.insert(id, (remote, lane));
        }
        self.remotes = remotes;
        Event::Targets(current.values().map(|target| observe::target(target, &self.home.source)).collect())
    }

    /// Forgets creates that have ended.
    fn note(&mut self, event: &Event) {
        let Event::Finished { pod, outcome } = event else { return };
        if let Outcome::Created { target, .. } | Outcome::Forgone { target } = outcome {
            self.asking.remove(&(Arc::clone(pod), Arc::clone(target)));
        }
    }

    /// Starts the call that an action asks for; its end comes back as an event.
    fn run(&mut self, action: Action, start: Instant) {
        let unwanted = CancellationToken::new();
        let (pod, remote) = match &action {
            Action::Create { target, pod, .. } => {
                self.asking.insert((Arc::clone(pod), Arc::clone(target)), unwanted.clone());
                (Arc::clone(pod), self.remotes.get(target).cloned())
            }
            Action::Forgo { target, pod } => {
                if let Some(create) = self.asking.get(&(Arc::clone(pod), Arc::clone(target))) {
                    create.cancel();
                }
                return;
            }
            Action::Renew { chaperon, .. }
            | Action::Allow { chaperon, .. }
            | Action::Revoke { chaperon, .. }
            | Action::Delete { chaperon } => {
                (Arc::clone(&chaperon.parent), self.remotes.get(&chaperon.target).cloned())
            }
            Action::Bind { pod, .. }
            | Action::Grant { pod, .. }
            | Action::Explain { pod, .. }
            | Action::Reread { pod }
            | Action::Scheduled { pod, .. } => (Arc::clone(&pod.uid), None),
        };
        let call = Call { home: self.home.clone(), metrics: self.metrics.clone(), start, unwanted };
        let sender = self.sender.clone();
        tokio::spawn(self.token.clone().run_until_cancelled_owned(async move {
            call.run(action, remote, |outcome| {
                send(&sender, Message::Seen(Box::new(Event::Finished { pod: Arc::clone(&pod), outcome })));
            })
            .await;
        }));
    }
}
