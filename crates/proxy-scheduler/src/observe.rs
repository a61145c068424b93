//! Raw objects, reduced to what the machine looks at.

use crate::machine::{
    ChaperonSeen, ClaimHome, ClaimSeen, Election, Grant, GrantKind, Group, GroupKind, GroupSeen, Hold, Id,
    Lease, Name, Place, PodSeen, Preference, Promise, Refusal, ScoreSeen, Seed, Stage, Summary, TargetSeen,
    Width, Wish,
};
use api::claims::{self, Whereabouts};
use api::conditions::{Kind, is_true};
use api::delegate::{Destination, Origin, chaperon};
use api::preference::{parse_deadline, parse_order, parse_score_weights, parse_weights};
use api::raw::{coscheduling, workload};
use api::v1alpha1::LabelRewriting;
use api::{ClusterSummary, Node, Pod, PodChaperon, TargetScore, keys, names, raw};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use k8s_openapi::jiff::Timestamp;
use runtime::{Connection, Target};
use scheduling::{Labels, NodeInfo, PodInfo, Quantity, ResourceList};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// What a promise lasts that does not say.
const PROMISE: Duration = Duration::from_secs(30);

/// Annotation by which older clients name the class of a claim.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Who asks: the source.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name of the source; may be empty.
    pub name: String,
    /// UID of the source.
    pub uid: String,
}

impl Source {
    /// The same for the construction of delegates.
    #[must_use]
    pub fn origin(&self) -> Origin<'_> {
        Origin { cluster_name: &self.name, cluster_uid: &self.uid }
    }
}

/// A proxy pod.
#[must_use]
pub fn pod(mut pod: Pod, source: &Source) -> PodSeen {
    pod.metadata.managed_fields = None;
    let uid = Id::from(pod.uid());
    let condition = raw::pod_condition(&pod.status, "PodScheduled");
    let shown = condition
        .filter(|condition| condition["status"] == "False" && condition["reason"] == "Unschedulable")
        .and_then(|condition| condition["message"].as_str())
        .map(str::to_owned);
    let (version, terminating) = (pod.resource_version().to_owned(), pod.is_terminating());
    let finished = raw::is_terminal(pod.phase());
    let name = Name { namespace: pod.namespace().into(), name: pod.name().into() };
    let (group, owned) = (group(&pod), pod.controller().is_some());
    let start_deadline = pod.annotation(keys::START_DEADLINE).and_then(|text| parse_deadline(text).ok());
    let (info, misread) = match info(&pod) {
        Ok(info) => (Arc::new(info), None),
        Err(error) => (Arc::new(blank(&pod)), Some(error)),
    };
    let (gang, misgrouped) = match gang(&pod) {
        Ok(gang) => (gang.map(Arc::new), None),
        Err(reason) => (None, Some(reason)),
    };
    let place = if pod.node().is_empty() {
        Place::Unbound(Arc::new(wish(pod, source, Arc::clone(&info), misread.or(misgrouped))))
    } else {
        Place::Bound { node: pod.node().into(), election: election(&pod) }
    };
    PodSeen {
        uid,
        name,
        version,
        terminating,
        finished,
        place,
        info,
        group,
        gang,
        owned,
        start_deadline,
        shown,
    }
}

/// The group that a pod says it belongs to; an error for one of which nobody can say how many must fit.
fn gang(pod: &Pod) -> Result<Option<Group>, String> {
    let named = pod.annotation(keys::GROUP).or_else(|| pod.label(keys::POD_GROUP));
    let named = named.filter(|name| !name.is_empty()).map(|name| (name, GroupKind::Coscheduling));
    let in_spec = pod.spec.pointer("/schedulingGroup/podGroupName").and_then(Value::as_str);
    let in_spec = in_spec.map(|name| (name, GroupKind::Workload));
    let Some((name, kind)) = named.or(in_spec) else { return Ok(None) };
    let least = match pod.annotation(keys::GROUP_MIN_MEMBER) {
        None => None,
        Some(text) => match text.parse() {
            Ok(least) if least > 0 => Some(least),
            _ => {
                return Err(format!(
                    "annotation {} of group {name} is no number of pods",
                    keys::GROUP_MIN_MEMBER
                ));
            }
        },
    };
    let together = pod.annotation(keys::GROUP_PLACEMENT) != Some(keys::GROUP_ANY_TARGET);
    Ok(Some(Group { name: format!("{}/{name}", pod.namespace()).into(), least, kind, together }))
}

