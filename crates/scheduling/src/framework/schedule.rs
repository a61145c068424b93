use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::cache::{Cache, Class, Judges, Raw};
use crate::framework::cycle::Entry;
use crate::framework::timing::{Lap, Point, Timed, Watch};
use crate::framework::{Cycle, Diagnosis, Framework, NodeFilter, NodeScore, PreFilter, Ranked, Scale, Scope};
use crate::pod::PodInfo;
use crate::snapshot::{Node, Snapshot};

/// The plugins of one framework, prepared for one pod.
struct Panel<'a> {
    /// Those that judge single nodes, and need not be asked twice.
    judges: Judges<'a>,
    /// Filters that are asked about every node.
    filters: Vec<Box<dyn NodeFilter + 'a>>,
    /// Plugins that may prefer some nodes to others.
    preferring: Vec<&'a Entry>,
    /// The only nodes that come into question.
    only: Option<BTreeSet<String>>,
    /// Nodes on which no room is left beside the pods that wait for it.
    promised: BTreeSet<usize>,
    lap: Option<&'a Lap<'a>>,
}

impl Entry {
    /// What the plugin says of the pod, measured together with the filter that results.
    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>, lap: Option<&'a Lap<'a>>) -> PreFilter<'a> {
        self.tally.count(Point::PreFilter);
        let Some(lap) = lap else { return self.plugin.pre_filter(cycle) };
        let name = self.plugin.name();
        let rejects = |answer: &PreFilter<'_>| matches!(answer, PreFilter::Reject(_));
        let answer = lap.time((name, Point::PreFilter), rejects, || self.plugin.pre_filter(cycle));
        let timed = |filter| Box::new(Timed::new(filter, (name, Point::Filter), lap));
        match answer {
            PreFilter::Filter(filter) => PreFilter::Filter(timed(filter)),
            PreFilter::Only(nodes, filter) => PreFilter::Only(nodes, timed(filter)),
            other @ (PreFilter::Skip | PreFilter::Reject(_)) => other,
        }
    }

    /// The plugin's scores, measured likewise.
    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a [&'a Node],
        lap: Option<&'a Lap<'a>>,
    ) -> Option<Box<dyn NodeScore + 'a>> {
        self.tally.count(Point::PreScore);
        let Some(lap) = lap else { return self.plugin.pre_score(cycle, feasible) };
        let name = self.plugin.name();
        let score = || self.plugin.pre_score(cycle, feasible);
        let scorer = lap.time_if((name, Point::PreScore), Option::is_some, score)?;
        Some(Box::new(Timed::new(scorer, (name, Point::Score), lap)))
    }
}

impl Framework {
    /// Finds the best node for a pod, or says why there is none: the first of [`Framework::evaluate`]'s answer, by a
    /// shorter way. `cache` keeps what can be used again for pods with an equal spec.
    pub fn schedule(
        &self,
        cache: &mut Cache,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> Result<Ranked, Box<Diagnosis>> {
        let lap = self.watch.as_ref().and_then(Watch::lap);
        let cycle = Cycle { pod, snapshot };
        match self.best(cache, cycle, lap.as_ref()) {
            Some(best) => Ok(best),
            None => self
                .evaluate_in(cycle, lap.as_ref())
                .map(|selection| Ranked { node: selection.node, score: selection.score }),
        }
    }

    /// The best node, None if the long way must be taken to say that there is none.
    fn best(&self, cache: &mut Cache, cycle: Cycle<'_>, lap: Option<&Lap<'_>>) -> Option<Ranked> {
        // A pod that waits for a node is tried there alone first; a search that ends early has a way of its own.
        if cycle.pod.nominated.is_some() || self.share.is_some() {
            return None;
        }
        let panel = self.panel(cycle, lap)?;
        let best = match &panel.only {
            Some(only) => {
                let mut nodes: Vec<_> = only.iter().filter_map(|name| cycle.snapshot.node(name)).collect();
                nodes.sort_by_key(|node| node.slot());
                nodes.retain(|node| panel.judges.admits(node) && panel.admits(node));
                let class = Class::of(&cycle.pod.spec, &panel.judges, cycle.snapshot, &nodes);
                panel.choose(cycle, &class, &nodes)
            }
            None => {
                let class = cache.class(&cycle.pod.spec);
                class.refresh(&panel.judges, cycle.snapshot);
                panel.choose_any(cycle.snapshot, cycle, class)
            }
        };
        best.map(|(node, score)| Ranked { node: Arc::clone(&node.info.name), score })
    }

    /// None if a plugin rejects the pod whatever the node, or may be unable to judge one.
    fn panel<'a>(&'a self, cycle: Cycle<'a>, lap: Option<&'a Lap<'a>>) -> Option<Panel<'a>> {
        let judges = Judges { filters: Vec::new(), scorers: Vec::new() };
        let mut panel = Panel {
            judges,
            filters: Vec::new(),
            preferring: Vec::new(),
            only: None,
            promised: self.promised(cycle)?,
            lap,
        };
        for entry in &self.entries {
            let filter = match entry.pre_filter(cycle, lap) {
                PreFilter::Skip => None,
                PreFilter::Reject(_) => return None,
                PreFilter::Filter(filter) => Some(filter),
                PreFilter::Only(nodes, filter) => {
                    let nodes = panel.only.take().map_or_else(|| nodes.clone(), |only| &only & &nodes);
                    panel.only = Some(nodes);
                    Some(filter)
                }
            };
            if filter.is_some() {
                entry.tally.count(Point::Filter);
            }
            if filter.as_ref().is_some_and(|filter| filter.may_fail()) {
                return None;
            }
            match entry.plugin.scope() {
                Scope::Node => {
                    panel.judges.filters.extend(filter);
                    let scorer = entry.pre_score(cycle, &[], lap);
                    panel.judges.scorers.extend(scorer.map(|scorer| (scorer, entry.weight)));
                }
                Scope::Cluster => {
                    panel.filters.extend(filter);
                    panel.preferring.extend(entry.plugin.prefers(cycle).then_some(entry));
                }
            }
        }
        Some(panel)
    }
}

impl Framework {
    /// The slots of nodes that the pod would fill although others wait for them. None if it is rejected as a whole.
    fn promised(&self, cycle: Cycle<'_>) -> Option<BTreeSet<usize>> {
        let nominator = cycle.snapshot.nominator();
        let ahead = |name: &&Arc<str>| nominator.ahead_of(cycle.pod, name).next().is_some();
        let mut nodes =
            nominator.nodes().filter(ahead).filter_map(|name| cycle.snapshot.node(name)).peekable();
        if nodes.peek().is_none() {
            return Some(BTreeSet::new());
        }
        let mut prepared = self.prepare(cycle).ok()?;
        Some(nodes.filter(|node| prepared.judge(cycle, node).is_err()).map(Node::slot).collect())
    }
}

impl Panel<'_> {
    fn admits(&self, node: &Node) -> bool {
        !self.promised.contains(&node.slot()) && self.filters.iter().all(|filter| filter.admits(node))
    }

