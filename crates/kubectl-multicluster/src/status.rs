//! `status`: the fleet at a glance.

use crate::access::{self, Cluster};
use crate::args::{Access, Format};
use crate::expiry::expiry;
use crate::fleet::{self, Member};
use crate::output::{self, Answer, table};
use crate::scores::{self, Score};
use anyhow::{Context as _, Result};
use api::conditions::Kind;
use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde::Serialize;
use std::collections::BTreeMap;

/// Targets whose Secrets are read at the same time.
const AT_ONCE: usize = 16;
/// Credentials that end sooner are pointed out.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Status {
    /// One for each Target and ClusterTarget.
    pub(crate) targets: Vec<TargetRow>,
    /// Proxy pods that have no target yet.
    pub(crate) waiting: usize,
    /// The components that run in this cluster.
    pub(crate) components: Vec<Component>,
    /// When it was asked.
    #[serde(skip)]
    pub(crate) now: Timestamp,
}

/// One target.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetRow {
    /// `NAME` or `NAMESPACE/NAME`.
    pub(crate) name: String,
    /// As kubectl names it.
    #[serde(skip)]
    pub(crate) object: String,
    /// Its condition `Ready`.
    pub(crate) ready: String,
    /// Its condition `Reachable`.
    pub(crate) reachable: String,
    /// Reason and message of the first condition that is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// Its virtual node; `None`: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<NodeRow>,
    /// Proxy pods that are bound to the virtual node and have not ended.
    pub(crate) pods: usize,
    /// When its credentials end; `None`: they do not say, or this person may not read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credentials_end: Option<Timestamp>,
    /// What is published about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) scores: Vec<Score>,
}

/// A virtual node.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NodeRow {
    /// Its name.
    pub(crate) name: String,
    /// No new pods go there.
    pub(crate) cordoned: bool,
    /// What pods may ask for in all, by resource.
    pub(crate) allocatable: BTreeMap<String, String>,
    /// The version that it shows.
    pub(crate) version: String,
}

/// A Deployment of the release.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Component {
    /// Namespace of the Deployment.
    pub(crate) namespace: String,
    /// Name of the component.
    pub(crate) name: String,
    /// Replicas that are asked for.
    pub(crate) replicas: i32,
    /// Replicas that are ready.
    pub(crate) ready: i32,
    /// Version of the release.
    pub(crate) version: String,
}

/// Reads and prints.
///
/// # Errors
/// When the cluster does not answer.
pub(crate) async fn run(access: &Access, format: Format) -> Result<()> {
    let source = access::source(access).await?;
    output::print(&observe(&source).await?, format)
}

async fn observe(source: &Cluster) -> Result<Status> {
    let members = fleet::members(source).await?;
    let nodes = Api::<Node>::all(source.client.clone()).list(&fleet::virtual_nodes()).await;
    let nodes = nodes.context("cannot list virtual nodes")?.items;
    let nodes: BTreeMap<String, Node> = nodes.into_iter().map(|node| (node.name_any(), node)).collect();
    let pods = pods(source).await?;
    let (published, now) = (scores::published(source).await, Timestamp::now());
    let mut targets: Vec<TargetRow> = stream::iter(members)
        .map(|member| {
            let node = nodes.get(&member.node()).map(node_row);
            let pods = pods.get(&member.node()).copied().unwrap_or_default();
            let scores = scores::of(&published, &member, now);
            async move { TargetRow { scores, ..row(source, &member, node, pods).await } }
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    let waiting = pods.get("").copied().unwrap_or_default();
    Ok(Status { targets, waiting, components: components(source).await?, now })
}

/// Proxy pods that have not ended, by node; the empty name stands for none.
async fn pods(source: &Cluster) -> Result<BTreeMap<String, usize>> {
    let proxies = fleet::proxies().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = Api::<Pod>::all(source.client.clone()).list(&proxies).await.context("cannot list pods")?;
    let mut counts = BTreeMap::new();
    for pod in pods.items {
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        *counts.entry(node).or_default() += 1;
    }
    Ok(counts)
}

async fn row(source: &Cluster, member: &Member, node: Option<NodeRow>, pods: usize) -> TargetRow {
    // Not every person who may see targets may read their Secrets.
    let kubeconfig = member.kubeconfig(&source.client).await.ok();
    TargetRow {
        name: member.key(),
        object: member.object(),
        ready: member.condition(Kind::Ready).to_owned(),
        reachable: member.condition(Kind::Reachable).to_owned(),
        trouble: trouble(member),
        node,
        pods,
        credentials_end: kubeconfig.and_then(|text| expiry(&text)),
        scores: Vec::new(),
    }
}

fn trouble(member: &Member) -> Option<String> {
    if member.terminating {
        return Some("Terminating: it is being deleted".to_owned());
    }
    member.trouble().map(|(reason, message)| format!("{reason}: {message}"))
}

fn node_row(node: &Node) -> NodeRow {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    NodeRow {
        name: node.name_any(),
        cordoned: node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)),
        allocatable: allocatable
            .into_iter()
            .flatten()
            .map(|(name, quantity)| (name.clone(), quantity.0.clone()))
            .collect(),
        version: status
            .and_then(|status| status.node_info.as_ref())
            .map_or_else(String::new, |info| info.kubelet_version.clone()),
    }
}

