use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::PluginArgs;
use crate::devices::ClaimPlan;
use crate::framework::share::Share;
use crate::framework::timing::{Lap, Point, Stopwatch, Tally, Watch};
use crate::framework::{
    Code, Cycle, Diagnosis, Event, NodeFilter, NodeRefusal, Nomination, Plugin, PostFilter, PreFilter,
    QueueSort, Refusal, Rejection, Trials,
};
use crate::plugins;
use crate::pod::PodInfo;
use crate::snapshot::{Node, Snapshot};
use crate::volumes::VolumePlan;

pub(super) struct Entry {
    pub(super) plugin: Box<dyn Plugin>,
    pub(super) weight: i64,
    pub(super) tally: Tally,
}

impl Entry {
    fn new((plugin, weight): (Box<dyn Plugin>, i64)) -> Self {
        Self { plugin, weight, tally: Tally::default() }
    }
}

/// A set of plugins in their order, and the cycle that asks them.
pub struct Framework {
    pub(super) entries: Vec<Entry>,
    sort: Box<dyn QueueSort>,
    /// None: every node is looked at.
    pub(super) share: Option<Share>,
    pub(super) watch: Option<Watch>,
}

/// Chooses the plugins of a [`Framework`].
pub struct FrameworkBuilder {
    entries: Vec<Entry>,
    sort: Box<dyn QueueSort>,
}

impl FrameworkBuilder {
    /// Leaves out plugins by name.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.entries.retain(|entry| !names.contains(&entry.plugin.name()));
        self
    }

    /// Adds a plugin after the others. Its scores are multiplied by `weight`.
    #[must_use]
    pub fn with(mut self, plugin: Box<dyn Plugin>, weight: i64) -> Self {
        self.entries.push(Entry::new((plugin, weight)));
        self
    }

    /// Replaces the order of the queue.
    #[must_use]
    pub fn sorted_by(self, sort: Box<dyn QueueSort>) -> Self {
        Self { sort, ..self }
    }

    pub fn build(self) -> Framework {
        Framework { entries: self.entries, sort: self.sort, share: None, watch: None }
    }
}

/// A feasible node and the sum of its weighted scores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    pub node: Arc<str>,
    pub score: i64,
}

/// Where a pod fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The first of [`Self::ranked`].
    pub node: Arc<str>,
    pub score: i64,
    /// Every feasible node, best first; among equals in the order of the snapshot.
    pub ranked: Vec<Ranked>,
    pub refused: Vec<NodeRefusal>,
}

impl Selection {
    /// The node that the pod waited for.
    fn only(node: &Arc<str>) -> Self {
        let ranked = vec![Ranked { node: Arc::clone(node), score: 0 }];
        Self { node: Arc::clone(node), score: 0, ranked, refused: Vec::new() }
    }
}

/// Filters prepared for one pod.
#[derive(Default)]
pub(super) struct Prepared<'a> {
    pub(super) filters: Vec<(&'static str, Box<dyn NodeFilter + 'a>)>,
    /// The only nodes that come into question, and the plugins that said so.
    only: Option<BTreeSet<String>>,
    restricting: BTreeSet<&'static str>,
}

impl Prepared<'_> {
    pub(super) fn filter(&self, node: &Node) -> Result<(), Refusal> {
        for (name, filter) in &self.filters {
            filter.filter(node).map_err(|rejection| Refusal::new(name, rejection))?;
        }
        Ok(())
    }
}

impl Framework {
    /// All plugins of this crate, with upstream's order and weights.
    pub fn builder() -> FrameworkBuilder {
        let plugins = plugins::all(&PluginArgs::default());
        let entries = plugins.into_iter().map(Entry::new).collect();
        FrameworkBuilder { entries, sort: Box::new(plugins::PrioritySort) }
    }

