//! `explain`: why a pod runs where it runs, or why it waits.

mod cures;
mod plan;

use crate::access::{self, Cluster, Targets};
use crate::args::{Access, Format};
use crate::fleet::{self, Member};
use crate::output::{self, Answer, table};
use crate::scores::{self, Score};
use anyhow::{Context as _, Result};
use api::{PodChaperon, Remote, names};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use plan::{Delegate, Explanation, Observed, Place, plan};
use serde_json::Value;

/// Reads and prints.
///
/// # Errors
/// When there is no such pod, or the cluster does not answer.
pub(crate) async fn run(access: &Access, pod: &str, contexts: &[String], format: Format) -> Result<()> {
    let source = access::source(access).await?;
    let name = pod.strip_prefix("pod/").or_else(|| pod.strip_prefix("pods/")).unwrap_or(pod);
    let seen = observe(&source, name, &Targets::new(access, contexts)?).await?;
    output::print(&plan(&seen), format)
}

async fn observe(source: &Cluster, name: &str, ways: &Targets<'_>) -> Result<Observed> {
    let namespace = &source.config.default_namespace;
    let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let pod = Api::<DynamicObject>::namespaced_with(source.client.clone(), namespace, &pods)
        .get(name)
        .await
        .with_context(|| format!("cannot read pod {namespace}/{name}"))?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let pod = serde_json::to_value(pod).context("the pod is no JSON")?;
    let labels = Api::<Namespace>::all(source.client.clone()).get(namespace).await;
    let labels = labels.with_context(|| format!("cannot read namespace {namespace}"))?.metadata.labels;
    let members = fleet::members(source).await?;
    let (published, now) = (scores::published(source).await, Timestamp::now());
    let elected = elected(&pod).and_then(|node| members.iter().find(|member| member.node() == node));
    let delegate = match elected {
        Some(member) => Some(delegate(source, member, ways, (namespace, name, &uid)).await),
        None => None,
    };
    Ok(Observed {
        pod,
        namespace: labels.unwrap_or_default(),
        places: members
            .iter()
            .filter(|member| member.serves(namespace))
            .map(|member| place(member, &scores::of(&published, member, now)))
            .collect(),
        delegate,
        scheduler_leads: scheduler_leads(source).await,
    })
}

/// The virtual node that a pod is bound to.
fn elected(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/nodeName").and_then(Value::as_str)
}

/// What the elected target has of a pod.
async fn delegate(
    source: &Cluster,
    member: &Member,
    ways: &Targets<'_>,
    (namespace, name, uid): (&str, &str, &str),
) -> Delegate {
    let chaperon = async {
        let target = ways.of(source, member).await?;
        let kind = ApiResource::erase::<PodChaperon>(&());
        let api = Api::<DynamicObject>::namespaced_with(target.client, namespace, &kind);
        let found = api.get_opt(&names::chaperon(name, uid, &member.node())).await;
        found.context("cannot read the PodChaperon")
    };
    match chaperon.await {
        Ok(Some(chaperon)) => Delegate { chaperon: Remote::Present(chaperon.data), unknown: None },
        Ok(None) => Delegate { chaperon: Remote::Absent, unknown: None },
        Err(error) => Delegate { chaperon: Remote::Unknown, unknown: Some(format!("{error:#}")) },
    }
}

/// Whether somebody holds the Lease of the proxy-scheduler; `None`: this person may not know.
async fn scheduler_leads(source: &Cluster) -> Option<bool> {
    let one = ListParams::default().fields("metadata.name=multicluster-proxy-scheduler");
    let leases = Api::<Lease>::all(source.client.clone()).list(&one).await.ok()?;
    Some(leases.items.iter().any(|lease| {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()).is_some_and(|id| !id.is_empty())
    }))
}

fn place(member: &Member, scores: &[Score]) -> Place {
    Place { target: member.key(), node: member.node(), scores: scores::words(scores) }
}

impl Answer for Explanation {
    fn text(&self) -> String {
        let rows = self
            .targets
            .iter()
            .map(|row| vec![row.target.clone(), row.answer.clone(), row.reason.clone(), row.cure.clone()]);
        let rows = table(&["TARGET", "ANSWER", "REASON", "WHAT WOULD CHANGE IT"], rows.collect());
        let mut text = format!("{}\n", self.headline);
        for line in &self.details {
            text.push_str(&format!("  {line}\n"));
        }
        if rows.is_empty() { text } else { format!("{text}\n{rows}") }
    }

    fn names(&self) -> Vec<String> {
        vec![format!("pod/{}", self.pod)]
    }
}
