#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::devices::{
    Allocation, ClaimPlan, ClaimWork, DeviceEvent, DeviceId, Devices, Failed, Given, Request, ResourceClaim,
    Wish, allocate,
};
use crate::framework::{
    Code, Cycle, Diagnosis, Event, NodeFilter, NodeScore, Plugin, PostFilter, PreFilter, Rejection, Scale,
    Trials,
};
use crate::node::NodeInfo;
use crate::pod::{ClaimSource, PodInfo};
use crate::snapshot::{Node, Snapshot};

/// A request has at most so many alternatives; the first one scores most.
const ALTERNATIVES: i64 = 8;

/// Gives pods the devices that their claims ask for.
#[derive(Default)]
pub struct DynamicResources;

/// The claims of a pod, in its order. The error is why there are not all of them, in a sentence for the user.
fn claims_of<'a>(pod: &PodInfo, devices: &'a Devices) -> Result<Vec<&'a Arc<ResourceClaim>>, String> {
    let mut claims = Vec::new();
    let (namespace, name) = (&pod.namespace, &pod.name);
    for wanted in &pod.spec.claims {
        let (claim, generated) = match &wanted.source {
            ClaimSource::Claim(claim) => (Some(claim.as_str()), false),
            ClaimSource::Template => match pod.generated_claim(&wanted.name) {
                Some(claim) => (claim.as_deref(), true),
                None => return Err(format!("pod \"{namespace}/{name}\": ResourceClaim not created yet")),
            },
            ClaimSource::Unknown => {
                return Err(format!(
                    "pod \"{namespace}/{name}\", spec.resourceClaim {:?}: none of the supported fields are set",
                    wanted.name
                ));
            }
        };
        // A template from which no claim is made: there is nothing to wait for.
        let Some(claim) = claim else { continue };
        let Some(found) = devices.claim(namespace, claim) else {
            return Err(format!("could not find ResourceClaim \"{namespace}/{claim}\""));
        };
        if found.deleting {
            return Err(format!("resourceclaim {claim:?} is being deleted"));
        }
        if generated && found.controller.as_deref() != Some(&*pod.uid) {
            return Err(format!(
                "ResourceClaim {namespace}/{claim} was not created for Pod {namespace}/{name} (Pod is not owner)"
            ));
        }
        claims.push(found);
    }
    Ok(claims)
}

/// Why this release does not look for a node although upstream might.
fn unsupported(claims: &[&Arc<ResourceClaim>]) -> Option<String> {
    let mut seen = BTreeSet::new();
    for claim in claims {
        let key = claim.key();
        if !seen.insert(key.clone()) {
            return Some(format!("resource claim {key} is named twice by the pod, which is not supported"));
        }
        let given = claim.allocation.iter().flat_map(|allocation| &allocation.given);
        for Given { device, waits, skips, .. } in given {
            if *waits {
                return Some(waiting(device));
            }
            if *skips {
                return Some(format!(
                    "device {device} of resource claim {key} skips operations of its node, which is not supported"
                ));
            }
        }
    }
    None
}

fn waiting(device: &DeviceId) -> String {
    format!("device {device} has binding conditions, and waiting for them is not supported")
}

fn failed(problem: String) -> Rejection {
    Rejection { code: Code::Error, reasons: vec![Cow::Owned(problem)] }
}

/// Why the pod fits nowhere, whatever the nodes.
fn check(claims: &[&Arc<ResourceClaim>], devices: &Devices) -> Result<(), Rejection> {
    for claim in claims {
        if let Some(allocation) = &claim.allocation {
            if allocation.nodes.as_ref().is_some_and(|nodes| nodes.is_malformed()) {
                return Err(failed(format!(
                    "the node selector of resource claim {} is malformed",
                    claim.key()
                )));
            }
            continue;
        }
        let key = claim.key();
        if devices.is_promised(&claim.uid) {
            let reason = format!("resource claim {key} is in the process of being allocated");
            return Err(Rejection::unresolvable(reason));
        }
        for request in &claim.requests {
            let name = &request.name;
            if request.wish == Wish::Unknown {
                let reason = format!("resource claim {key}, request {name}: unknown request type");
                return Err(Rejection::unresolvable(reason));
            }
            for ask in request.asks() {
                let name =
                    if request.has_alternatives() { format!("{name}/{}", ask.name) } else { name.clone() };
                if ask.class.is_empty() {
                    return Err(failed(format!("request {name}: unsupported request type")));
                }
                if devices.class(&ask.class).is_none() {
                    let reason = format!("request {name}: device class {} does not exist", ask.class);
                    return Err(Rejection::unresolvable(reason));
                }
            }
        }
    }
    Ok(())
}

