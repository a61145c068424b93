//! Which plugins a profile has at which extension point, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::PluginArgs;
use crate::config::read::Problems;
use crate::field::{Field, FieldError};
use crate::framework::{Framework, Part, Parts, Plugin};
use crate::plugins;

/// An extension point, as files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
    PlacementGenerate,
    PlacementScore,
    PodGroupPostFilter,
}

use Point::{Bind, Filter, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score};

const POINTS: [(Point, &str); 15] = [
    (PreEnqueue, "preEnqueue"),
    (QueueSort, "queueSort"),
    (PreFilter, "preFilter"),
    (Filter, "filter"),
    (PostFilter, "postFilter"),
    (PreScore, "preScore"),
    (Score, "score"),
    (Reserve, "reserve"),
    (Point::Permit, "permit"),
    (PreBind, "preBind"),
    (Bind, "bind"),
    (Point::PostBind, "postBind"),
    (Point::PlacementGenerate, "placementGenerate"),
    (Point::PlacementScore, "placementScore"),
    (Point::PodGroupPostFilter, "podGroupPostFilter"),
];

const MULTI: &str = "multiPoint";
const EVERY: &str = "*";

fn name_of(point: Point) -> &'static str {
    POINTS.iter().find(|(known, _)| *known == point).map_or(MULTI, |(_, name)| name)
}

/// A plugin that files may name: where it acts, and what its scores weigh by default.
struct Known {
    name: &'static str,
    points: &'static [Point],
    weight: i64,
}

const fn known(name: &'static str, weight: i64, points: &'static [Point]) -> Known {
    Known { name, points, weight }
}

