//! What is done about one WorkloadCluster.
//!
//! A cluster goes through stages, each of which has a condition. Every round looks at all of them anew, so that it
//! does not matter after which write a process died.

pub(crate) mod addons;
pub(crate) mod cloud;
mod deletion;
pub(crate) mod registration;
pub(crate) mod rollout;
mod stages;
mod world;

use crate::catalog;
use crate::render::{self, Input, Rendered};
pub use addons::Addon;
use api::provisioning::conditions::Stage;
use api::provisioning::{CredentialsMode, RolloutPlan, WorkloadClusterStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use std::time::Duration;
pub use world::{Action, Doomed, Observed, Registration, View, Workload};

/// A settled cluster is looked at again about this often.
pub const RESYNC: Duration = Duration::from_mins(10);
/// A cluster that something is awaited for which no watch tells.
pub const SOON: Duration = Duration::from_secs(3);
/// A cluster that is not as declared, in case a watch missed something.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The annotation whose value is a hash of what was applied: what is no longer set must go, and only a new apply does it.
pub const APPLIED: &str = "provisioning.multicluster-scheduler.io/applied";

/// What to do now, what to say, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The calls, in order.
    pub actions: Vec<Action>,
    /// The status as it should be.
    pub status: WorkloadClusterStatus,
    /// When to look again even if nothing happens.
    pub recheck: Duration,
}

/// Why a stage is not through.
pub(crate) struct Stop {
    stage: Stage,
    reason: &'static str,
    message: String,
}

impl Stop {
    pub(crate) fn new(stage: Stage, reason: &'static str, message: impl Into<String>) -> Self {
        Self { stage, reason, message: message.into() }
    }
}

/// A status in the making.
pub(crate) struct Draft<'a> {
    seen: &'a Observed,
    status: WorkloadClusterStatus,
    actions: Vec<Action>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(seen: &'a Observed) -> Self {
        let mut status = seen.cluster.status.clone();
        status.observed_generation = seen.cluster.generation;
        Self { seen, status, actions: Vec::new() }
    }

    pub(crate) fn say(&mut self, stage: Stage, status: Option<bool>, reason: &str, message: &str) {
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let condition = Condition {
            type_: stage.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: self.seen.cluster.generation,
            last_transition_time: Time(self.seen.now),
        };
        api::conditions::put(&mut self.status.conditions, condition);
    }

    fn through(&mut self, stage: Stage, message: &str) {
        self.say(stage, Some(true), "Ok", message);
    }

    pub(crate) fn stop(&mut self, stop: &Stop) {
        self.say(stop.stage, Some(false), stop.reason, &stop.message);
    }

    pub(crate) fn is_true(&self, stage: &str) -> bool {
        self.status.conditions.iter().any(|one| one.type_ == stage && one.status == "True")
    }

    fn end(mut self, recheck: Duration) -> Plan {
        stages::sum_up(&mut self);
        if let Some(refusal) = &self.seen.refusal {
            self.say(Stage::Ready, Some(false), "Refused", refusal);
        }
        let recheck = if self.actions.is_empty() { recheck } else { SOON };
        Plan { actions: self.actions, status: self.status, recheck }
    }
}

/// Decides.
#[must_use]
pub fn plan(seen: &Observed) -> Plan {
    if seen.cluster.deleting {
        return deletion::plan(seen);
    }
    let mut draft = Draft::new(seen);
    if !seen.cluster.held {
        // Nothing is made before it is sure that it will be removed.
        draft.actions.push(Action::Hold);
        return draft.end(SOON);
    }
    let rendered = match prepare(&mut draft) {
        Ok(rendered) => rendered,
        Err(stop) => {
            draft.stop(&stop);
            return draft.end(RESYNC);
        }
    };
    if seen.cluster.spec.paused {
        pause(&mut draft, &rendered);
        return draft.end(RESYNC);
    }
    let shared = seen.cluster.spec.credentials.mode == CredentialsMode::Shared;
    if let Some(secret) = identity(seen, &rendered).filter(|_| shared) {
        draft.actions.push(Action::Apply(secret));
    }
    draft.through(
        Stage::CredentialsReady,
        if shared {
            "Cluster API uses the CloudAccount's credentials"
        } else {
            "the cluster has its own credentials"
        },
    );
    rollout::apply(&mut draft, &rendered);
    stages::mirror(&mut draft, &rendered);
    addons::plan(&mut draft);
    registration::plan(&mut draft);
    let settled = draft.is_true("Ready") && draft.is_true("UpToDate");
    let registering = draft.status.conditions.iter().any(|one| one.reason == registration::REGISTERING);
    let recheck = match (registering, settled && !registration::is_awaited(&draft)) {
        (true, _) => SOON,
        (false, true) => RESYNC,
        (false, false) => PATIENCE,
    };
    draft.end(recheck)
}