async fn components(source: &Cluster) -> Result<Vec<Component>> {
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=multicluster-scheduler");
    let list = Api::<Deployment>::all(source.client.clone()).list(&ours).await;
    let list = list.context("cannot list Deployments")?;
    let mut components: Vec<Component> = list.items.iter().map(component).collect();
    components.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(components)
}

fn component(deployment: &Deployment) -> Component {
    let label = |key: &str| deployment.labels().get(key).cloned();
    Component {
        namespace: deployment.namespace().unwrap_or_default(),
        name: label("app.kubernetes.io/component").unwrap_or_else(|| deployment.name_any()),
        replicas: deployment.spec.replicas.unwrap_or(1),
        ready: deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default(),
        version: label("app.kubernetes.io/version").unwrap_or_default(),
    }
}

impl Answer for Status {
    fn text(&self) -> String {
        let mut text = if self.targets.is_empty() {
            "There are no targets. Connect one with `kubectl multicluster target add`.\n".to_owned()
        } else {
            let headings = [
                "TARGET",
                "READY",
                "REACHABLE",
                "PODS",
                "CPU",
                "MEMORY",
                "CREDENTIALS",
                "SCORES",
                "NODE",
                "TROUBLE",
            ];
            table(&headings, self.targets.iter().map(|row| cells(row, self.now)).collect())
        };
        if self.waiting > 0 {
            let waiting = format!(
                "\n{} pods wait for a target; `kubectl multicluster explain NAME` says why.\n",
                self.waiting
            );
            text.push_str(&waiting);
        }
        let components = self.components.iter().map(|component| {
            let ready = format!("{}/{}", component.ready, component.replicas);
            vec![component.name.clone(), component.namespace.clone(), ready, component.version.clone()]
        });
        let components = table(&["COMPONENT", "NAMESPACE", "READY", "VERSION"], components.collect());
        format!("{text}\n{components}")
    }

    fn names(&self) -> Vec<String> {
        self.targets.iter().map(|row| row.object.clone()).collect()
    }
}

fn cells(row: &TargetRow, now: Timestamp) -> Vec<String> {
    let of = |resource: &str| {
        let node = row.node.as_ref();
        node.and_then(|node| node.allocatable.get(resource).cloned()).unwrap_or_else(|| "-".to_owned())
    };
    let node = match &row.node {
        None => "-".to_owned(),
        Some(node) if node.cordoned => format!("{} (cordoned)", node.name),
        Some(node) => node.name.clone(),
    };
    vec![
        row.name.clone(),
        row.ready.clone(),
        row.reachable.clone(),
        row.pods.to_string(),
        of("cpu"),
        of("memory"),
        credentials(row.credentials_end, now),
        if row.scores.is_empty() { "-".to_owned() } else { scores::words(&row.scores) },
        node,
        row.trouble.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

/// How long credentials hold, in the largest whole unit.
fn credentials(end: Option<Timestamp>, now: Timestamp) -> String {
    let Some(end) = end else { return "-".to_owned() };
    let left = end.duration_since(now);
    let text = match left.as_hours() {
        hours if hours >= 48 => format!("{}d", hours / 24),
        hours if hours >= 1 => format!("{hours}h"),
        _ => format!("{}m", left.as_mins()),
    };
    match left {
        _ if left.is_negative() => "expired".to_owned(),
        _ if left < SOON => format!("{text} left!"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::credentials;
    use jiff::{SignedDuration, Timestamp};

    #[track_caller]
    fn check(hours: i64, want: &str) {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(credentials(Some(now + SignedDuration::from_hours(hours)), now), want);
    }

    #[test]
    fn credentials_that_end_soon_stand_out() {
        check(24 * 300, "300d");
        check(24 * 5, "5d left!");
        check(5, "5h left!");
        check(-1, "expired");
        assert_eq!(credentials(None, Timestamp::UNIX_EPOCH), "-");
    }
}