    /// These plugins with the weights of their scores, in this order.
    pub(crate) fn of(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Self {
        let entries = plugins.into_iter().map(Entry::new).collect();
        FrameworkBuilder { entries, sort: Box::new(plugins::PrioritySort) }.build()
    }

    /// Adds a plugin after the others. Its scores are multiplied by `weight`.
    pub fn push(&mut self, plugin: Box<dyn Plugin>, weight: i64) {
        self.entries.push(Entry::new((plugin, weight)));
    }

    /// Measures what plugins take in [`Framework::schedule`].
    pub fn measure(&mut self, stopwatch: Arc<dyn Stopwatch>) {
        self.watch = Some(Watch::new(stopwatch));
    }

    /// Looks for feasible nodes among a share of all, in percent, but for a hundred at least. None: all are looked at.
    #[must_use]
    pub fn looking_at(self, percentage: Option<u8>) -> Self {
        Self { share: percentage.map(Share::new), ..self }
    }

    /// Names of the plugins in their order.
    pub fn plugins(&self) -> impl Iterator<Item = &'static str> {
        self.entries.iter().map(|entry| entry.plugin.name())
    }

    /// How often each plugin was asked in [`Framework::schedule`] since the last call, once a cycle. Not counted are
    /// nodes, nor answers that were kept.
    pub fn evaluations(&self) -> impl Iterator<Item = (&'static str, Point, u64)> {
        let counts = |entry: &Entry| {
            let plugin = entry.plugin.name();
            entry.tally.take().map(move |(point, count)| (plugin, point, count)).collect::<Vec<_>>()
        };
        self.entries.iter().flat_map(counts)
    }

    /// May the pod enter the queue at all?
    pub fn pre_enqueue(&self, pod: &PodInfo, snapshot: &Snapshot) -> Result<(), Refusal> {
        self.entries.iter().try_for_each(|Entry { plugin, .. }| {
            plugin
                .pre_enqueue(Cycle { pod, snapshot })
                .map_err(|rejection| Refusal::new(plugin.name(), rejection))
        })
    }

    /// The pod's place in the queue; smaller is earlier.
    pub fn sort_key(&self, pod: &PodInfo, queued_at: u64) -> (i64, u64) {
        self.sort.key(pod, queued_at)
    }

    /// Finds the best node for a pod, or says why there is none.
    pub fn evaluate(&self, pod: &PodInfo, snapshot: &Snapshot) -> Result<Selection, Box<Diagnosis>> {
        self.evaluate_in(Cycle { pod, snapshot }, None)
    }

    /// [`Self::evaluate`], of which the last part is measured.
    pub(super) fn evaluate_in(
        &self,
        cycle: Cycle<'_>,
        lap: Option<&Lap<'_>>,
    ) -> Result<Selection, Box<Diagnosis>> {
        let snapshot = cycle.snapshot;
        let mut diagnosis = Box::new(Diagnosis { node_count: snapshot.node_count(), ..Diagnosis::default() });
        if diagnosis.node_count == 0 {
            return Err(diagnosis);
        }
        let mut prepared = match self.prepare(cycle) {
            Ok(prepared) => prepared,
            Err((plugins, rejection)) if rejection.code == Code::Error => {
                let plugin = plugins.first().copied().unwrap_or_default();
                let what = format!("PreFilter plugin {plugin:?}");
                return Err(failed(&diagnosis, (plugin, &what), &rejection.reasons));
            }
            Err((plugins, rejection)) => {
                diagnosis.pre_filter = Some(rejection.reasons.join(", "));
                diagnosis.plugins = plugins;
                return Err(self.post_filter(cycle, diagnosis, &mut Prepared::default(), lap));
            }
        };
        if let Some(node) = nominated(&mut prepared, cycle, &mut diagnosis) {
            return Ok(Selection::only(node));
        }
        let feasible = self.filter_nodes(&mut prepared, cycle, &mut diagnosis);
        let error = diagnosis.refused.iter().find(|node| node.refusal.code == Code::Error);
        if let Some(NodeRefusal { refusal, .. }) = error.cloned() {
            let what = format!("{:?} filter plugin", refusal.plugin);
            return Err(failed(&diagnosis, (refusal.plugin, &what), &refusal.reasons));
        }
        if feasible.is_empty() {
            diagnosis.plugins = diagnosis.refused.iter().map(|node| node.refusal.plugin).collect();
            diagnosis.plugins.extend(&prepared.restricting);
            diagnosis.restricting = std::mem::take(&mut prepared.restricting);
            return Err(self.post_filter(cycle, diagnosis, &mut prepared, lap));
        }
        let ranked = self.rank(cycle, &feasible);
        let Some(best) = ranked.first().cloned() else { return Err(diagnosis) };
        Ok(Selection { node: best.node, score: best.score, ranked, refused: diagnosis.refused })
    }