fn group(pod: &Pod) -> u64 {
    let mut hasher = DefaultHasher::new();
    pod.controller().map_or(pod.namespace(), |(_, _, uid)| uid).hash(&mut hasher);
    hasher.finish()
}

fn election(pod: &Pod) -> Option<Election> {
    Some(Election {
        target_uid: pod.annotation(keys::ELECTED_TARGET)?.into(),
        chaperon_uid: pod.annotation(keys::ELECTED_CHAPERON)?.into(),
        epoch: epoch(pod),
        lease: lease(|key| pod.annotation(key)),
    })
}

fn lease<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Lease> {
    let number = |key: &str| annotation(key).and_then(|text| text.parse().ok());
    Some(Lease { epoch: number(keys::FENCE_EPOCH)?, grace: number(keys::FENCE_GRACE_SECONDS)? })
}

fn epoch(pod: &Pod) -> u64 {
    pod.annotation(keys::ELECTION_EPOCH).and_then(|epoch| epoch.parse().ok()).unwrap_or_default()
}

fn wish(pod: Pod, source: &Source, info: Arc<PodInfo>, misread: Option<String>) -> Wish {
    // Targets differ in the labels that name them, which do not count for the class.
    let nowhere = Destination { cluster_uid: "", virtual_node: "", labels: LabelRewriting::Rewrite };
    let (template, unreadable) = match chaperon(&pod, source.origin(), nowhere) {
        Ok(template) => (template, None),
        Err(error) => (PodChaperon::default(), Some(runtime::Chain(&error).to_string())),
    };
    let class = template.annotation(keys::SPEC_HASH).unwrap_or_default();
    let class = Id::from(format!("{}/{class}", pod.namespace()));
    let hold = hold(&info, unreadable.or(misread));
    let width = pod.annotation(keys::ASK).and_then(Width::parse);
    let epoch = epoch(&pod);
    let grant = pod.annotation(keys::GRANT).map(GrantKind::parse);
    let grant = grant.zip(election(&pod)).map(|(kind, election)| Grant { kind, election });
    let is_direct = pod.annotation(keys::NO_RESERVATION).is_some();
    // What admission let pass can be read; pods from before it go where there is room.
    let preference = Preference {
        order: pod.annotation(keys::TARGET_ORDER).and_then(|text| parse_order(text).ok()).unwrap_or_default(),
        weights: pod
            .annotation(keys::TARGET_WEIGHT)
            .and_then(|text| parse_weights(text).ok())
            .unwrap_or_default(),
        scores: pod
            .annotation(keys::SCORE_WEIGHT)
            .and_then(|text| parse_score_weights(text).ok())
            .unwrap_or_default(),
    };
    Wish {
        info,
        class,
        width,
        preference,
        hold,
        epoch,
        grant,
        is_direct,
        seed: Arc::new(Seed { pod, template }),
    }
}

fn info(pod: &Pod) -> Result<PodInfo, String> {
    let value = json!({
        "metadata": {
            "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid(), "labels": pod.metadata.labels,
            "deletionTimestamp": pod.metadata.deletion_timestamp,
        },
        "spec": between_clusters(pod.spec.clone()),
    });
    PodInfo::parse(&value).map_err(|error| error.to_string())
}

/// Of virtual nodes, one that is cordoned or cut off is no domain to spread over, unless the pod says that it is: a
/// whole cluster may be away for long, and would keep all others from taking any more.
fn between_clusters(mut spec: Value) -> Value {
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten().filter_map(Value::as_object_mut) {
        constraint.entry("nodeTaintsPolicy").or_insert_with(|| json!("Honor"));
    }
    spec
}

