//! What is made in the cloud besides Cluster API: two restricted application credentials and the server groups of a
//! cluster. Their names hold the UID of the WorkloadCluster; what is of another name is never touched.

use super::{Action, Draft, Observed, Stop, View};
use crate::openstack::{Credential, Group};
use crate::render::{CONTROL_PLANE_GROUP, Names};
use api::provisioning::conditions::Stage;
use api::provisioning::{
    AntiAffinity, ApplicationCredential, CredentialsMode, ServerGroupStatus, WorkloadClusterSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the cloud says of the project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// ID of the project.
    pub project: String,
    /// All application credentials of the user.
    pub credentials: Vec<Credential>,
    /// All server groups of the project.
    pub groups: Vec<Group>,
}

/// On a Secret: ID of the application credential in it.
pub(crate) const CREDENTIAL: &str = "provisioning.multicluster-scheduler.io/application-credential";
/// On a Secret: when that was made.
pub(crate) const ISSUED: &str = "provisioning.multicluster-scheduler.io/issued";
/// Seconds after which nobody uses the credential any more that another has replaced.
const GRACE_SECONDS: i64 = 600;

/// What a credential is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Cluster API's.
    Infrastructure,
    /// That of controllers in the workload cluster.
    Workload,
}

impl Purpose {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Infrastructure => "infrastructure",
            Self::Workload => "workload",
        }
    }

    /// The Secret that holds it.
    pub(crate) fn secret(self, cluster: &View) -> String {
        match self {
            Self::Infrastructure => Names::of(&cluster.name, &cluster.spec).secret,
            Self::Workload => format!("{}-workload-credentials", cluster.name),
        }
    }
}

/// What the names of everything of a cluster begin with.
fn prefix(cluster: &View) -> String {
    let uid: String = cluster.uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{}-{uid}-", cluster.name)
}

/// Which credentials there are to be.
pub(crate) fn purposes(spec: &WorkloadClusterSpec) -> Vec<Purpose> {
    match (spec.credentials.mode, spec.credentials.separate_workload) {
        (CredentialsMode::Shared, _) => Vec::new(),
        (CredentialsMode::PerCluster, false) => vec![Purpose::Infrastructure],
        (CredentialsMode::PerCluster, true) => vec![Purpose::Infrastructure, Purpose::Workload],
    }
}

/// Pools with what they want of hypervisors, and the group that somebody else has made for them.
fn pools(spec: &WorkloadClusterSpec) -> Vec<(&str, AntiAffinity, Option<&String>)> {
    let adopted = spec.adopt.as_ref().and_then(|adopt| adopt.server_groups.as_ref());
    let plane = adopted.and_then(|groups| groups.control_plane.as_ref());
    let workers = adopted.and_then(|groups| groups.workers.as_ref());
    let mut pools = vec![(CONTROL_PLANE_GROUP, spec.control_plane.anti_affinity, plane)];
    pools.extend(spec.node_pools.iter().map(|pool| (pool.name.as_str(), pool.anti_affinity, workers)));
    pools
}

/// Whether the cloud must be asked at all.
pub(crate) fn is_needed(cluster: &View) -> bool {
    let groups =
        pools(&cluster.spec).iter().any(|(_, policy, id)| id.is_none() && *policy != AntiAffinity::None);
    groups || !purposes(&cluster.spec).is_empty() || (cluster.deleting && cluster.status.openstack.is_some())
}

fn policy(of: AntiAffinity) -> Option<&'static str> {
    match of {
        AntiAffinity::Hard => Some("anti-affinity"),
        AntiAffinity::Soft => Some("soft-anti-affinity"),
        AntiAffinity::None => None,
    }
}

/// IDs of the server groups, by pool; those that are missing are made first.
pub(super) fn groups(draft: &mut Draft<'_>) -> Result<BTreeMap<String, String>, Stop> {
    let seen = draft.seen;
    let stop = |reason, message: String| Stop::new(Stage::ServerGroupsReady, reason, message);
    let mut ids = BTreeMap::new();
    let mut missing = Vec::new();
    for (pool, wanted, adopted) in pools(&seen.cluster.spec) {
        if let Some(id) = adopted {
            ids.insert(pool.to_owned(), id.clone());
            continue;
        }
        let Some(policy) = policy(wanted) else { continue };
        let status = draft.status.openstack.get_or_insert_default();
        if let Some(known) = status.server_groups.get(pool).filter(|known| known.policy == policy) {
            // A cloud that does not answer has deleted nothing.
            let gone = matches!(&seen.openstack, Some(Ok(facts)) if !facts.groups.iter().any(|one| one.id == known.id));
            if !gone {
                ids.insert(pool.to_owned(), known.id.clone());
                continue;
            }
        }
        let facts = known(seen, Stage::ServerGroupsReady)?;
        let name = format!("{}{pool}-{policy}", prefix(&seen.cluster));
        let found: Vec<&Group> = facts.groups.iter().filter(|one| one.name == name).collect();
        match found.as_slice() {
            [] => {
                draft.actions.push(Action::CreateGroup(name.clone(), policy.to_owned()));
                missing.push(name);
            }
            [one] => {
                let group =
                    ServerGroupStatus { id: one.id.clone(), policy: one.policy.clone(), adopted: false };
                if one.policy != policy {
                    return Err(stop(
                        "WrongPolicy",
                        format!("server group {name} has policy {}", one.policy),
                    ));
                }
                ids.insert(pool.to_owned(), one.id.clone());
                let status = draft.status.openstack.get_or_insert_default();
                status.server_groups.insert(pool.to_owned(), group);
            }
            many => {
                let message =
                    format!("there are {} server groups {name}; delete those without members", many.len());
                return Err(stop("Ambiguous", message));
            }
        }
    }
    if missing.is_empty() {
        Ok(ids)
    } else {
        Err(stop("Creating", format!("being made: {}", missing.join(", "))))
    }
}

