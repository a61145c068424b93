//! Watches, probers and the loop that decides and writes.

use crate::apply::{Effect, Error, apply, stored};
use crate::events::{self, Teller};
use crate::facts::{Facts, Health, Link, Reach, Seen, World};
use crate::kubelet::Surface;
use crate::plan::{Action, plan, stands_for};
use crate::probe::{Prober, Report, probe};
use crate::{heartbeat, node, strangers};
use api::conditions::Reason;
use api::{Node, keys};
use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher;
use runtime::{
    CancellationToken, Chain, Class, Connection, Members, Runtime, Target, TargetKey, Targets, watch,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Between two writes of one kind to one object, so that a quarrel over a field stays cheap.
const CALM: Duration = Duration::from_secs(1);
/// Writes in flight.
const PARALLEL: usize = 16;

struct ProberTask {
    number: u64,
    fingerprint: String,
    stop: CancellationToken,
    health: Health,
}

/// Where nodes are.
pub(crate) struct Place {
    pub(crate) address: String,
    /// Their kubelet API.
    pub(crate) surface: Option<Surface>,
    /// Counts of the events of delegates that are shown on proxy pods; none are shown without.
    pub(crate) events: Option<prometheus::IntCounterVec>,
}

struct Controller {
    rt: Runtime,
    stop: CancellationToken,
    place: Place,
    /// Nodes are shared among replicas by their names.
    members: Members,
    targets: BTreeMap<TargetKey, Arc<Target>>,
    probers: HashMap<TargetKey, ProberTask>,
    /// `None` until the first list.
    nodes: Option<BTreeMap<String, Seen>>,
    strangers: HashMap<String, CancellationToken>,
    reports: UnboundedSender<Report>,
    heartbeats: tokio::sync::watch::Sender<heartbeat::Nodes>,
    pulse: Option<Pulse>,
    written: HashMap<(String, &'static str), Instant>,
    count: u64,
}

/// The heartbeat of all nodes of this replica.
struct Pulse {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// Runs until stopped, for what is this replica's among its like.
///
/// # Errors
///
/// Never.
pub(crate) async fn run(
    rt: Runtime,
    mut targets: Targets,
    (place, members): (Place, Members),
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let (reports, mut reported) = unbounded_channel();
    let (heartbeats, _) = tokio::sync::watch::channel(heartbeat::Nodes::new());
    let config = watcher::Config::default().labels(&format!("{}={}", keys::PROVIDER, keys::PROVIDER_VALUE));
    let mut nodes = Box::pin(watch(Api::<Node>::all(rt.client.clone()), config, "local", &rt.metrics));
    let mut controller = Controller {
        rt,
        stop: stop.child_token(),
        place,
        members,
        targets: (*targets.synced().await).clone(),
        probers: HashMap::new(),
        nodes: None,
        strangers: HashMap::new(),
        reports,
        heartbeats,
        pulse: None,
        written: HashMap::new(),
        count: 0,
    };
    controller.rt.metrics.leader.set(i64::from(controller.members.count() > 0));
    let mut tick = tokio::time::interval(CALM);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut shared_anew = false;
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = controller.members.changed() => shared_anew = true,
            changed = targets.changed() => controller.targets = (*changed).clone(),
            Some(seen) = nodes.next() => controller.see(seen),
            Some(report) = reported.recv() => controller.take(report),
            _ = tick.tick() => {}
        }
        controller.follow();
        controller.follow_ports();
        if shared_anew {
            controller.beat();
            controller.hand_over().await;
        }
        // What one pass created, the next one completes.
        while controller.pass().await {}
    }
    controller.end_pulse().await;
    let members = std::mem::replace(&mut controller.members, Members::alone());
    drop(controller);
    members.leave().await;
    Ok(())
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Controller {
    fn see(&mut self, seen: runtime::Seen<Node>) {
        let known = self.nodes.take();
        self.nodes = match seen {
            runtime::Seen::Replaced(all) => {
                let mut known = known.unwrap_or_default();
                Some(all.into_iter().map(|node| take_node(&mut known, node)).collect())
            }
            runtime::Seen::Applied(node) => known.map(|mut known| {
                let (name, seen) = take_node(&mut known, node);
                known.insert(name, seen);
                known
            }),
            runtime::Seen::Deleted(node) => known.map(|mut known| {
                if known.get(node.name()).is_some_and(|seen| seen.node.uid() == node.uid()) {
                    info!(node = node.name(), "a virtual node is gone");
                    known.remove(node.name());
                }
                known
            }),
            runtime::Seen::Failed(_) => known,
        };
    }

    fn take(&mut self, report: Report) {
        let Some(prober) = self.probers.get_mut(&report.key) else { return };
        if prober.number != report.prober {
            return;
        }
        let up = matches!(report.health.reach, Reach::Yes);
        if prober.health.reach != report.health.reach {
            info!(cluster = %report.key, reach = ?report.health.reach, "whether a target answers has changed");
            let lost = matches!(report.health.reach, Reach::No { reason: Reason::Unreachable, .. });
            if let Some(surface) = self.place.surface.as_ref().filter(|_| lost) {
                surface.cut(&report.key);
            }
        }
        self.rt.metrics.remote_up.with_label_values(&[report.key.to_string().as_str()]).set(i64::from(up));
        prober.health = report.health;
    }

    /// Lets others begin with what is not this replica's any more, once nothing of it is under way here.
    async fn hand_over(&mut self) {
        self.end_pulse().await;
        self.members.obeys();
        let count = self.members.count();
        self.rt.metrics.leader.set(i64::from(count > 0));
        info!(replicas = count, targets = self.probers.len(), "targets are shared anew");
    }

    /// Ends the heartbeat; the next one begins with the next nodes.
    async fn end_pulse(&mut self) {
        let Some(Pulse { stop, task }) = self.pulse.take() else { return };
        stop.cancel();
        if let Err(failure) = task.await {
            warn!(error = %failure, "the heartbeat ended badly");
        }
    }

    /// Starts and stops what follows single targets and nodes.
    fn follow(&mut self) {
        let (targets, members) = (&self.targets, &self.members);
        self.probers.retain(|key, prober| {
            let fingerprint = targets.get(key).and_then(|target| fingerprint(target));
            let keep = fingerprint.as_ref() == Some(&prober.fingerprint) && members.owns(&key.virtual_node());
            if !keep {
                prober.stop.cancel();
            }
            if let Some(surface) = self.place.surface.as_ref().filter(|_| !targets.contains_key(key)) {
                surface.cut(key);
            }
            keep
        });
        for (key, target) in targets {
            let Connection::Up { client, .. } = &target.connection else { continue };
            let is_due = members.owns(&key.virtual_node()) && !self.probers.contains_key(key);
            let Some(fingerprint) = fingerprint(target).filter(|_| is_due) else { continue };
            self.count += 1;
            let (number, stop) = (self.count, self.stop.child_token());
            let is_self = target.settings.is_self;
            let prober = Prober { key: key.clone(), number, client: client.clone(), is_self };
            tokio::spawn(probe(prober, self.reports.clone(), stop.clone()));
            if let Some(counts) = self.place.events.clone() {
                let (rt, key, client) = (self.rt.clone(), key.clone(), client.clone());
                tokio::spawn(events::follow(Teller { rt, key, client, counts }, stop.clone()));
            }
            self.probers
                .insert(key.clone(), ProberTask { number, fingerprint, stop, health: Health::default() });
        }
        let Some(nodes) = &self.nodes else { return };
        self.strangers.retain(|name, stop| {
            let keep = nodes.contains_key(name) && members.owns(name);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for name in nodes.keys().filter(|name| members.owns(name)) {
            if !self.strangers.contains_key(name) {
                let stop = self.stop.child_token();
                tokio::spawn(strangers::follow(self.rt.clone(), name.clone(), stop.clone()));
                self.strangers.insert(name.clone(), stop);
            }
        }
    }

    /// Opens and closes the ports of nodes, once it is known which ports they had. A node that still shows our address
    /// is served until whoever looks after it now has written its own.
    fn follow_ports(&mut self) {
        let (Some(surface), Some(nodes)) = (self.place.surface.as_mut(), &self.nodes) else { return };
        let (members, address, open) = (&self.members, self.place.address.as_str(), surface.ports());
        let shows_us = |name: &str| {
            nodes.get(name).is_some_and(|seen| seen.node.status["addresses"][0]["address"] == address)
        };
        let is_ours = |name: &String| members.owns(name) || open.contains_key(name) && shows_us(name);
        let wanted = self.targets.keys().map(TargetKey::virtual_node).filter(is_ours).collect();
        let shown =
            nodes.iter().filter_map(|(name, seen)| Some((name.clone(), node::port(&seen.node.status)?)));
        surface.follow(&wanted, &shown.collect());
    }

    fn world(&self) -> Option<World> {
        let nodes = self.nodes.clone()?;
        let targets = self.targets.values().map(|target| self.facts(target)).collect();
        let surface = self.place.surface.as_ref();
        let names = nodes.keys().cloned().chain(self.targets.keys().map(TargetKey::virtual_node));
        let others: BTreeSet<String> = names.filter(|name| !self.members.owns(name)).collect();
        Some(World {
            targets,
            nodes,
            others,
            address: self.place.address.clone(),
            ports: surface.map(Surface::ports).unwrap_or_default(),
            serving: surface.map(Surface::state),
            now: self.rt.clock.now(),
        })
    }

    fn facts(&self, target: &Target) -> Facts {
        let link = match &target.connection {
            Connection::Up { .. } => Link::Up,
            Connection::Pending => Link::Pending,
            Connection::Broken { reason, message } => {
                Link::Broken { reason: *reason, message: message.clone() }
            }
        };
        Facts {
            key: target.key.clone(),
            uid: target.uid.clone(),
            generation: target.generation,
            created: target.created,
            link,
            excluded: target.settings.excluded_labels_regexp.clone(),
            capacity: target.settings.capacity.clone().unwrap_or_default(),
            resource_version: target.resource_version.clone(),
            finalizers: target.finalizers.clone(),
            is_held: target.is_held(),
            deleting: target.deleting,
            is_fenced: target.is_fenced(),
            is_others: !self.members.owns(&target.virtual_node()),
            status: target.status.clone(),
            health: self.probers.get(&target.key).map(|prober| prober.health.clone()).unwrap_or_default(),
        }
    }

    /// Decides and writes once; whether another pass is due at once.
    async fn pass(&mut self) -> bool {
        let Some(world) = self.world() else { return false };
        let now = Instant::now();
        self.written.retain(|_, at| now.duration_since(*at) < CALM);
        let mut actions = plan(&world);
        actions.retain(|action| !self.written.contains_key(&identity(action)));
        self.written.extend(actions.iter().map(|action| (identity(action), now)));
        let rt = &self.rt;
        let results: Vec<(Action, Result<Effect, Error>)> = futures::stream::iter(actions)
            .map(|action| async move {
                let result = apply(rt, &action).await;
                (action, result)
            })
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let mut again = false;
        for (action, result) in results {
            match result {
                Ok(effect) => {
                    self.rt.metrics.actions.with_label_values(&["node", identity(&action).1]).inc();
                    again |= self.remember(effect, &action);
                }
                Err(error) => self.report(&error),
            }
        }
        self.beat();
        again
    }

    fn remember(&mut self, effect: Effect, action: &Action) -> bool {
        let Some(nodes) = self.nodes.as_mut() else { return false };
        let mut put = |node: Box<Node>| {
            let (name, seen) = take_node(nodes, *node);
            nodes.insert(name.clone(), seen);
            name
        };
        match effect {
            Effect::None => false,
            Effect::Node(node) => {
                put(node);
                matches!(action, Action::CreateNode { .. })
            }
            Effect::Labels(node, labels) => {
                let name = put(node);
                if let Some(seen) = nodes.get_mut(&name) {
                    seen.applied.labels = Some(labels);
                }
                false
            }
            Effect::Status(node, status) => {
                let stored = stored(&node);
                let name = put(node);
                if let Some(seen) = nodes.get_mut(&name) {
                    seen.applied.status = Some(status);
                    seen.applied.stored = stored;
                }
                false
            }
            Effect::Used(name) => {
                if let Some(seen) = nodes.get_mut(&name) {
                    seen.applied.is_used = true;
                }
                false
            }
            Effect::Refused(name, refused) => {
                if let Some(seen) = nodes.get_mut(&name) {
                    seen.applied.refused = Some(refused);
                }
                self.written.remove(&(name, "status"));
                true
            }
        }
    }

    fn report(&self, error: &Error) {
        let class = error.class();
        self.rt.metrics.failures.with_label_values(&["node", class.as_str()]).inc();
        match class {
            // The next watch event says more.
            Class::Conflict | Class::NotFound => debug!(error = %Chain(error), "lost a race"),
            Class::Forbidden | Class::Invalid | Class::Unreachable | Class::Overloaded | Class::Bug => {
                warn!(error = %Chain(error), "cannot write; trying again");
            }
        }
    }

    fn beat(&mut self) {
        if self.pulse.is_none() {
            let stop = self.stop.child_token();
            let (nodes, fence) = (self.heartbeats.subscribe(), self.members.fence());
            let task = tokio::spawn(heartbeat::beat(self.rt.clone(), nodes, fence, stop.clone()));
            self.pulse = Some(Pulse { stop, task });
        }
        let nodes = self.nodes.iter().flatten().filter(|(name, _)| self.members.owns(name));
        let nodes: heartbeat::Nodes = nodes
            .filter(|(_, seen)| !seen.node.is_terminating())
            .filter(|(name, seen)| {
                let mut targets = self.targets.values();
                targets.any(|target| target.virtual_node() == **name) || stands_for(&seen.node).is_some()
            })
            .map(|(name, seen)| (name.clone(), seen.node.uid().to_owned()))
            .collect();
        self.heartbeats.send_if_modified(|old| {
            let changed = *old != nodes;
            if changed {
                *old = nodes;
            }
            changed
        });
    }
}

fn fingerprint(target: &Target) -> Option<String> {
    let Connection::Up { fingerprint, .. } = &target.connection else { return None };
    // A target that was deleted and made anew is another one.
    Some(format!("{}/{fingerprint}", target.uid))
}

/// Keeps what is needed of a node, and what was written to it while it is the same one.
fn take_node(known: &mut BTreeMap<String, Seen>, mut node: Node) -> (String, Seen) {
    let name = node.name().to_owned();
    let old = known.remove(&name).filter(|old| old.node.uid() == node.uid());
    node.metadata.managed_fields = None;
    if let Some(status) = node.status.as_object_mut() {
        status.remove("images");
    }
    let seen = match old {
        // An answer to a write can be younger than the watch's next event.
        Some(old) if version(&old.node) > version(&node) => old,
        Some(old) => Seen { node, applied: old.applied },
        None => Seen { node, ..Seen::default() },
    };
    (name, seen)
}

fn version(node: &Node) -> u64 {
    node.resource_version().parse().unwrap_or(0)
}

/// Object and kind of an action.
fn identity(action: &Action) -> (String, &'static str) {
    match action {
        Action::PatchTarget { key, .. } => (key.to_string(), "target"),
        Action::CreateNode { key } => (key.virtual_node(), "create"),
        Action::ApplyLabels { name, .. } => (name.clone(), "labels"),
        Action::HoldTarget { key, .. } => (key.to_string(), "hold"),
        Action::SetTaints { name, .. } => (name.clone(), "taint"),
        Action::ApplyStatus { name, .. } | Action::PatchConditions { name, .. } => (name.clone(), "status"),
        Action::DeleteNode { name, .. } => (name.clone(), "delete"),
    }
}
