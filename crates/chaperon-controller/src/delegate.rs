//! The delegate: how it is made, and what its status proves.

use api::updates::Updates;
use api::{Pod, PodChaperon, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Reasons by which a kubelet refuses a pod that it was given, besides those that begin with
/// [`OUT_OF`]. A pod that failed for any other reason has ended. `Evicted` is none of them: older kubelets
/// drop the container statuses of what they evict, so that a pod which ran looks as if it had not.
const REFUSALS: &[&str] = &[
    "AppArmor",
    "InvalidNodeInfo",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeShutdown",
    "NodeUnschedulable",
    "PodFeatureUnsupported",
    "PodLevelResourcesNotSupported",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "SysctlForbidden",
    "TaintToleration",
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "UnexpectedPredicateFailureType",
];
/// Begins the reason of a kubelet that lacks a resource: `OutOfcpu`, `OutOfpods`.
const OUT_OF: &str = "OutOf";
/// Reasons that a kubelet gives a pod which it ended by itself, not because the pod was deleted.
const ENDED_BY_KUBELET: &[&str] =
    &["DeadlineExceeded", "Evicted", "NodeShutdown", "Preempting", "Shutdown", "Terminated"];

/// The field of a spec with containers that are added to a pod while it runs, for people who look for a fault.
pub(crate) const EPHEMERAL: &str = "ephemeralContainers";

/// The pod that stands for a PodChaperon: its name, labels, annotations and spec, and a finalizer that
/// holds its last status until that is recorded. With a node it needs no scheduler any more.
#[must_use]
pub fn build(chaperon: &PodChaperon, node: Option<&str>) -> Pod {
    let mut pod = Pod { spec: chaperon.spec.clone(), ..Pod::default() };
    if let Some(spec) = pod.spec.as_object_mut() {
        // Those belonged to an earlier pod; none is created with them.
        spec.remove(EPHEMERAL);
        if let Some(node) = node {
            spec.insert("nodeName".to_owned(), Value::from(node));
        }
    }
    pod.metadata.name = Some(chaperon.name().to_owned());
    pod.metadata.namespace = Some(chaperon.namespace().to_owned());
    pod.metadata.labels = chaperon.metadata.labels.clone();
    pod.metadata.annotations = chaperon.metadata.annotations.clone();
    // What was changed on the proxy pod since it was submitted; the annotation that says so is there already.
    Updates::read(chaperon.annotation(keys::UPDATES)).apply(&mut pod);
    pod.metadata.finalizers = Some(vec![keys::CHAPERON_FINALIZER.to_owned()]);
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "multicluster.admiralty.io/v1alpha1".to_owned(),
        kind: "PodChaperon".to_owned(),
        name: chaperon.name().to_owned(),
        uid: chaperon.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    pod
}

/// The ephemeral containers that a delegate lacks.
pub(crate) fn lacks(chaperon: &PodChaperon, pod: &Pod) -> Vec<Value> {
    let of = |spec: &Value| spec.get(EPHEMERAL).and_then(Value::as_array).cloned().unwrap_or_default();
    let there = of(&pod.spec);
    let mut wanted = of(&chaperon.spec);
    wanted.retain(|container| !there.iter().any(|known| known["name"] == container["name"]));
    wanted
}

/// Whether the pod is controlled by a PodChaperon, this one or a predecessor of its name.
#[must_use]
pub fn is_delegate(pod: &Pod) -> bool {
    pod.controller().is_some_and(|(kind, _, _)| kind == "PodChaperon")
}

/// Whether the pod is this PodChaperon's. The name alone proves nothing: a predecessor had it too.
#[must_use]
pub fn belongs(pod: &Pod, chaperon: &PodChaperon) -> bool {
    pod.controller().is_some_and(|(kind, _, uid)| kind == "PodChaperon" && uid == chaperon.uid())
}

/// Whether the PodChaperon still has the whole spec; caches keep less while a delegate exists.
#[must_use]
pub fn has_spec(chaperon: &PodChaperon) -> bool {
    chaperon.spec.get("containers").is_some()
}

/// Whether a delegate that is created on its node needs nothing that only a scheduler does: claims are bound
/// and allocated when a pod is, and gates hold it back from that.
#[must_use]
pub fn needs_no_scheduler(chaperon: &PodChaperon) -> bool {
    let items = |field: &str| chaperon.spec.get(field).and_then(Value::as_array).into_iter().flatten();
    let claims = |volume: &Value| {
        ["persistentVolumeClaim", "ephemeral"].iter().any(|source| volume.get(source).is_some())
    };
    chaperon.spec["schedulerName"] == keys::CANDIDATE_SCHEDULER
        && !items("volumes").any(claims)
        && ["resourceClaims", "schedulingGates"].iter().all(|field| items(field).next().is_none())
}

/// Whether the delegate runs until it is deleted. The API server's default is `Always`.
#[must_use]
pub fn runs_for_ever(chaperon: &PodChaperon) -> bool {
    matches!(chaperon.spec.get("restartPolicy").and_then(Value::as_str), None | Some("Always"))
}

/// The statuses of all containers, init and ephemeral ones included.
fn containers(status: &Value) -> impl Iterator<Item = &Value> {
    ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .filter_map(|kind| status.get(kind)?.as_array())
        .flatten()
}

/// Whether any container has run, as far as was reported.
#[must_use]
pub fn has_run(status: &Value) -> bool {
    containers(status).any(|container| {
        let state = |of: &str, kind: &str| container.get(of).and_then(|state| state.get(kind)).is_some();
        state("state", "running")
            || container.pointer("/state/terminated/startedAt").is_some_and(Value::is_string)
            || state("lastState", "terminated")
            || container["restartCount"].as_u64().is_some_and(|count| count > 0)
            || container["started"] == true
    })
}

/// Whether a kubelet refused the pod before any container of it ran: nothing was done, so nothing ended.
///
/// A kubelet that restarts judges its running pods again, and may drop what it had reported of them; see
/// [`was_refused`].
#[must_use]
pub fn is_refused(pod: &Pod) -> bool {
    let reason = pod.status.get("reason").and_then(Value::as_str).unwrap_or_default();
    pod.phase() == "Failed"
        && !pod.node().is_empty()
        && (reason.starts_with(OUT_OF) || REFUSALS.contains(&reason))
        && !has_run(&pod.status)
}

/// Whether a kubelet refused the pod and nothing recorded before says that it had run.
#[must_use]
pub fn was_refused(pod: &Pod, recorded: &Value) -> bool {
    is_refused(pod) && recorded["phase"] != "Running" && !has_run(recorded)
}

/// Whether none of the pod's containers runs any more or ever will, as reported by who knows: the kubelet,
/// the pod garbage collector of a node that is gone, or, for a pod that was never bound, the API server,
/// which binds no terminating pod.
#[must_use]
pub fn has_stopped(pod: &Pod, now: Timestamp) -> bool {
    if api::raw::is_terminal(pod.phase()) {
        return true;
    }
    let Some(deadline) = &pod.metadata.deletion_timestamp else { return false };
    if pod.node().is_empty() {
        return true;
    }
    // Before its deadline a kubelet may not have seen the deletion yet, and restart what has terminated.
    let mut all = containers(&pod.status).peekable();
    let reported = all.peek().is_some();
    now > deadline.0 && reported && all.all(|container| container.pointer("/state/terminated").is_some())
}

/// When somebody asked for the pod's deletion.
fn deletion_asked(pod: &Pod) -> Option<Timestamp> {
    let deadline = pod.metadata.deletion_timestamp.as_ref()?;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    Some(Timestamp::from_second(deadline.0.as_second().saturating_sub(grace)).unwrap_or(deadline.0))
}

/// Whether the collector of pods gave the pod its terminal phase because the node is gone. It does so to
/// pods that have none, and deletes them a moment later.
#[must_use]
pub fn was_collected(pod: &Pod) -> bool {
    let condition = api::raw::pod_condition(&pod.status, "DisruptionTarget");
    api::raw::is_terminal(pod.phase()) && condition.is_some_and(|found| found["reason"] == "DeletionByPodGC")
}

/// Whether the terminal phase of the pod is its own end. A kubelet also writes one when a running pod is
/// merely deleted, and the collector of pods when its node is gone: for a pod that is to run for ever, that
/// is none.
#[must_use]
pub fn has_ended(pod: &Pod, for_ever: bool) -> bool {
    if !api::raw::is_terminal(pod.phase()) || for_ever && was_collected(pod) {
        return false;
    }
    let Some(asked) = deletion_asked(pod) else { return true };
    let reason = pod.status.get("reason").and_then(Value::as_str).unwrap_or_default();
    !for_ever || ENDED_BY_KUBELET.contains(&reason) || finished_before(&pod.status, asked)
}

/// Whether containers were reported and the last of them had terminated before a moment. Within the same
/// second nobody can tell, and the answer is no.
fn finished_before(status: &Value, moment: Timestamp) -> bool {
    let mut all = containers(status).peekable();
    all.peek().is_some()
        && all.all(|container| {
            let finished = container.pointer("/state/terminated/finishedAt").and_then(Value::as_str);
            finished
                .and_then(|text| text.parse::<Timestamp>().ok())
                .is_some_and(|time| time.as_second() < moment.as_second())
        })
}

#[cfg(test)]
mod tests {
    use super::{build, has_ended, has_run, has_stopped, is_refused, needs_no_scheduler, was_refused};
    use api::{Pod, PodChaperon, keys};
    use serde_json::{Value, json};

    fn pod(value: Value) -> Pod {
        let mut pod: Pod = serde_json::from_value(value).unwrap();
        if pod.spec.is_null() {
            pod.spec = json!({"nodeName": "n"});
        }
        pod
    }

    fn deleted(status: &Value) -> Pod {
        pod(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30},
            "status": status}),
        )
    }

    fn exited(at: &str) -> Value {
        json!([{"name": "c", "state": {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": at}}}])
    }

    #[test]
    fn w34_fields_that_nobody_knows_reach_the_delegate() {
        let chaperon: PodChaperon = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "labels": {"l": "1"}, "annotations": {"a": "1"}},
            "spec": {"futureField": 1, "containers": [{"name": "c", "future": true}]}})).unwrap();
        let pod = serde_json::to_value(build(&chaperon, None)).unwrap();
        assert_eq!(pod["spec"], chaperon.spec);
        assert_eq!(pod["metadata"]["finalizers"], json!([keys::CHAPERON_FINALIZER]));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
        assert_eq!(
            (&pod["metadata"]["labels"]["l"], &pod["metadata"]["annotations"]["a"]),
            (&json!("1"), &json!("1"))
        );
    }

    #[test]
    fn what_a_scheduler_must_prepare_is_left_to_it() {
        let of = |mut spec: Value| {
            spec["schedulerName"] = json!(keys::CANDIDATE_SCHEDULER);
            needs_no_scheduler(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
        };
        assert!(of(json!({"volumes": [{"name": "v", "emptyDir": {}}], "schedulingGates": []})));
        assert!(!of(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]})));
        assert!(!of(json!({"volumes": [{"name": "v", "ephemeral": {}}]})));
        assert!(!of(json!({"resourceClaims": [{"name": "c"}]})));
        assert!(!of(json!({"schedulingGates": [{"name": "g"}]})));
    }

    #[test]
    fn a_kubelet_without_room_refuses() {
        assert!(is_refused(&pod(json!({"status": {"phase": "Failed", "reason": "OutOfcpu"}}))));
        assert!(is_refused(&pod(json!({"status": {"phase": "Failed", "reason": "NodeAffinity"}}))));
    }

    #[test]
    fn what_has_run_was_not_refused() {
        let ran = json!({"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": exited("2026-01-01T00:00:09Z")});
        assert!(has_run(&ran));
        assert!(!is_refused(&pod(json!({"status": ran}))));
        let judged_again = pod(json!({"status": {"phase": "Failed", "reason": "OutOfcpu"}}));
        assert!(!was_refused(&judged_again, &json!({"phase": "Running"})));
        assert!(was_refused(&judged_again, &json!({"phase": "Pending"})));
    }

    #[test]
    fn a_container_that_never_started_has_not_run() {
        let waiting = json!({"containerStatuses": [{"name": "c", "started": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}}}]});
        assert!(!has_run(&waiting));
        assert!(has_run(&json!({"initContainerStatuses": exited("2026-01-01T00:00:09Z")})));
    }

    #[test]
    fn a_deadline_that_passed_is_no_refusal() {
        assert!(!is_refused(&pod(json!({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}))));
    }

    #[test]
    fn a_deleted_running_pod_has_no_end_of_its_own() {
        let after = deleted(&json!({"phase": "Failed", "containerStatuses": exited("2026-01-01T00:00:40Z")}));
        assert!(!has_ended(&after, true), "deletion was asked at 00:00:30");
        assert!(has_ended(&after, false), "a job's pod ends with it");
    }

    #[test]
    fn case_019_what_finished_before_it_was_deleted_has_ended() {
        let before =
            deleted(&json!({"phase": "Succeeded", "containerStatuses": exited("2026-01-01T00:00:29Z")}));
        assert!(has_ended(&before, true));
        assert!(has_ended(&deleted(&json!({"phase": "Failed", "reason": "DeadlineExceeded"})), true));
        assert!(has_ended(&pod(json!({"status": {"phase": "Failed"}})), true), "not deleted at all");
    }

    #[test]
    fn w11_containers_have_stopped_only_when_all_were_reported_so() {
        let late = "2026-01-01T00:02:00Z".parse().unwrap();
        let early = "2026-01-01T00:00:45Z".parse().unwrap();
        assert!(!has_stopped(&deleted(&json!({"phase": "Running"})), late), "nobody said so");
        let all = json!({"phase": "Running", "containerStatuses": exited("2026-01-01T00:00:40Z")});
        assert!(has_stopped(&deleted(&all), late));
        assert!(!has_stopped(&deleted(&all), early), "a kubelet may still restart them");
        assert!(has_stopped(&deleted(&json!({"phase": "Failed"})), early));
        let running = json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "state": {"terminated": {}}}, {"name": "b", "state": {"running": {}}}]});
        assert!(!has_stopped(&deleted(&running), late));
    }

    #[test]
    fn a_deleted_pod_without_node_never_runs() {
        let mut unbound = deleted(&json!({"phase": "Pending"}));
        unbound.spec = json!({});
        assert!(has_stopped(&unbound, "2026-01-01T00:00:45Z".parse().unwrap()));
    }
}