/// The plugins that are on by default, in their order.
const KNOWN: [Known; 20] = [
    known("SchedulingGates", 0, &[PreEnqueue]),
    known("PrioritySort", 0, &[QueueSort]),
    known("NodeName", 0, &[PreFilter, Filter]),
    known("NodeUnschedulable", 0, &[Filter]),
    known("TaintToleration", 3, &[Filter, PreScore, Score]),
    known("NodeAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    known("NodePorts", 0, &[PreFilter, Filter]),
    known("NodeResourcesFit", 1, &[PreFilter, Filter, PreScore, Score]),
    known("VolumeRestrictions", 0, &[PreFilter, Filter]),
    known("NodeVolumeLimits", 0, &[PreFilter, Filter]),
    known("VolumeBinding", 1, &[PreFilter, Filter, Reserve, PreBind, PreScore, Score]),
    known("VolumeZone", 0, &[PreFilter, Filter]),
    known("PodTopologySpread", 2, &[PreFilter, Filter, PreScore, Score]),
    known("InterPodAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    known("DynamicResources", 2, &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind]),
    known("DefaultPreemption", 0, &[PreEnqueue, PostFilter]),
    known("NodeResourcesBalancedAllocation", 1, &[PreScore, Score]),
    known("ImageLocality", 1, &[Score]),
    known("DefaultBinder", 0, &[Bind]),
    known("NodeDeclaredFeatures", 0, &[PreFilter, Filter]),
];

/// What the scheduler does itself, without a plugin that can be asked.
const BUILT_IN: [&str; 2] = ["PrioritySort", "DefaultBinder"];

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// True for a name that a file may configure.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// A plugin that a file enables.
#[derive(Debug, Clone)]
struct Enabled {
    name: String,
    /// 0 if it is not given.
    weight: i64,
    /// Empty for one that is on by default.
    path: String,
}

/// `plugins.POINT`.
#[derive(Debug, Clone, Default)]
struct PluginSet {
    enabled: Vec<Enabled>,
    disabled: BTreeSet<String>,
}

impl PluginSet {
    fn read(field: &Field<'_>, problems: &mut Problems) -> Self {
        problems.only(field, &["enabled", "disabled"]);
        let mut set = Self::default();
        for item in problems.or(field.get("enabled").items(), Vec::new()) {
            problems.only(&item, &["name", "weight"]);
            let name = problems.or(item.get("name").text(), None).unwrap_or_default().to_owned();
            let weight = problems.or(item.get("weight").integer32(), None).unwrap_or_default();
            let path = item.path_of("name");
            match refusal(&name) {
                Some(problem) => problems.add(FieldError { path, problem }),
                None => set.enabled.push(Enabled { name, weight: i64::from(weight), path }),
            }
        }
        for item in problems.or(field.get("disabled").items(), Vec::new()) {
            problems.only(&item, &["name", "weight"]);
            set.disabled.extend(problems.or(item.get("name").text(), None).map(str::to_owned));
        }
        set
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.contains(name)
    }
}

/// Why a plugin cannot be enabled.
fn refusal(name: &str) -> Option<String> {
    let Some(known) = find(name) else {
        return Some(format!(
            "{name:?} is no plugin of this scheduler: remove it, or leave the pods that need it to kube-scheduler"
        ));
    };
    let there = BUILT_IN.contains(&known.name) || plugins::make(known.name, &PluginArgs::default()).is_some();
    (!there).then(|| {
        format!("{name} is not supported yet: remove it; pods that need it are refused with a reason")
    })
}

/// `plugins` of one profile, as the file has them.
#[derive(Debug, Default)]
pub(super) struct PluginSets {
    multi: PluginSet,
    points: BTreeMap<Point, PluginSet>,
}

impl PluginSets {
    pub(super) fn read(field: &Field<'_>, problems: &mut Problems) -> Self {
        let names: Vec<_> = POINTS.iter().map(|(_, name)| *name).chain([MULTI]).collect();
        problems.only(field, &names);
        let set = |name: &str, problems: &mut Problems| PluginSet::read(&field.get(name), problems);
        let multi = set(MULTI, problems);
        let points = POINTS.iter().map(|(point, name)| (*point, set(name, problems))).collect();
        Self { multi, points }
    }

    /// The plugins of all points: those that are on by default unless the file disables them, in their place with
    /// the file's weight if it enables them too; then the others that the file enables.
    fn merged(&self) -> Vec<Enabled> {
        let mut replaced = BTreeSet::new();
        let mut merged = Vec::new();
        let defaults = KNOWN.iter().filter(|_| !self.multi.disables(EVERY));
        for known in defaults.filter(|known| !self.multi.disables(known.name)) {
            // Of several, the last one counts; the others stay, and are refused as duplicates.
            let own = self.multi.enabled.iter().rposition(|enabled| enabled.name == known.name);
            replaced.extend(own);
            merged.push(match own.and_then(|index| self.multi.enabled.get(index)) {
                Some(own) => own.clone(),
                None => {
                    let name = known.name.to_owned();
                    Enabled { name, weight: known.weight, path: String::new() }
                }
            });
        }
        let rest = self.multi.enabled.iter().enumerate().filter(|(index, _)| !replaced.contains(index));
        merged.extend(rest.map(|(_, enabled)| enabled.clone()));
        merged
    }
}

/// The plugins of each extension point in the order in which they are asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrangement {
    order: BTreeMap<Point, Vec<&'static str>>,
    weights: BTreeMap<&'static str, i64>,
}

impl Default for Arrangement {
    fn default() -> Self {
        let with = |point| KNOWN.iter().filter(move |known| known.points.contains(&point));
        let order = POINTS.iter().map(|(point, _)| (*point, with(*point).map(|known| known.name).collect()));
        let weights = with(Score).map(|known| (known.name, known.weight.max(1)));
        Self { order: order.collect(), weights: weights.collect() }
    }
}

impl Arrangement {
    /// Expands the sets of a profile.
    pub(super) fn expand(sets: &PluginSets, profile: &Field<'_>) -> Result<Self, FieldError> {
        let merged = sets.merged();
        let mut order = BTreeMap::new();
        for (point, name) in POINTS {
            let empty = PluginSet::default();
            let own = sets.points.get(&point).unwrap_or(&empty);
            let path = format!("{}.plugins.{name}", profile.path());
            order.insert(point, plugins_of(point, own, &merged, &path)?);
        }
        let arrangement = Self { weights: weights(sets, &merged), order };
        arrangement.check(profile)?;
        Ok(arrangement)
    }

    fn at(&self, point: Point) -> &[&'static str] {
        self.order.get(&point).map(Vec::as_slice).unwrap_or_default()
    }

    fn has(&self, point: Point, name: &str) -> bool {
        self.at(point).contains(&name)
    }

    /// A queue has one order, pods are bound, and what is prepared for a filter or score is needed by it.
    fn check(&self, profile: &Field<'_>) -> Result<(), FieldError> {
        let wrong = |point: Point, problem: String| {
            Err(profile.error_at(&format!("plugins.{}", name_of(point)), problem))
        };
        if self.at(QueueSort).len() != 1 {
            let count = self.at(QueueSort).len();
            return wrong(QueueSort, format!("one queue sort plugin is required, but there are {count}"));
        }
        if self.at(Bind).is_empty() {
            return wrong(Bind, "a bind plugin is required: enable DefaultBinder".to_owned());
        }
        for (prepares, acts) in [(PreFilter, Filter), (PreScore, Score)] {
            for name in self.at(acts) {
                let prepared = find(name).is_none_or(|known| !known.points.contains(&prepares));
                if !prepared && !self.has(prepares, name) {
                    let (prepares, here) = (name_of(prepares), name_of(acts));
                    let problem =
                        format!("{name} needs itself at {prepares}: disable it at {here} too, or not there");
                    return wrong(acts, problem);
                }
            }
        }
        Ok(())
    }

    /// The framework with these plugins. What no file can configure comes first.
    pub(super) fn framework(&self, args: &PluginArgs) -> Framework {
        let mut entries: Vec<(Box<dyn Plugin>, i64)> =
            plugins::all(args).into_iter().filter(|(plugin, _)| !is_known(plugin.name())).collect();
        let weight = |name: &str| self.weights.get(name).copied().unwrap_or_default();
        match self.common_order() {
            Some(order) => {
                let plugins =
                    order.into_iter().filter_map(|name| Some((plugins::make(name, args)?, weight(name))));
                entries.extend(plugins);
            }
            None => entries.extend(self.parts(args)),
        }
        Framework::of(entries)
    }

    /// One order of whole plugins, if that is all that is configured.
    fn common_order(&self) -> Option<Vec<&'static str>> {
        let lists: Vec<_> = [PreEnqueue, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, PreBind]
            .iter()
            .map(|point| self.at(*point))
            .collect();
        let mut left: Vec<_> =
            KNOWN.iter().filter(|known| lists.iter().any(|list| list.contains(&known.name))).collect();
        if left.iter().any(|known| !known.points.iter().all(|point| self.has(*point, known.name))) {
            return None;
        }
        let mut order = Vec::new();
        while !left.is_empty() {
            // The next one is the first whose predecessors are there, at every point where it acts.
            let next = left.iter().position(|known| {
                lists.iter().all(|list| {
                    let before = list.iter().take_while(|name| **name != known.name);
                    !list.contains(&known.name) || before.into_iter().all(|name| order.contains(name))
                })
            })?;
            order.push(left.remove(next).name);
        }
        Some(order)
    }

    /// Plugins taken apart, each part where it is configured.
    fn parts(&self, args: &PluginArgs) -> Vec<(Box<dyn Plugin>, i64)> {
        let mut made: BTreeMap<&str, Arc<dyn Plugin>> = BTreeMap::new();
        let mut parts: Vec<(Box<dyn Plugin>, i64)> = Vec::new();
        let points = [PreEnqueue, Filter, PreFilter, PostFilter, Score, Reserve, PreBind];
        for (point, name) in
            points.iter().flat_map(|point| self.at(*point).iter().map(move |name| (*point, *name)))
        {
            let acts = match point {
                PreEnqueue => Parts { pre_enqueue: true, ..Parts::default() },
                Filter => Parts { pre_filter: true, filter: true, ..Parts::default() },
                // Only what its filter is not there for.
                PreFilter if self.has(Filter, name) => continue,
                PreFilter => Parts { pre_filter: true, ..Parts::default() },
                PostFilter => Parts { post_filter: true, ..Parts::default() },
                Score => Parts { score: true, ..Parts::default() },
                Reserve => Parts { reserve: true, ..Parts::default() },
                _ => Parts { pre_bind: true, ..Parts::default() },
            };
            let first = !made.contains_key(name);
            if first && let Some(plugin) = plugins::make(name, args) {
                made.insert(name, Arc::from(plugin));
            }
            let Some(plugin) = made.get(name) else { continue };
            let part = Part::new(Arc::clone(plugin), Parts { hints: first, ..acts });
            parts.push((Box::new(part), self.weights.get(name).copied().unwrap_or_default()));
        }
        parts
    }
}