    /// The best of all nodes.
    fn choose_any<'a>(
        &self,
        snapshot: &'a Snapshot,
        cycle: Cycle<'_>,
        class: &mut Class,
    ) -> Option<(&'a Node, i64)> {
        let asked = !self.filters.is_empty() || !self.preferring.is_empty() || !self.promised.is_empty();
        let best = if asked { None } else { class.best() };
        let class = &*class;
        let scaling = Scaling::new(&self.judges, class);
        if !asked && scaling.columns.is_empty() {
            let (slot, max, others) = best?;
            // With one feasible node there is nothing to choose.
            return Some((snapshot.node_at(slot)?, if others { max + scaling.constant } else { 0 }));
        }
        let feasible = class.feasible().filter_map(|slot| snapshot.node_at(slot));
        let feasible: Vec<_> = feasible.filter(|node| self.admits(node)).collect();
        self.choose(cycle, class, &feasible)
    }

    /// The best of feasible nodes, the first among equals.
    fn choose<'a>(&self, cycle: Cycle<'_>, class: &Class, feasible: &[&'a Node]) -> Option<(&'a Node, i64)> {
        if let [] | [_] = feasible {
            return feasible.first().map(|node| (*node, 0));
        }
        let scaling = Scaling::new(&self.judges, class);
        let fixed = |node: &&Node| class.fixed.get(node.slot()).copied().unwrap_or_default();
        let mut totals: Vec<_> = feasible.iter().map(|node| fixed(node) + scaling.constant).collect();
        for (raw, scorer, weight) in scaling.columns {
            let mut scores: Vec<_> = feasible.iter().map(|node| raw.get(node.slot())).collect();
            scorer.normalize(&mut scores);
            add(&mut totals, &scores, weight);
        }
        for entry in &self.preferring {
            let Some(scorer) = entry.pre_score(cycle, feasible, self.lap) else { continue };
            let mut scores: Vec<_> = feasible.iter().map(|node| scorer.score(node)).collect();
            scorer.normalize(&mut scores);
            add(&mut totals, &scores, entry.weight);
        }
        let max = totals.iter().copied().max()?;
        let best = totals.iter().position(|total| *total == max)?;
        feasible.get(best).map(|node| (*node, max))
    }
}

fn add(totals: &mut [i64], scores: &[i64], weight: i64) {
    for (total, score) in totals.iter_mut().zip(scores) {
        *total += score * weight;
    }
}

/// What is left to do with kept scores that are not final.
struct Scaling<'a> {
    /// What every node gets alike.
    constant: i64,
    columns: Vec<(&'a Raw, &'a dyn NodeScore, i64)>,
}

impl<'a> Scaling<'a> {
    fn new(judges: &'a Judges<'_>, class: &'a Class) -> Self {
        let mut scaling = Self { constant: 0, columns: Vec::new() };
        for ((scorer, weight), raw) in judges.scorers.iter().zip(&class.raw) {
            match scorer.scale() {
                Scale::Identity => {}
                Scale::Largest { .. } if raw.scores.is_empty() => {
                    let mut zero = [0];
                    scorer.normalize(&mut zero);
                    scaling.constant += zero[0] * weight;
                }
                Scale::Largest { .. } | Scale::Own => scaling.columns.push((raw, &**scorer, *weight)),
            }
        }
        scaling
    }
}