/// Everything that must be known before the first object is made.
fn prepare(draft: &mut Draft<'_>) -> Result<Rendered, Stop> {
    let seen = draft.seen;
    let (name, spec) = (&seen.cluster.name, &seen.cluster.spec);
    let early = |reason, message: String| Stop::new(Stage::PreflightPassed, reason, message);
    if !seen.cluster_api {
        let message = "Cluster API with its kubeadm and OpenStack providers is not installed in this cluster";
        return Err(early("NoClusterApi", message.to_owned()));
    }
    let Some(account) = &seen.account else {
        return Err(early(
            "CloudAccountNotFound",
            format!("there is no CloudAccount {}", spec.cloud_ref.name),
        ));
    };
    let decided = draft.status.resolved.as_ref().and_then(|known| known.kubernetes_version.clone());
    let version = seen.catalog.version(spec, decided.as_deref()).map_err(|fault| {
        let reason = match fault {
            catalog::Fault::NoVersion { .. } | catalog::Fault::NoAddon { .. } => "NoVersion",
            catalog::Fault::Preview(_) => "Preview",
            catalog::Fault::Ended(_) => "Ended",
        };
        early(reason, fault.to_string())
    })?;
    let mut resolved = draft.status.resolved.clone().unwrap_or_default();
    let release = seen.catalog.release(&version);
    let image =
        spec.nodes.image.name.clone().or_else(|| release?.image.as_ref().map(|image| image.name.clone()));
    if image.is_none() && spec.nodes.image.id.is_none() {
        let message = format!("neither nodes.image nor a catalogue names an image for {version}");
        return Err(early("NoImage", message));
    }
    resolved.image_name = image.map(|image| image.replace("${KUBERNETES_VERSION}", &version));
    resolved.kubernetes_version = Some(version);
    let groups = cloud::groups(draft)?;
    draft.through(Stage::ServerGroupsReady, "the server groups that the spec asks for are known");
    let input = Input {
        name,
        namespace: &seen.cluster.namespace,
        uid: &seen.cluster.uid,
        spec,
        account,
        resolved: &resolved,
        server_groups: &groups,
    };
    let rendered = render::render(&input).map_err(|fault| early("SpecInvalid", fault.to_string()))?;
    if let Some(taken) = foreign(seen, &rendered) {
        return Err(early("NameTaken", taken));
    }
    draft.status.resolved = Some(resolved);
    draft.status.applied_patches.clone_from(&rendered.patched);
    draft.through(Stage::PreflightPassed, "version, cloud and image are known");
    credentials(draft)?;
    Ok(rendered)
}

fn credentials(draft: &mut Draft<'_>) -> Result<(), Stop> {
    let seen = draft.seen;
    if seen.cloud.is_none() {
        let names = seen.account.as_ref().map(|account| account.clouds_yaml.clone()).unwrap_or_default();
        let message = format!("Secret {} with key {} is not there", names.name, names.key);
        return Err(Stop::new(Stage::CredentialsReady, "SecretNotFound", message));
    }
    cloud::credentials(draft)
}

/// An object of one of our names that is somebody else's. Identity is the UID in the label, never the name.
fn foreign(seen: &Observed, rendered: &Rendered) -> Option<String> {
    if seen.cluster.spec.adopt.is_some() {
        return None;
    }
    rendered.objects.iter().find_map(|object| {
        let (kind, name) = key(object);
        let live = seen.objects.get(&(kind.clone(), name.clone()))?;
        (owner(live) != Some(seen.cluster.uid.as_str()))
            .then(|| format!("{kind} {name} is there and is not of this WorkloadCluster; delete it, or take it over with spec.adopt"))
    })
}

pub(crate) fn owner(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][api::provisioning::OWNER_UID].as_str()
}

pub(crate) fn key(object: &Value) -> (String, String) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (word(&object["kind"]), word(&object["metadata"]["name"]))
}

/// The Secret for Cluster API, unless it is there as it should be.
fn identity(seen: &Observed, rendered: &Rendered) -> Option<Value> {
    let cloud = seen.cloud.as_ref()?;
    let mut data = cloud.clone();
    // A file of nodes refers to this key; without it their configuration is never made.
    data.entry("cacert".to_owned()).or_default();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": rendered.names.secret,
            "namespace": seen.cluster.namespace,
            "labels": {
                "clusterctl.cluster.x-k8s.io/move": "true",
                api::provisioning::OWNER_UID: seen.cluster.uid,
                render::CLUSTER_NAME: rendered.names.cluster,
            },
        },
        "data": data,
    });
    let same = seen.identity.as_ref().is_some_and(|live| rollout::contains(live, &secret));
    (!same).then_some(secret)
}

/// Nothing is touched but the switch that lets Cluster API pause too, and that only on a Cluster of ours.
fn pause(draft: &mut Draft<'_>, rendered: &Rendered) {
    let seen = draft.seen;
    let live = seen.objects.get(&("Cluster".to_owned(), rendered.names.cluster.clone()));
    if let Some(live) = live
        && owner(live) == Some(seen.cluster.uid.as_str())
        && live["spec"]["paused"] != true
        && let Some(cluster) = rendered.objects.iter().find(|object| object["kind"] == "Cluster")
    {
        draft.actions.push(Action::Apply(rollout::marked(cluster)));
    }
    draft.status.plan = rollout::preview(seen, rendered);
    let said = draft.status.plan.as_ref().map_or_else(
        || "paused; nothing would be replaced".to_owned(),
        |plan: &RolloutPlan| {
            format!("paused; {} nodes of {} would be replaced", plan.replaced_nodes, plan.groups.join(", "))
        },
    );
    draft.say(Stage::UpToDate, Some(false), "Paused", &said);
}

#[cfg(test)]
mod tests;