/// The claims of a pod whose node is looked for.
struct Claims<'a> {
    devices: &'a Devices,
    all: Vec<&'a Arc<ResourceClaim>>,
}

impl<'a> Claims<'a> {
    /// None: it has none. The error is why it fits nowhere.
    fn of(pod: &PodInfo, snapshot: &'a Snapshot) -> Result<Option<Self>, Rejection> {
        if pod.spec.claims.is_empty() {
            return Ok(None);
        }
        let devices = snapshot.devices();
        let all = claims_of(pod, devices).map_err(Rejection::unresolvable)?;
        if all.is_empty() {
            return Ok(None);
        }
        if let Some(reason) = unsupported(&all) {
            return Err(Rejection::unresolvable(reason));
        }
        check(&all, devices)?;
        Ok(Some(Self { devices, all }))
    }

    /// Those that have no devices yet.
    fn open(&self) -> Vec<&'a ResourceClaim> {
        self.all.iter().filter(|claim| claim.allocation.is_none()).map(|claim| &***claim).collect()
    }

    /// What the open claims get on a node.
    fn allocate(&self, node: &NodeInfo) -> Result<Vec<Allocation>, Rejection> {
        let open = self.open();
        if open.is_empty() {
            return Ok(Vec::new());
        }
        match allocate(self.devices, node, &open) {
            Ok(Some(allocations)) => {
                let mut given = allocations.iter().flat_map(|allocation| &allocation.given);
                match given.find(|given| given.waits) {
                    Some(given) => Err(Rejection::unresolvable(waiting(&given.device))),
                    None => Ok(allocations),
                }
            }
            Ok(None) => Err(Rejection::unresolvable("cannot allocate all claims")),
            Err(Failed::Node(problem)) => Err(Rejection::unresolvable(problem)),
            Err(Failed::Everywhere(problem)) => Err(failed(problem)),
        }
    }

    fn is_reachable(claim: &ResourceClaim, node: &NodeInfo) -> bool {
        let nodes = claim.allocation.as_ref().and_then(|allocation| allocation.nodes.as_ref());
        nodes.is_none_or(|nodes| nodes.matches(node))
    }
}

impl NodeFilter for Claims<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        self.allocate(&node.info)?;
        if self.all.iter().all(|claim| Self::is_reachable(claim, &node.info)) {
            Ok(())
        } else {
            Err(Rejection::unresolvable(UNREACHABLE))
        }
    }

    fn may_fail(&self) -> bool {
        !self.open().is_empty()
    }
}

const UNREACHABLE: &str = "resourceclaim not available on the node";

impl NodeScore for Claims<'_> {
    /// How early the alternatives stand that were taken.
    fn score(&self, node: &Node) -> i64 {
        let Ok(found) = self.allocate(&node.info) else { return 0 };
        if found.is_empty() {
            return 0;
        }
        let mut found = found.iter();
        let mut score = 0;
        for claim in &self.all {
            let Some(allocation) = claim.allocation.as_deref().or_else(|| found.next()) else { return score };
            score += alternatives(claim, allocation);
        }
        score
    }

    fn scale(&self) -> Scale {
        Scale::Largest { reverse: false }
    }
}

