//! A cluster that is Ready becomes a Target, by the same objects that a person would write.

use super::{Action, Draft, RESYNC, stages};
use api::Remote;
use api::provisioning::conditions::Stage;
use api::provisioning::{OWNER_UID, TargetRegister, TargetScope, TargetStatusReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// How long a token is valid, in seconds: a day.
pub(crate) const TOKEN_SECONDS: i64 = 86_400;
/// Group and version of Targets.
pub(crate) const TARGETS: &str = "multicluster.admiralty.io/v1alpha1";
/// The ServiceAccount in the workload cluster that pods are run with.
pub(crate) const ACCOUNT: &str = "multicluster-source";

/// The reason while something of the registration is being made.
pub(super) const REGISTERING: &str = "Registering";

/// Whether the cluster is to become a Target and is none yet.
pub(super) fn is_awaited(draft: &Draft<'_>) -> bool {
    draft.seen.cluster.spec.target.register == TargetRegister::Auto && !draft.is_true("TargetReady")
}

/// On the Secret with the target's kubeconfig: when its token ends.
pub(crate) const EXPIRES_KEY: &str = "provisioning.multicluster-scheduler.io/expires";

/// The Secret with the kubeconfig of the Target.
pub(crate) fn secret_name(cluster: &str) -> String {
    format!("{cluster}-target-kubeconfig")
}

/// The namespace that holds the ServiceAccount in the workload cluster, and the kind of what names it there.
pub(crate) fn source(cluster: &super::View) -> (&'static str, String) {
    match cluster.spec.target.scope {
        TargetScope::Namespaced => ("Source", cluster.namespace.clone()),
        TargetScope::Cluster => ("ClusterSource", "multicluster-scheduler".to_owned()),
    }
}

fn target(draft: &Draft<'_>) -> Value {
    let cluster = &draft.seen.cluster;
    let policy = &cluster.spec.target;
    let mut labels = json!({OWNER_UID: cluster.uid});
    let version = draft.status.resolved.as_ref().and_then(|resolved| resolved.kubernetes_version.clone());
    labels["provisioning.multicluster-scheduler.io/kubernetes-version"] = json!(version.unwrap_or_default());
    let mut secret = json!({"name": secret_name(&cluster.name), "key": "config"});
    let (kind, mut metadata) = match policy.scope {
        TargetScope::Namespaced => ("Target", json!({"name": cluster.name, "namespace": cluster.namespace})),
        TargetScope::Cluster => {
            secret["namespace"] = json!(cluster.namespace);
            ("ClusterTarget", json!({"name": cluster.name}))
        }
    };
    metadata["labels"] = labels;
    let mut spec = json!({"kubeconfigSecret": secret});
    if let Some(expression) = &policy.excluded_labels_regexp {
        spec["excludedLabelsRegexp"] = json!(expression);
    }
    json!({"apiVersion": TARGETS, "kind": kind, "metadata": metadata, "spec": spec})
}

fn expires(secret: &Value) -> Option<Timestamp> {
    secret["metadata"]["annotations"][EXPIRES_KEY].as_str()?.parse().ok()
}

pub(super) fn plan(draft: &mut Draft<'_>) {
    stages::sum_up(draft);
    let seen = draft.seen;
    let policy = &seen.cluster.spec.target;
    if policy.register == TargetRegister::Disabled {
        return draft.say(Stage::TargetReady, Some(false), "Disabled", "target.register is Disabled");
    }
    let made = seen.registration.target.is_some();
    let gate = policy.ready_gates.iter().find(|gate| !draft.is_true(gate));
    // Once it is a Target it stays one: pods that run there go on although the cluster is in trouble.
    if !made && !draft.is_true("Ready") {
        return draft.say(Stage::TargetReady, Some(false), "NotReady", "waits until the cluster is Ready");
    }
    if let (false, Some(gate)) = (made, gate) {
        return draft.say(
            Stage::TargetReady,
            Some(false),
            "GateFailed",
            &format!("waits for condition {gate}"),
        );
    }
    let Remote::Present(workload) = &seen.workload else {
        return draft.say(
            Stage::TargetReady,
            None,
            "Unreachable",
            "the API server does not answer the provisioner",
        );
    };
    if !workload.is_target {
        let message = "the cluster lacks the components of a target; install the chart with values-target.yaml, or list them as add-on scheduling-agent in a catalogue";
        return draft.say(Stage::TargetReady, Some(false), "NoAgent", message);
    }
    if !workload.invited {
        draft.actions.push(Action::Invite);
        return draft.say(Stage::TargetReady, Some(false), REGISTERING, "the Source is being made");
    }
    if !workload.account {
        return draft.say(
            Stage::TargetReady,
            Some(false),
            REGISTERING,
            "waits for the ServiceAccount of the Source",
        );
    }
    let valid = seen.registration.secret.as_ref().and_then(expires);
    let half = k8s_openapi::jiff::SignedDuration::from_secs(TOKEN_SECONDS / 2);
    let fresh = valid.is_some_and(|until| until.duration_since(seen.now) > half);
    if !fresh {
        draft.actions.push(Action::IssueToken);
    }
    let wanted = target(draft);
    if valid.is_some() || fresh {
        tell(draft, &wanted, valid);
    } else {
        draft.say(Stage::TargetReady, Some(false), REGISTERING, "the kubeconfig is being made");
    }
}

/// The Target is written once its Secret is there; whether it works, it says itself.
fn tell(draft: &mut Draft<'_>, wanted: &Value, until: Option<Timestamp>) {
    let live = draft.seen.registration.target.as_ref();
    if live.is_none_or(|live| !super::rollout::contains(live, wanted)) {
        draft.actions.push(Action::Apply(wanted.clone()));
    }
    draft.status.target = Some(TargetStatusReference {
        kind: wanted["kind"].as_str().unwrap_or_default().to_owned(),
        name: wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        secret: secret_name(&draft.seen.cluster.name),
        token_expires_at: until.map(Time),
    });
    let conditions = live.and_then(|live| live["status"]["conditions"].as_array());
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
    match ready {
        Some(ready) if ready["status"] == "True" => draft.through(Stage::TargetReady, "pods may run there"),
        Some(ready) => {
            let word = |field: &str| ready[field].as_str().unwrap_or("Pending").to_owned();
            draft.say(Stage::TargetReady, Some(false), &word("reason"), &word("message"));
        }
        None => draft.say(Stage::TargetReady, Some(false), "Pending", "the Target has just been made"),
    }
    debug_assert!(RESYNC.as_secs() < TOKEN_SECONDS.unsigned_abs());
}