/// What a score weighs: as its point says, or else as all points say; 1 if nothing does.
fn weights(sets: &PluginSets, merged: &[Enabled]) -> BTreeMap<&'static str, i64> {
    let mut weights = BTreeMap::new();
    let own = sets.points.get(&Score).map(|set| set.enabled.as_slice()).unwrap_or_default();
    for enabled in own.iter().chain(merged) {
        if let Some(known) = find(&enabled.name).filter(|known| known.points.contains(&Score)) {
            let weight = if enabled.weight == 0 { 1 } else { enabled.weight };
            weights.entry(known.name).or_insert(weight);
        }
    }
    weights
}

/// The plugins of one point: first those that the file re-configures there, then those of all points, then the
/// others that the file enables there.
fn plugins_of(
    point: Point,
    own: &PluginSet,
    merged: &[Enabled],
    path: &str,
) -> Result<Vec<&'static str>, FieldError> {
    let mut specific = Vec::new();
    for enabled in &own.enabled {
        let wrong = |problem: String| FieldError { path: enabled.path.clone(), problem };
        let known = find(&enabled.name).filter(|known| known.points.contains(&point));
        let known = known.ok_or_else(|| {
            wrong(format!("{} has nothing to do at {}: remove it here", enabled.name, name_of(point)))
        })?;
        if specific.contains(&known.name) {
            return Err(wrong(format!("{} is enabled here twice", known.name)));
        }
        specific.push(known.name);
    }
    if own.disables(EVERY) {
        return Ok(specific);
    }
    let (mut overridden, mut multi) = (BTreeSet::new(), Vec::new());
    for enabled in merged {
        let known = find(&enabled.name).filter(|known| known.points.contains(&point));
        let Some(name) = known.map(|known| known.name).filter(|name| !own.disables(name)) else { continue };
        if specific.contains(&name) {
            overridden.insert(name);
        } else if multi.contains(&name) {
            let path = if enabled.path.is_empty() { path.to_owned() } else { enabled.path.clone() };
            return Err(FieldError {
                path,
                problem: format!("{name} is enabled at {} twice", name_of(point)),
            });
        } else {
            multi.push(name);
        }
    }
    let (first, last): (Vec<_>, Vec<_>) = specific.into_iter().partition(|name| overridden.contains(name));
    Ok(first.into_iter().chain(multi).chain(last).collect())
}
