//! `orphans`: what targets still have of pods that are gone.

use crate::access::{self, Cluster, Targets};
use crate::args::{Access, Format};
use crate::fleet::{self, Member};
use crate::output::{self, Answer, table};
use anyhow::{Context as _, Result};
use api::{PodChaperon, keys};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use std::collections::BTreeSet;

/// The answer.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Orphans {
    /// What is left.
    pub(crate) orphans: Vec<Orphan>,
    /// Targets that could not be looked into, and why: they may have more.
    pub(crate) unknown: Vec<String>,
}

/// A PodChaperon whose pod is gone.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Orphan {
    /// The target that has it.
    pub(crate) target: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The pod that it was for.
    pub(crate) pod: String,
    /// Whether it was allowed to run the pod.
    pub(crate) allowed: bool,
    /// It is on its way out, and waits for these finalizers.
    pub(crate) terminating: Option<String>,
}

/// Reads and prints.
///
/// # Errors
/// When the source does not answer.
pub(crate) async fn run(access: &Access, contexts: &[String], format: Format) -> Result<()> {
    let source = access::source(access).await?;
    let ways = Targets::new(access, contexts)?;
    let uid = source.uid("this cluster").await?;
    let mut found = Vec::new();
    let mut answer = Orphans { orphans: Vec::new(), unknown: Vec::new() };
    for member in fleet::members(&source).await? {
        match chaperons(&source, &member, &ways, &uid).await {
            Ok(chaperons) => found.extend(chaperons.into_iter().map(|chaperon| (member.key(), chaperon))),
            Err(error) => answer.unknown.push(format!("{}: {error:#}", member.key())),
        }
    }
    // After the chaperons: a pod that comes in between is no reason to call its chaperon an orphan.
    let pods = pods(&source).await?;
    let gone = found.into_iter().filter(|(_, chaperon)| !pods.contains(parent(chaperon)));
    answer.orphans = gone.map(|(target, chaperon)| orphan(target, &chaperon)).collect();
    output::print(&answer, format)
}

fn parent(chaperon: &PartialObjectMeta<PodChaperon>) -> &str {
    chaperon.labels().get(keys::PARENT_UID).map_or("", String::as_str)
}

/// The PodChaperons of this source in a target.
async fn chaperons(
    source: &Cluster,
    member: &Member,
    ways: &Targets<'_>,
    uid: &str,
) -> Result<Vec<PartialObjectMeta<PodChaperon>>> {
    let client = ways.of(source, member).await?.client;
    let ours = ListParams::default().labels(&format!(
        "{}={uid},{}={}",
        keys::PARENT_CLUSTER_UID,
        keys::VIRTUAL_NODE,
        label(member)
    ));
    let api: Api<PodChaperon> = match &member.namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    Ok(api.list_metadata(&ours).await.context("cannot list PodChaperons")?.items)
}

fn label(member: &Member) -> String {
    api::names::label_value(&member.node())
}

/// UIDs of all proxy pods.
async fn pods(source: &Cluster) -> Result<BTreeSet<String>> {
    let pods = Api::<Pod>::all(source.client.clone()).list_metadata(&fleet::proxies()).await;
    let pods = pods.context("cannot list pods")?.items;
    Ok(pods.into_iter().filter_map(|pod| pod.metadata.uid).collect())
}

fn orphan(target: String, chaperon: &PartialObjectMeta<PodChaperon>) -> Orphan {
    let annotation = |key: &str| chaperon.annotations().get(key).cloned().unwrap_or_default();
    let terminating = chaperon.metadata.deletion_timestamp.as_ref();
    Orphan {
        target,
        namespace: chaperon.namespace().unwrap_or_default(),
        name: chaperon.name_any(),
        pod: format!("{}/{}", annotation(keys::PARENT_NAMESPACE), annotation(keys::PARENT_NAME)),
        allowed: chaperon.annotations().contains_key(keys::IS_ALLOWED),
        terminating: terminating.map(|_| chaperon.finalizers().join(",")),
    }
}

impl Answer for Orphans {
    fn text(&self) -> String {
        let rows = self.orphans.iter().map(|orphan| {
            let state = match (&orphan.terminating, orphan.allowed) {
                (Some(finalizers), _) => format!("terminating: {finalizers}"),
                (None, true) => "may run".to_owned(),
                (None, false) => "a reservation".to_owned(),
            };
            let object = format!("{}/{}", orphan.namespace, orphan.name);
            vec![orphan.target.clone(), object, orphan.pod.clone(), state]
        });
        let mut text = table(&["TARGET", "PODCHAPERON", "POD", "STATE"], rows.collect());
        if text.is_empty() {
            "There are no orphans.\n".clone_into(&mut text);
        }
        for unknown in &self.unknown {
            text.push_str(&format!("\nUnknown: {unknown}\n"));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.orphans.iter().map(|orphan| format!("podchaperon/{}", orphan.name)).collect()
    }
}
