//! How much a pod asks for.

use std::collections::BTreeMap;

use crate::field::{Field, FieldError};
use crate::quantity::Quantity;
use crate::resources::{Kind, ResourceList, Resources, add_list, is_pod_level, max_list};

/// What scoring assumes of a container that names no CPU or memory.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// A pod's requests, as each reader wants them. What follows from other parts is left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Requests {
    /// In integers; what filters compare and nodes sum up.
    pub(crate) total: Resources,
    /// CPU (milli) and memory with defaults for what containers leave out; what nodes sum up for scoring.
    pub(crate) non_zero: (i64, i64),
    /// The exact amounts, where the total rounds them or leaves one out.
    exact: Option<Box<ResourceList>>,
    /// Every resource, with those defaults but without pod-level requests, where that is something else.
    scoring: Option<Box<Resources>>,
}

impl Requests {
    pub(crate) fn parse(pod: &Field<'_>) -> Result<Self, FieldError> {
        let pod = Pod::parse(pod)?;
        let list = pod.requests(&ResourceList::new(), true);
        let defaults = defaults(&pod, &list);
        let non_zero = if defaults.is_empty() { list.clone() } else { pod.requests(&defaults, true) };
        let scoring =
            if pod.has_pod_level() { pod.requests(&every_default(), false) } else { non_zero.clone() };
        let mut requests = Self {
            total: Resources::from_list(&list),
            non_zero: cpu_and_memory(&non_zero),
            exact: None,
            scoring: None,
        };
        requests.exact = (requests.list() != list).then(|| Box::new(list));
        let scoring = Resources::from_list(&scoring);
        let plain = requests.scores(&scoring);
        requests.scoring = (!plain).then(|| Box::new(scoring));
        Ok(requests)
    }

    /// True if [`Self::to_score`] says so without help.
    fn scores(&self, scoring: &Resources) -> bool {
        let (milli_cpu, memory) = self.non_zero;
        *scoring == Resources { milli_cpu, memory, ..self.total.clone() }
    }

    /// Of a resource, what scoring adds for the incoming pod.
    pub(crate) fn to_score(&self, kind: Kind<'_>) -> i64 {
        match (&self.scoring, kind) {
            (Some(scoring), kind) => scoring.of(kind),
            (None, Kind::Cpu) => self.non_zero.0,
            (None, Kind::Memory) => self.non_zero.1,
            (None, other) => self.total.of(other),
        }
    }

    /// The exact amounts.
    pub(crate) fn list(&self) -> ResourceList {
        match &self.exact {
            Some(list) => (**list).clone(),
            None => self
                .total
                .asks()
                .map(|(kind, amount)| (kind.name().to_owned(), kind.quantity(amount)))
                .collect(),
        }
    }

    /// By how much the exact amounts differ from the total, resource by resource.
    pub(crate) fn rounded(&self) -> impl Iterator<Item = (&str, Quantity)> {
        let exact = self.exact.iter().flat_map(|list| list.iter());
        exact.map(|(name, amount)| {
            let kind = Kind::of(name);
            (name.as_str(), amount - &kind.quantity(self.total.of(kind)))
        })
    }
}

fn cpu_and_memory(list: &ResourceList) -> (i64, i64) {
    let cpu = list.get("cpu").map(Quantity::milli).unwrap_or_default();
    (cpu, list.get("memory").map(Quantity::value).unwrap_or_default())
}

fn every_default() -> ResourceList {
    ResourceList::from([
        ("cpu".to_owned(), Quantity::from_milli(DEFAULT_MILLI_CPU)),
        ("memory".to_owned(), Quantity::from_units(DEFAULT_MEMORY)),
    ])
}

/// With pod-level requests only what is absent altogether gets a default.
fn defaults(pod: &Pod, requests: &ResourceList) -> ResourceList {
    let mut defaults = every_default();
    if pod.has_pod_level() {
        defaults.retain(|name, _| !requests.contains_key(name));
    }
    defaults
}

struct Container {
    spec: ResourceList,
    /// What the kubelet has set aside.
    allocated: Option<ResourceList>,
    /// What runs now.
    actual: Option<ResourceList>,
    /// An init container that keeps running.
    sidecar: bool,
}

#[derive(Clone, Copy)]
enum View {
    Spec,
    Allocated,
    Actual,
}

/// A resize in place shows in the status before or after the spec; the larger amount counts.
struct Pod {
    containers: Vec<Container>,
    init: Vec<Container>,
    pod_level: ResourceList,
    status_allocated: Option<ResourceList>,
    status_requests: Option<ResourceList>,
    has_status_resources: bool,
    overhead: ResourceList,
    /// The kubelet has said that the spec's new amounts will never fit.
    infeasible: bool,
}