    /// Asks whether one given node can take a pod.
    pub fn evaluate_node(&self, pod: &PodInfo, snapshot: &Snapshot, node: &str) -> Result<(), Refusal> {
        let cycle = Cycle { pod, snapshot };
        let mut prepared = self.prepare(cycle).map_err(|(plugins, rejection)| {
            Refusal::new(plugins.first().copied().unwrap_or("NodeName"), rejection)
        })?;
        if prepared.only.as_ref().is_some_and(|only| !only.contains(node)) {
            let plugin = prepared.restricting.first().copied().unwrap_or("NodeName");
            let reason = format!("node(s) didn't satisfy plugin {plugin}");
            return Err(Refusal::new(plugin, Rejection::unresolvable(reason)));
        }
        match snapshot.node(node) {
            Some(node) => prepared.judge(cycle, node),
            None => {
                let reason = format!("node {node:?} does not exist");
                Err(Refusal::new("NodeName", Rejection::unresolvable(reason)))
            }
        }
    }

    /// Asks every plugin for its last word on the node that was chosen.
    pub fn reserve(&self, pod: &PodInfo, snapshot: &Snapshot, node: &Node) -> Result<(), Refusal> {
        self.entries.iter().try_for_each(|Entry { plugin, .. }| {
            let verdict = plugin.reserve(Cycle { pod, snapshot }, node);
            verdict.map_err(|rejection| Refusal::new(plugin.name(), rejection))
        })
    }

    /// Asks every plugin for its last word before the pod, assumed on `node`, is bound.
    pub fn pre_bind(&self, pod: &PodInfo, snapshot: &Snapshot, node: &Node) -> Result<(), Refusal> {
        self.entries.iter().try_for_each(|Entry { plugin, .. }| {
            let verdict = plugin.pre_bind(Cycle { pod, snapshot }, node);
            verdict.map_err(|rejection| Refusal::new(plugin.name(), rejection))
        })
    }

    /// What must happen to claims and volumes before the pod can be bound to `node`, on which it fits.
    pub fn volumes(&self, pod: &PodInfo, snapshot: &Snapshot, node: &Node) -> Option<VolumePlan> {
        let cycle = Cycle { pod, snapshot };
        self.entries.iter().find_map(|Entry { plugin, .. }| plugin.volumes(cycle, &node.info))
    }