/// What stands for a pod that cannot be read: it is held, and never ranked.
fn blank(pod: &Pod) -> PodInfo {
    let value = json!({"metadata": {"namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()}});
    PodInfo::parse(&value).expect("a pod without a spec has nothing that could be misread")
}

fn hold(info: &PodInfo, unreadable: Option<String>) -> Hold {
    if !info.spec.gates.is_empty() {
        return Hold::Gated;
    }
    if let Some(reason) = unreadable {
        return Hold::Because(reason);
    }
    if let Some(refusal) = info.spec.claim_refusal() {
        return Hold::Because(refusal);
    }
    Hold::No
}

/// A claim of this cluster.
#[must_use]
pub fn claim(claim: &PersistentVolumeClaim, source: &Source) -> ClaimSeen {
    let metadata = &claim.metadata;
    let raw = json!({"metadata": {"annotations": metadata.annotations}, "spec": claim.spec});
    let home = match claims::whereabouts(&raw) {
        Whereabouts::Anywhere => ClaimHome::Anywhere,
        Whereabouts::TargetsOwn => ClaimHome::TargetsOwn,
        Whereabouts::Home(cluster) => {
            let why = format!("has its data in the cluster with UID {cluster}");
            ClaimHome::Cluster(cluster.as_str().into(), why)
        }
        Whereabouts::Source(volume) => {
            let why = match volume.as_str() {
                "" => "gets a volume in the source".to_owned(),
                volume => format!("has its data in the source, in PersistentVolume {volume}"),
            };
            ClaimHome::Cluster(source.uid.as_str().into(), why)
        }
    };
    ClaimSeen {
        name: Name {
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        },
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        home,
        deleting: metadata.deletion_timestamp.is_some(),
        raw: Arc::new(json!({
            "metadata": {"annotations": {CLASS: metadata.annotations.as_ref().and_then(|all| all.get(CLASS))}},
            "spec": raw["spec"],
        })),
    }
}

/// A namespace: its name and labels.
#[must_use]
pub fn namespace(namespace: Namespace) -> (String, Labels) {
    let labels = namespace.metadata.labels.unwrap_or_default();
    (namespace.metadata.name.unwrap_or_default(), labels.iter().collect())
}

/// A PodGroup of `scheduling.x-k8s.io`.
#[must_use]
pub fn coscheduling_group(group: &coscheduling::PodGroup) -> GroupSeen {
    GroupSeen { name: group.full_name().into(), least: Some(group.min_member()) }
}

/// A PodGroup of Kubernetes itself.
#[must_use]
pub fn workload_group(group: &workload::PodGroup) -> GroupSeen {
    GroupSeen { name: group.full_name().into(), least: group.min_count() }
}

/// A published score, as it is at a time.
#[must_use]
pub fn score(score: TargetScore, now: Timestamp) -> ScoreSeen {
    let (left, observed) = (score.left(now), score.observed_at());
    let spec = score.spec;
    ScoreSeen {
        object: score.metadata.name.unwrap_or_default().into(),
        namespace: spec.target_ref.namespace.unwrap_or_default(),
        target: spec.target_ref.name.into(),
        score: spec.score.into(),
        value: u8::try_from(spec.value.clamp(0, 100)).unwrap_or_default(),
        observed: observed.map_or(i64::MIN, Timestamp::as_millisecond),
        left,
    }
}

/// A virtual node; `None` for one that cannot be read.
#[must_use]
pub fn node(node: &Node) -> Option<NodeInfo> {
    let value = json!({"metadata": {"name": node.name(), "labels": node.metadata.labels}, "spec": node.spec, "status": node.status});
    NodeInfo::parse(&value).ok()
}

/// A PodChaperon of this source in a target; `None` for one that belongs to another virtual node or cluster.
#[must_use]
pub fn podchaperon(chaperon: &PodChaperon, virtual_node: &str, cluster_uid: &str) -> Option<ChaperonSeen> {
    let own_node = chaperon.label(keys::VIRTUAL_NODE) == Some(&names::label_value(virtual_node));
    let own_cluster = chaperon.label(keys::TARGET_UID) == Some(cluster_uid);
    if !own_node || !own_cluster || chaperon.parent_uid().is_empty() {
        return None;
    }
    let lasts = chaperon.annotation(keys::RESERVED_SECONDS).and_then(|seconds| seconds.parse().ok());
    let promise = chaperon.is_reserved().then(|| Promise {
        attempt: chaperon.reserved_attempt(),
        lasts: lasts.map_or(PROMISE, Duration::from_secs),
    });
    Some(ChaperonSeen {
        parent: chaperon.parent_uid().into(),
        name: Name { namespace: chaperon.namespace().into(), name: chaperon.name().into() },
        uid: chaperon.uid().into(),
        version: chaperon.resource_version().to_owned(),
        attempt: chaperon.attempt(),
        promise,
        reserved_attempt: chaperon.reserved_attempt(),
        refused: refused(&chaperon.status),
        allowed: chaperon.is_allowed(),
        grant: chaperon.is_allowed() && chaperon.is_granted(),
        revoked: chaperon.is_revoked(),
        stage: stage(&chaperon.status),
        terminating: chaperon.is_terminating(),
        finalizers: chaperon.metadata.finalizers.clone().unwrap_or_default(),
        lease: lease(|key| chaperon.annotation(key)),
        claims: claims::followings(chaperon.annotation(keys::CLAIMS))
            .into_iter()
            .map(|(name, claim)| (name, claim.uid))
            .collect(),
    })
}

/// Only that the delegate has no node, or has one, is taken from what is written.
fn stage(status: &Value) -> Stage {
    let says = |kind: &str, value: &str| {
        raw::pod_condition(status, kind).is_some_and(|condition| condition["status"] == value)
    };
    let phase = status["phase"].as_str().unwrap_or_default();
    if raw::confirms_revocation(status) {
        Stage::Revoked
    } else if says("PodScheduled", "True") || phase == "Running" || raw::is_terminal(phase) {
        Stage::Placed
    } else if says("PodScheduled", "False") || says(keys::DELEGATE_CREATED, "False") {
        Stage::Unplaced
    } else {
        Stage::Unknown
    }
}

fn refused(status: &Value) -> Option<Refusal> {
    let condition = raw::pod_condition(status, "PodScheduled").filter(|found| found["status"] == "False")?;
    let text = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    let message = text("message").or_else(|| text("reason")).unwrap_or("refused without a reason");
    Some(Refusal {
        message: message.to_owned(),
        preempts: condition["reason"] == keys::PREEMPTION_HELPS,
        stamp: text("lastProbeTime").or_else(|| text("lastTransitionTime")).unwrap_or_default().to_owned(),
    })
}

/// A ClusterSummary.
#[must_use]
pub fn summary(summary: ClusterSummary) -> Summary {
    Summary {
        labels: summary.metadata.labels.unwrap_or_default(),
        allocatable: amounts(&summary.allocatable),
        free: amounts(&summary.free),
    }
}

/// What cannot be read is not there.
fn amounts(list: &BTreeMap<String, String>) -> ResourceList {
    list.iter().filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount).ok()?))).collect()
}