impl Pod {
    fn parse(pod: &Field<'_>) -> Result<Self, FieldError> {
        let (spec, status) = (pod.get("spec"), pod.get("status"));
        let mut statuses = BTreeMap::new();
        for list in ["initContainerStatuses", "containerStatuses"] {
            for item in status.get(list).items()? {
                statuses.insert(item.get("name").text()?.unwrap_or_default(), item);
            }
        }
        let containers = |key: &str| {
            let items = spec.get(key).items()?;
            items.iter().map(|item| container(item, &statuses)).collect::<Result<Vec<_>, FieldError>>()
        };
        let mut infeasible = false;
        for condition in status.get("conditions").items()? {
            if condition.get("type").text()? == Some("PodResizePending") {
                infeasible = condition.get("reason").text()? == Some("Infeasible");
                break;
            }
        }
        Ok(Self {
            containers: containers("containers")?,
            init: containers("initContainers")?,
            pod_level: spec.get("resources").get("requests").resource_list()?,
            status_allocated: optional_list(&status.get("allocatedResources"))?,
            status_requests: optional_list(&status.get("resources").get("requests"))?,
            has_status_resources: status.get("resources").present(),
            overhead: spec.get("overhead").resource_list()?,
            infeasible,
        })
    }

    fn has_pod_level(&self) -> bool {
        self.pod_level.keys().any(|name| is_pod_level(name))
    }

    fn requests(&self, defaults: &ResourceList, pod_level: bool) -> ResourceList {
        let mut requests = self.container_requests(defaults);
        if pod_level && self.has_pod_level() {
            for (name, amount) in self.pod_level_requests() {
                if is_pod_level(&name) {
                    requests.insert(name, amount);
                }
            }
        }
        add_list(&mut requests, &self.overhead);
        requests
    }

    /// True if the status may say other amounts than the spec.
    fn resizes(&self) -> bool {
        let mut containers = self.containers.iter().chain(&self.init);
        let in_status =
            containers.any(|container| container.allocated.is_some() || container.actual.is_some());
        in_status || self.infeasible || self.status_allocated.is_some() || self.status_requests.is_some()
    }

    fn pod_level_requests(&self) -> ResourceList {
        if !self.has_status_resources {
            return self.pod_level.clone();
        }
        let mut requests = if self.infeasible { ResourceList::new() } else { self.pod_level.clone() };
        for list in [&self.status_requests, &self.status_allocated].into_iter().flatten() {
            max_list(&mut requests, list);
        }
        requests
    }

    fn container_requests(&self, defaults: &ResourceList) -> ResourceList {
        if !self.resizes() {
            return self.aggregate(View::Spec, defaults);
        }
        let (allocated, actual) = match (&self.status_allocated, &self.status_requests) {
            (Some(allocated), Some(actual)) => (allocated.clone(), actual.clone()),
            _ => (self.aggregate(View::Allocated, defaults), self.aggregate(View::Actual, defaults)),
        };
        let mut requests =
            if self.infeasible { ResourceList::new() } else { self.aggregate(View::Spec, defaults) };
        max_list(&mut requests, &actual);
        max_list(&mut requests, &allocated);
        requests
    }

    /// The containers and sidecars together, or the largest init step if that is more.
    fn aggregate(&self, view: View, defaults: &ResourceList) -> ResourceList {
        let mut sum = ResourceList::new();
        for container in &self.containers {
            add_list(&mut sum, &container.requests(view, self.infeasible, defaults));
        }
        let (mut sidecars, mut peak) = (ResourceList::new(), ResourceList::new());
        for container in &self.init {
            let own = container.requests(view, self.infeasible, defaults);
            if container.sidecar {
                add_list(&mut sum, &own);
                add_list(&mut sidecars, &own);
                max_list(&mut peak, &sidecars);
            } else {
                let mut step = own;
                add_list(&mut step, &sidecars);
                max_list(&mut peak, &step);
            }
        }
        max_list(&mut sum, &peak);
        sum
    }
}

impl Container {
    fn requests(&self, view: View, infeasible: bool, defaults: &ResourceList) -> ResourceList {
        let from_spec = || if infeasible { ResourceList::new() } else { self.spec.clone() };
        let mut requests = match view {
            View::Spec => self.spec.clone(),
            View::Allocated => self.allocated.clone().unwrap_or_else(from_spec),
            View::Actual => self.actual.clone().or_else(|| self.allocated.clone()).unwrap_or_else(from_spec),
        };
        for (name, amount) in defaults {
            requests.entry(name.clone()).or_insert(*amount);
        }
        requests
    }
}

fn container(field: &Field<'_>, statuses: &BTreeMap<&str, Field<'_>>) -> Result<Container, FieldError> {
    let status = statuses.get(field.get("name").text()?.unwrap_or_default());
    let (allocated, actual) = match status {
        None => (None, None),
        Some(status) => (
            optional_list(&status.get("allocatedResources"))?,
            optional_list(&status.get("resources").get("requests"))?,
        ),
    };
    Ok(Container {
        spec: field.get("resources").get("requests").resource_list()?,
        allocated,
        actual,
        sidecar: field.get("restartPolicy").text()? == Some("Always"),
    })
}

fn optional_list(field: &Field<'_>) -> Result<Option<ResourceList>, FieldError> {
    if field.present() { field.resource_list().map(Some) } else { Ok(None) }
}