/// What the cloud says, or why it says nothing.
fn known(seen: &Observed, stage: Stage) -> Result<&Facts, Stop> {
    match &seen.openstack {
        Some(Ok(facts)) => Ok(facts),
        Some(Err(problem)) => Err(Stop::new(stage, "CloudRefused", problem.clone())),
        None => Err(Stop::new(stage, "Pending", "the cloud has not been asked yet")),
    }
}

fn annotation<'a>(secret: Option<&'a Value>, key: &str) -> Option<&'a str> {
    secret?["metadata"]["annotations"][key].as_str()
}

fn secret(seen: &Observed, purpose: Purpose) -> Option<&Value> {
    match purpose {
        Purpose::Infrastructure => seen.identity.as_ref(),
        Purpose::Workload => seen.workload_secret.as_ref(),
    }
}

/// Credentials of the cluster's own: made, renewed in time, and the old ones removed once nobody uses them.
pub(super) fn credentials(draft: &mut Draft<'_>) -> Result<(), Stop> {
    let seen = draft.seen;
    let wanted = purposes(&seen.cluster.spec);
    if wanted.is_empty() {
        return Ok(());
    }
    let facts = known(seen, Stage::CredentialsReady)?;
    draft.status.openstack.get_or_insert_default().project_id = Some(facts.project.clone());
    let mut told = Vec::new();
    let mut missing = Vec::new();
    for purpose in wanted {
        let held = secret(seen, purpose);
        let id = annotation(held, CREDENTIAL);
        let there = id.filter(|id| facts.credentials.iter().any(|one| one.id == **id));
        let expires = annotation(held, super::registration::EXPIRES_KEY).and_then(|time| time.parse().ok());
        if there.is_none() {
            draft.actions.push(issue(seen, purpose));
            missing.push(purpose.as_str());
            continue;
        }
        if is_due(seen, expires) {
            draft.actions.push(issue(seen, purpose));
        }
        let expires_at = expires.map(Time);
        let id = id.unwrap_or_default().to_owned();
        retire(draft, facts, (purpose, &id), held);
        told.push(ApplicationCredential { id, purpose: purpose.as_str().to_owned(), expires_at });
    }
    draft.status.openstack.get_or_insert_default().application_credentials = told;
    if missing.is_empty() {
        return Ok(());
    }
    Err(Stop::new(Stage::CredentialsReady, "Creating", format!("being made: {}", missing.join(", "))))
}

/// A credential that ends soon is replaced; one that never ends never is.
fn is_due(seen: &Observed, expires: Option<Timestamp>) -> bool {
    let days = i64::from(seen.cluster.spec.credentials.rotate_before_days);
    expires.is_some_and(|end| end.duration_since(seen.now) < SignedDuration::from_hours(24 * days))
}

fn issue(seen: &Observed, purpose: Purpose) -> Action {
    let days = i64::from(seen.cluster.spec.credentials.lifetime_days);
    let whole = Timestamp::from_second(seen.now.as_second()).unwrap_or(seen.now);
    let expires =
        (days > 0).then(|| whole.saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(whole));
    let name = format!("{}{}-{}", prefix(&seen.cluster), purpose.as_str(), seen.now.as_second());
    Action::IssueCredential { purpose, name, expires }
}

/// Those that another has replaced long enough ago.
fn retire(draft: &mut Draft<'_>, facts: &Facts, (purpose, current): (Purpose, &str), held: Option<&Value>) {
    let issued: Option<Timestamp> = annotation(held, ISSUED).and_then(|time| time.parse().ok());
    let grace = SignedDuration::from_secs(GRACE_SECONDS);
    if issued.is_none_or(|issued| draft.seen.now.duration_since(issued) <= grace) {
        return;
    }
    let ours = format!("{}{}-", prefix(&draft.seen.cluster), purpose.as_str());
    let old = facts.credentials.iter().filter(|one| one.name.starts_with(&ours) && one.id != current);
    draft.actions.extend(old.map(|one| Action::DeleteCredential(one.id.clone())));
}

/// What is left of the cluster in the cloud: calls, and their names.
pub(super) fn leftovers(seen: &Observed) -> Result<(Vec<Action>, Vec<String>), String> {
    let facts = match &seen.openstack {
        None => return Ok((Vec::new(), Vec::new())),
        Some(Err(problem)) => return Err(problem.clone()),
        Some(Ok(facts)) => facts,
    };
    let ours = prefix(&seen.cluster);
    let groups: Vec<&Group> = facts.groups.iter().filter(|one| one.name.starts_with(&ours)).collect();
    if !groups.is_empty() {
        let actions = groups.iter().map(|one| Action::DeleteGroup(one.id.clone())).collect();
        return Ok((actions, groups.iter().map(|one| format!("server group {}", one.name)).collect()));
    }
    let mine = facts.credentials.iter().filter(|one| one.name.starts_with(&ours));
    let (actions, names) = mine
        .map(|one| (Action::DeleteCredential(one.id.clone()), format!("application credential {}", one.name)))
        .unzip();
    Ok((actions, names))
}