fn alternatives(claim: &ResourceClaim, allocation: &Allocation) -> i64 {
    let mut score = 0;
    for request in claim.requests.iter().filter(|request| request.has_alternatives()) {
        for (index, ask) in (0..).zip(request.asks()) {
            let full = format!("{}/{}", request.name, ask.name);
            if allocation.given.iter().any(|given| given.request == full) {
                score += ALTERNATIVES - index;
            }
        }
    }
    score
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Result<(), Rejection> {
        if cycle.pod.spec.claims.is_empty() || !cycle.snapshot.devices().is_followed() || cycle.pod.promise {
            return Ok(());
        }
        claims_of(cycle.pod, cycle.snapshot.devices()).map(drop).map_err(Rejection::unresolvable)
    }

    fn may_open(&self, event: &Event) -> bool {
        matches!(event, Event::Claims(DeviceEvent::Claim { .. }))
            || matches!(event, Event::Itself { change, .. } if change.claims)
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        match Claims::of(cycle.pod, cycle.snapshot) {
            Err(rejection) => PreFilter::Reject(rejection),
            Ok(None) => PreFilter::Skip,
            Ok(Some(claims)) => PreFilter::Filter(Box::new(claims)),
        }
    }

    /// Takes devices back from a claim of the pod that nobody else uses and that some node cannot reach.
    fn post_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        diagnosis: &Diagnosis,
        _trials: &mut Trials<'_, 'a>,
    ) -> PostFilter {
        if diagnosis.pre_filter.is_some() {
            return PostFilter::Nothing;
        }
        let Ok(Some(claims)) = Claims::of(cycle.pod, cycle.snapshot) else { return PostFilter::Nothing };
        let said = |reason: &Cow<'static, str>| reason == UNREACHABLE;
        let nodes = diagnosis
            .refused
            .iter()
            .filter(|node| node.refusal.plugin == self.name() && node.refusal.reasons.iter().any(said));
        let nodes: Vec<_> = nodes.filter_map(|node| cycle.snapshot.node(&node.node)).collect();
        let unused = claims.all.iter().find(|claim| {
            let mine = match claim.reserved_for.as_slice() {
                [] => true,
                [one] => **one == *cycle.pod.uid,
                _ => false,
            };
            mine && nodes.iter().any(|node| !Claims::is_reachable(claim, &node.info))
        });
        match unused {
            None => PostFilter::Nothing,
            Some(claim) => PostFilter::Deallocate {
                claim: (Arc::clone(&claim.namespace), Arc::clone(&claim.name)),
                message: "deallocation of ResourceClaim completed".to_owned(),
            },
        }
    }

    fn prefers(&self, cycle: Cycle<'_>) -> bool {
        !cycle.pod.spec.claims.is_empty()
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let claims = Claims::of(cycle.pod, cycle.snapshot).ok()??;
        let mut requests = claims.all.iter().flat_map(|claim| &claim.requests);
        let choosy = requests.any(Request::has_alternatives);
        choosy.then(|| -> Box<dyn NodeScore + 'a> { Box::new(claims) })
    }

    fn claims(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<Option<ClaimPlan>, Rejection> {
        let Some(claims) = Claims::of(cycle.pod, cycle.snapshot)? else { return Ok(None) };
        let mut found = claims.allocate(node)?.into_iter();
        let mut work = Vec::new();
        for claim in &claims.all {
            if claim.allocation.is_none() {
                work.push(ClaimWork::new(claim, found.next()));
            } else if !claim.reserved_for.iter().any(|uid| **uid == *cycle.pod.uid) {
                work.push(ClaimWork::new(claim, None));
            }
        }
        Ok((!work.is_empty()).then_some(ClaimPlan { work }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        match event {
            Event::Node { change, .. } => change.added || change.labels || change.allocatable,
            Event::Devices { new, .. } => new.is_some(),
            Event::Claims(DeviceEvent::Slice { .. }) => true,
            Event::Claims(DeviceEvent::Claim { old, new }) => {
                claim_hint(old.as_deref(), new.as_deref(), cycle)
            }
            Event::Itself { change, .. } => {
                change.claims && claims_of(cycle.pod, cycle.snapshot.devices()).is_ok()
            }
            _ => false,
        }
    }
}

fn claim_hint(old: Option<&ResourceClaim>, new: Option<&ResourceClaim>, cycle: Cycle<'_>) -> bool {
    let had = old.is_some_and(ResourceClaim::is_allocated);
    let Some(new) = new else { return had };
    let Ok(claims) = claims_of(cycle.pod, cycle.snapshot.devices()) else { return false };
    if had && !new.is_allocated() {
        return true;
    }
    let uses = claims.iter().any(|claim| claim.uid == new.uid);
    uses && old.is_none_or(|old| old.status != new.status)
}