/// A Target or ClusterTarget.
#[must_use]
pub fn target(target: &Target, source: &Source) -> TargetSeen {
    TargetSeen {
        id: target.virtual_node().into(),
        name: target.key.name.as_str().into(),
        namespace: target.key.namespace.clone(),
        cluster_uid: target.status.cluster_uid.clone().unwrap_or_default().into(),
        is_self: target.settings.is_self || target.status.cluster_uid.as_ref() == Some(&source.uid),
        width: target.settings.ask.as_deref().and_then(Width::parse),
        order: target.settings.order,
        weight: target.settings.weight,
        start_deadline: target.settings.start_deadline.as_deref().and_then(|text| parse_deadline(text).ok()),
        unusable: unusable(target),
    }
}

fn unusable(target: &Target) -> Option<String> {
    match &target.connection {
        Connection::Broken { message, .. } => return Some(message.clone()),
        Connection::Pending => return Some("its kubeconfig has not been read yet".to_owned()),
        Connection::Up { .. } => (),
    }
    if target.deleting {
        return Some("its Target is being deleted".to_owned());
    }
    if target.is_fenced() {
        return Some("it is fenced".to_owned());
    }
    let conditions = &target.status.conditions;
    if is_true(conditions, Kind::Accepted) {
        return target.status.cluster_uid.is_none().then(|| "its identity is not known yet".to_owned());
    }
    let accepted = conditions.iter().find(|condition| condition.type_ == Kind::Accepted.as_str());
    let message = accepted.map(|condition| condition.message.clone()).filter(|message| !message.is_empty());
    Some(message.unwrap_or_else(|| "the target has not been accepted yet".to_owned()))
}

#[cfg(test)]
mod tests;