    /// What must happen to resource claims before the pod can be bound to `node`. None: nothing.
    ///
    /// # Errors
    /// When the pod does not fit there any more.
    pub fn claims(
        &self,
        pod: &PodInfo,
        snapshot: &Snapshot,
        node: &Node,
    ) -> Result<Option<ClaimPlan>, Refusal> {
        let cycle = Cycle { pod, snapshot };
        for Entry { plugin, .. } in &self.entries {
            let plan = plugin.claims(cycle, &node.info);
            if let Some(plan) = plan.map_err(|rejection| Refusal::new(plugin.name(), rejection))? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// Is `event` a reason to try the cycle's pod again, which these plugins rejected? Without any, there were no
    /// nodes.
    pub fn hint(&self, event: &Event, cycle: Cycle<'_>, rejected_by: &BTreeSet<&'static str>) -> bool {
        if rejected_by.is_empty() {
            return matches!(event, Event::Node { change, .. } if change.added);
        }
        let mut rejecting = self.entries.iter().filter(|entry| rejected_by.contains(entry.plugin.name()));
        rejecting.any(|entry| {
            let ask = || entry.plugin.hint(event, cycle);
            match &self.watch {
                Some(watch) => watch.hint((entry.plugin.name(), event.label()), ask),
                None => ask(),
            }
        })
    }

    /// Is `event` a reason to ask the plugin `gate` again, which has held a pod back?
    pub fn may_open(&self, event: &Event, gate: &str) -> bool {
        let mut gates = self.entries.iter().filter(|entry| entry.plugin.name() == gate);
        gates.any(|entry| entry.plugin.may_open(event))
    }

    pub(super) fn prepare<'a>(
        &'a self,
        cycle: Cycle<'a>,
    ) -> Result<Prepared<'a>, (BTreeSet<&'static str>, Rejection)> {
        let mut prepared = Prepared { filters: Vec::new(), only: None, restricting: BTreeSet::new() };
        for Entry { plugin, .. } in &self.entries {
            let name = plugin.name();
            match plugin.pre_filter(cycle) {
                PreFilter::Skip => {}
                PreFilter::Reject(rejection) => return Err((BTreeSet::from([name]), rejection)),
                PreFilter::Filter(filter) => prepared.filters.push((name, filter)),
                PreFilter::Only(nodes, filter) => {
                    prepared.filters.push((name, filter));
                    prepared.restricting.insert(name);
                    let nodes = match prepared.only.take() {
                        Some(only) => &only & &nodes,
                        None => nodes,
                    };
                    if nodes.is_empty() {
                        let rejection = nowhere(&prepared.restricting);
                        return Err((prepared.restricting, rejection));
                    }
                    prepared.only = Some(nodes);
                }
            }
        }
        Ok(prepared)
    }

