//! What Cluster API and the cloud say, as conditions and numbers.

use super::Draft;
use crate::render::{CONTROL_PLANE_GROUP, Rendered};
use api::Remote;
use api::provisioning::conditions::Stage;
use api::provisioning::{Endpoint, GroupStatus};
use serde_json::Value;

/// The stages that `Ready` sums up, in order.
const SUMMED: [Stage; 7] = [
    Stage::PreflightPassed,
    Stage::CredentialsReady,
    Stage::ServerGroupsReady,
    Stage::InfrastructureReady,
    Stage::ControlPlaneReady,
    Stage::WorkersReady,
    Stage::AddonsReady,
];

/// `Ready` is the first stage that is not through, or true.
pub(super) fn sum_up(draft: &mut Draft<'_>) {
    let first = SUMMED.iter().find_map(|stage| {
        let found = draft.status.conditions.iter().find(|one| one.type_ == stage.as_str())?;
        (found.status != "True")
            .then(|| (found.reason.clone(), format!("{}: {}", found.type_, found.message)))
    });
    let unknown =
        [Stage::InfrastructureReady, Stage::ControlPlaneReady, Stage::WorkersReady, Stage::AddonsReady]
            .iter()
            .find(|stage| !draft.status.conditions.iter().any(|one| one.type_ == stage.as_str()));
    match (first, unknown) {
        (Some((reason, message)), _) => draft.say(Stage::Ready, Some(false), &reason, &message),
        (None, Some(stage)) => {
            let message = format!("{}: not looked at yet", stage.as_str());
            draft.say(Stage::Ready, Some(false), "Pending", &message);
        }
        (None, None) => draft.through(Stage::Ready, "the cluster is as declared"),
    }
}

/// Mirrors the conditions of the Cluster.
pub(super) fn mirror(draft: &mut Draft<'_>, rendered: &Rendered) {
    let seen = draft.seen;
    let Some(cluster) = seen.objects.get(&("Cluster".to_owned(), rendered.names.cluster.clone())) else {
        for stage in [Stage::InfrastructureReady, Stage::ControlPlaneReady, Stage::WorkersReady] {
            draft.say(stage, Some(false), "Pending", "the Cluster has just been made");
        }
        return;
    };
    let fault = fault(draft, rendered);
    one(draft, cluster, (Stage::InfrastructureReady, "InfrastructureReady"), fault.as_deref());
    one(draft, cluster, (Stage::ControlPlaneReady, "ControlPlaneAvailable"), fault.as_deref());
    one(draft, cluster, (Stage::WorkersReady, "WorkersAvailable"), fault.as_deref());
    if draft.is_true("ControlPlaneReady") {
        match &seen.workload {
            Remote::Present(_) => {}
            Remote::Absent => {
                draft.say(
                    Stage::ControlPlaneReady,
                    Some(false),
                    "NoKubeconfig",
                    "there is no kubeconfig yet",
                );
            }
            Remote::Unknown => {
                let message = "the API server does not answer the provisioner";
                draft.say(Stage::ControlPlaneReady, Some(false), "Unreachable", message);
            }
        }
    }
    let endpoint = &cluster["spec"]["controlPlaneEndpoint"];
    if let (Some(host), Some(port)) = (endpoint["host"].as_str(), endpoint["port"].as_i64()) {
        let port = i32::try_from(port).unwrap_or_default();
        draft.status.control_plane_endpoint = Some(Endpoint { host: host.to_owned(), port });
    }
    numbers(draft, rendered);
}

/// One condition of the Cluster, with the words of the cloud behind it.
fn one(draft: &mut Draft<'_>, cluster: &Value, (stage, of): (Stage, &str), fault: Option<&str>) {
    let conditions = cluster["status"]["conditions"].as_array();
    let Some(found) = conditions.into_iter().flatten().find(|one| one["type"] == of) else {
        let message = fault.unwrap_or("Cluster API has said nothing yet");
        return draft.say(stage, Some(false), "Pending", message);
    };
    let word = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    let is_true = found["status"] == "True";
    let reason = if is_true { "Ok".to_owned() } else { word("reason") };
    let reason = if reason.is_empty() { "Pending".to_owned() } else { reason };
    let mut message = word("message");
    if let Some(fault) = fault.filter(|_| !is_true) {
        message = if message.is_empty() { fault.to_owned() } else { format!("{message}; {fault}") };
    }
    let status = if found["status"] == "Unknown" { None } else { Some(is_true) };
    draft.say(stage, status, &reason, &message);
}

/// The first thing that the infrastructure provider complains about, in its own words: they are the only place where
/// the cloud's answer is told.
fn fault(draft: &Draft<'_>, rendered: &Rendered) -> Option<String> {
    let kinds = ["OpenStackCluster", "OpenStackMachine"];
    let objects = draft.seen.objects.iter().filter(|((kind, _), _)| kinds.contains(&kind.as_str()));
    let mut faults = objects.filter_map(|((kind, name), object)| {
        let failure = object["status"]["failureMessage"].as_str();
        let conditions = object["status"]["conditions"].as_array();
        let said = conditions.into_iter().flatten().find_map(|one| {
            let bad = one["status"] == "False" && one["severity"] != "Info";
            one["message"].as_str().filter(|text| bad && !text.is_empty())
        });
        failure.or(said).map(|text| format!("{kind} {name}: {text}"))
    });
    let own = rendered.names.infrastructure_cluster.as_str();
    debug_assert!(!own.is_empty());
    faults.next()
}

fn numbers(draft: &mut Draft<'_>, rendered: &Rendered) {
    let seen = draft.seen;
    let of = |kind: &str, name: &str, pool: &str| {
        let live = seen.objects.get(&(kind.to_owned(), name.to_owned()))?;
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        Some(GroupStatus {
            desired: number(&live["spec"]["replicas"]),
            ready: number(&live["status"]["readyReplicas"]),
            up_to_date: number(&live["status"]["upToDateReplicas"]),
            template: rendered.templates.get(pool).cloned(),
        })
    };
    draft.status.control_plane =
        of("KubeadmControlPlane", &rendered.names.control_plane, CONTROL_PLANE_GROUP);
    let pools = rendered.names.pools.iter();
    draft.status.node_pools =
        pools.filter_map(|(pool, name)| Some((pool.clone(), of("MachineDeployment", name, pool)?))).collect();
    let mut all = GroupStatus::default();
    for pool in draft.status.node_pools.values() {
        all.desired += pool.desired;
        all.ready += pool.ready;
        all.up_to_date += pool.up_to_date;
    }
    draft.status.workers = Some(all);
}