    fn post_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        mut diagnosis: Box<Diagnosis>,
        prepared: &mut Prepared<'a>,
        lap: Option<&Lap<'_>>,
    ) -> Box<Diagnosis> {
        let mut messages = Vec::new();
        for Entry { plugin, .. } in &self.entries {
            let mut ask = || plugin.post_filter(cycle, &diagnosis, &mut Trials::new(prepared, cycle));
            let answer = match lap {
                Some(lap) => {
                    let what = (plugin.name(), Point::PostFilter);
                    lap.time_if(what, |answer| !matches!(answer, PostFilter::Nothing), ask)
                }
                None => ask(),
            };
            match answer {
                PostFilter::Nothing => continue,
                PostFilter::Wait(message) => {
                    if messages.is_empty() {
                        diagnosis.nomination = Nomination::Keep;
                    }
                    messages.push(message);
                }
                PostFilter::Deallocate { claim, message } => {
                    diagnosis.deallocate = Some(claim);
                    messages.push(message);
                }
                PostFilter::Nowhere(message) => {
                    diagnosis.nomination = Nomination::Clear;
                    messages.push(message);
                }
                PostFilter::Room { candidates, message } => {
                    messages = vec![message];
                    if let Some(best) = candidates.first() {
                        diagnosis.nomination = Nomination::Node(Arc::clone(&best.node));
                    }
                    diagnosis.candidates = candidates;
                    break;
                }
            }
        }
        diagnosis.post_filter = (!messages.is_empty()).then(|| messages.join(", "));
        diagnosis
    }

    /// The feasible nodes, or as many of them as are looked for.
    fn filter_nodes<'a>(
        &self,
        prepared: &mut Prepared<'a>,
        cycle: Cycle<'a>,
        diagnosis: &mut Diagnosis,
    ) -> Vec<&'a Node> {
        let only = prepared.only.clone();
        let asked = cycle
            .snapshot
            .nodes()
            .filter(|node| only.as_ref().is_none_or(|only| only.contains(&*node.info.name)));
        let mut feasible = Vec::new();
        let mut ask = |node: &'a Node, feasible: &mut Vec<&'a Node>| match prepared.judge(cycle, node) {
            Ok(()) => feasible.push(node),
            Err(refusal) => {
                diagnosis.refused.push(NodeRefusal { node: Arc::clone(&node.info.name), refusal });
            }
        };
        let Some(share) = &self.share else {
            asked.for_each(|node| ask(node, &mut feasible));
            return feasible;
        };
        let nodes: Vec<_> = asked.collect();
        let (tail, head) = nodes.split_at(share.begin(nodes.len()));
        let enough = share.enough(nodes.len());
        let mut asked = 0;
        for node in head.iter().chain(tail) {
            if feasible.len() >= enough {
                break;
            }
            ask(node, &mut feasible);
            asked += 1;
        }
        share.asked(asked, nodes.len());
        feasible
    }

    fn rank(&self, cycle: Cycle<'_>, feasible: &[&Node]) -> Vec<Ranked> {
        let mut totals = vec![0i64; feasible.len()];
        // With one feasible node there is nothing to choose.
        if feasible.len() > 1 {
            for Entry { plugin, weight, .. } in &self.entries {
                let Some(scorer) = plugin.pre_score(cycle, feasible) else { continue };
                let mut scores: Vec<_> = feasible.iter().map(|node| scorer.score(node)).collect();
                scorer.normalize(&mut scores);
                for (total, score) in totals.iter_mut().zip(scores) {
                    *total += score * weight;
                }
            }
        }
        let mut ranked: Vec<_> = feasible
            .iter()
            .zip(totals)
            .map(|(node, score)| Ranked { node: Arc::clone(&node.info.name), score })
            .collect();
        // A stable sort: equals stay in the order of the snapshot.
        ranked.sort_by_key(|ranked| Reverse(ranked.score));
        ranked
    }
}

/// The node on which room was made for the pod, if it fits there: then no other is looked at. Otherwise what that
/// node said is remembered, and so is the plugin that said it if others left out nodes (a slip of upstream's that
/// users see in messages).
fn nominated<'a>(
    prepared: &mut Prepared<'a>,
    cycle: Cycle<'a>,
    diagnosis: &mut Diagnosis,
) -> Option<&'a Arc<str>> {
    let node = cycle.snapshot.node(cycle.pod.nominated.as_ref()?)?;
    let Err(refusal) = prepared.judge(cycle, node) else { return Some(&node.info.name) };
    if refusal.code == Code::Error {
        return None;
    }
    let Some(only) = &prepared.only else { return None };
    prepared.restricting.insert(refusal.plugin);
    // What is asked again below says so again.
    if !only.contains(&*node.info.name) {
        diagnosis.refused.push(NodeRefusal { node: Arc::clone(&node.info.name), refusal });
    }
    None
}

/// A plugin could not judge. What others said does not count.
fn failed(
    diagnosis: &Diagnosis,
    (plugin, what): (&'static str, &str),
    reasons: &[Cow<'static, str>],
) -> Box<Diagnosis> {
    let error = Some(format!("running {what}: {}", reasons.join(", ")));
    let node_count = diagnosis.node_count;
    Box::new(Diagnosis { node_count, error, failed: Some(plugin), ..Diagnosis::default() })
}

/// The nodes that plugins restricted the pod to have none in common.
fn nowhere(restricting: &BTreeSet<&'static str>) -> Rejection {
    let names: Vec<_> = restricting.iter().copied().collect();
    Rejection::unresolvable(match names.as_slice() {
        [only] => format!("node(s) didn't satisfy plugin {only}"),
        several => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", several.join(" ")),
    })
}
