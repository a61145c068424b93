//! One namespace in all clusters, what a test does in it, and the proof that nothing of it stays.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::{SOURCE, electing_namespace, targets};
use e2e::wait::until;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::guest::is;
use crate::installed::installed;
use crate::recorder::{Life, Recorder};

/// How long anything may take that several controllers have a part in, on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(180);
/// The API of the project.
pub(crate) const GROUP_VERSION: &str = "multicluster.admiralty.io/v1alpha1";

/// A label, annotation or finalizer of the project.
pub(crate) fn key(name: &str) -> String {
    format!("multicluster.admiralty.io/{name}")
}

/// An electing namespace of the source that exists in all targets too.
pub(crate) struct Scene<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) source: &'a Cluster,
    pub(crate) namespace: String,
    pub(crate) recorder: Recorder,
}

impl<'a> Scene<'a> {
    /// Waits for the installation that all tests share, and makes the namespace.
    pub(crate) async fn open(ground: &'a Ground, namespace: &str) -> Result<Self> {
        installed(ground).await?;
        electing_namespace(ground, namespace).await?;
        let source = ground.cluster(SOURCE)?;
        let recorder = Recorder::start(ground, namespace);
        Ok(Self { ground, source, namespace: namespace.to_owned(), recorder })
    }

    /// The pods in the source.
    pub(crate) fn pods(&self) -> Api<Pod> {
        self.source.api(&self.namespace)
    }

    /// Creates an object in the source.
    pub(crate) async fn create(&self, group_version: &str, kind: &str, object: Value) -> Result<()> {
        create(self.source, Some(&self.namespace), (group_version, kind), object).await.map(drop)
    }

    /// Creates a pod in the source.
    pub(crate) async fn pod(&self, pod: Value) -> Result<Pod> {
        crate::guest::create(self.source, &self.namespace, pod).await
    }

    /// Waits until the source has exactly this many pods, all of them Ready.
    pub(crate) async fn ready(&self, count: usize) -> Result<Vec<Pod>> {
        self.pods_are(count, "Ready", |pod| is(pod, "Ready")).await
    }

    /// Waits until the source has exactly this many pods and all of them are as wanted.
    pub(crate) async fn pods_are(
        &self,
        count: usize,
        what: &str,
        wanted: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Pod>> {
        let pods = self.pods();
        until(LONG, &format!("{count} pods in {} are {what}", self.namespace), async || {
            let all = pods.list(&ListParams::default()).await?.items;
            if all.len() == count && all.iter().all(&wanted) {
                return Ok(Some(all));
            }
            let lacking = all.iter().filter(|pod| !wanted(pod)).map(brief).collect::<Vec<_>>();
            bail!("there are {} pods, of which not so: {}", all.len(), lacking.join("; "))
        })
        .await
    }

    /// The chaperons of the namespace in all targets, with their clusters.
    pub(crate) async fn chaperons(&self) -> Result<Vec<(String, DynamicObject)>> {
        let mut found = Vec::new();
        for target in targets(self.ground) {
            let api = target.dynamic(GROUP_VERSION, "PodChaperon", Some(&self.namespace));
            let list = api.list(&ListParams::default()).await?;
            found.extend(list.items.into_iter().map(|chaperon| (target.name.clone(), chaperon)));
        }
        Ok(found)
    }

    /// Waits until a delegate of this proxy pod runs that is not among `but`, and returns its UID and life.
    pub(crate) async fn delegate(&self, parent: &str, but: &[String]) -> Result<(String, Life)> {
        until(LONG, &format!("a delegate of {parent} runs"), async || {
            let mut lives = self.recorder.lives().into_iter();
            Ok(lives.find(|(uid, life)| life.parent == parent && life.runs() && !but.contains(uid)))
        })
        .await
    }

    /// The delegate pods in the cluster of one.
    pub(crate) fn beside(&self, life: &Life) -> Result<Api<Pod>> {
        Ok(self.ground.cluster(&life.cluster)?.api(&self.namespace))
    }

    /// Waits until an event about a pod of the source contains a text.
    pub(crate) async fn event(&self, pod: &str, text: &str) -> Result<()> {
        let events: Api<Event> = self.source.api(&self.namespace);
        let selector = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        until(LONG, &format!("an event of {pod} says {text:?}"), async || {
            let list = events.list(&selector).await?.items;
            let said: Vec<String> = list.into_iter().filter_map(|event| event.message).collect();
            if said.iter().any(|message| message.contains(text)) {
                return Ok(Some(()));
            }
            bail!("events: {said:?}")
        })
        .await
    }

    /// Ends the namespace, first in the source, and waits until it is gone everywhere: a finalizer that
    /// nobody removes, or an object that is made again, would hold it.
    pub(crate) async fn close(self) -> Result<()> {
        self.recorder.check_parents()?;
        remove_namespace(self.source, &self.namespace).await?;
        until(LONG, &format!("{} has no chaperon and no delegate left", self.namespace), async || {
            let chaperons = self.chaperons().await?;
            let delegates: Vec<_> = self.recorder.delegates().into_iter().filter(|one| !one.gone).collect();
            if chaperons.is_empty() && delegates.is_empty() {
                return Ok(Some(()));
            }
            let names = chaperons.iter().map(|(cluster, one)| format!("{cluster}/{}", one.name_any()));
            bail!("chaperons {:?}, delegates {delegates:?}", names.collect::<Vec<_>>())
        })
        .await?;
        crate::follow::nothing_is_left(self.ground, &self.namespace).await?;
        for target in targets(self.ground) {
            remove_namespace(target, &self.namespace).await?;
        }
        self.recorder.check_parents()
    }
}

/// A pod in one line, for messages.
pub(crate) fn brief(pod: &Pod) -> String {
    let status = json!(pod.status);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let deleted = if pod.metadata.deletion_timestamp.is_some() { " terminating" } else { "" };
    format!(
        "{}{deleted} {} on {node:?} {}",
        pod.name_any(),
        status["phase"],
        status.get("conditions").unwrap_or(&Value::Null)
    )
}

/// Creates an object of any kind.
pub(crate) async fn create(
    cluster: &Cluster,
    namespace: Option<&str>,
    (group_version, kind): (&str, &str),
    object: Value,
) -> Result<DynamicObject> {
    let api = cluster.dynamic(group_version, kind, namespace);
    api.create(&PostParams::default(), &whole(group_version, kind, object)?)
        .await
        .with_context(|| format!("cannot create {kind} in {}", cluster.name))
}

/// What the API server answers to a create that changes nothing.
pub(crate) async fn try_create(
    cluster: &Cluster,
    namespace: Option<&str>,
    (group_version, kind): (&str, &str),
    object: Value,
) -> Result<DynamicObject> {
    let api = cluster.dynamic(group_version, kind, namespace);
    let parameters = PostParams { dry_run: true, field_manager: None };
    Ok(api.create(&parameters, &whole(group_version, kind, object)?).await?)
}

fn whole(group_version: &str, kind: &str, mut object: Value) -> Result<DynamicObject> {
    let fields = object.as_object_mut().context("not an object")?;
    fields.insert("apiVersion".into(), json!(group_version));
    fields.insert("kind".into(), json!(kind));
    serde_json::from_value(object).context("not an object")
}

/// Deletes a namespace and waits until it is gone.
pub(crate) async fn remove_namespace(cluster: &Cluster, name: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    match namespaces.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => drop(other.with_context(|| format!("cannot delete namespace {name}"))?),
    }
    until(LONG, &format!("namespace {name} is gone from {}", cluster.name), async || {
        match namespaces.get_opt(name).await? {
            None => Ok(Some(())),
            Some(left) => bail!("{}", json!(left.status)),
        }
    })
    .await
}

/// Changes an object of any kind by a merge patch.
pub(crate) async fn merge(
    cluster: &Cluster,
    namespace: Option<&str>,
    (group_version, kind): (&str, &str),
    name: &str,
    change: Value,
) -> Result<()> {
    let api = cluster.dynamic(group_version, kind, namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await
        .with_context(|| format!("cannot change {kind} {name} in {}", cluster.name))?;
    Ok(())
}

/// Cordons a node, or makes it schedulable again.
pub(crate) async fn cordon(cluster: &Cluster, node: &str, cordoned: bool) -> Result<()> {
    merge(cluster, None, ("v1", "Node"), node, json!({"spec": {"unschedulable": cordoned}})).await
}

/// Removes a node, if it is there.
pub(crate) async fn remove_node(cluster: &Cluster, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    match nodes.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).context("cannot delete a node"),
    }
}

/// Scales the Deployment of one component, waits until it has as many pods, and returns how many it had.
pub(crate) async fn scale(cluster: &Cluster, component: &str, replicas: i32) -> Result<i32> {
    let release = e2e::install::RELEASE;
    let name = format!("multicluster-{component}");
    let deployments: Api<Deployment> = cluster.api(release);
    let before = deployments.get(&name).await?.spec.replicas.unwrap_or(1);
    let spec = json!({"spec": {"replicas": replicas}});
    merge(cluster, Some(release), ("apps/v1", "Deployment"), &name, spec).await?;
    until(LONG, &format!("{component} in {} has {replicas} pods", cluster.name), async || {
        let pods = component_pods(cluster, component).await?;
        let enough = i32::try_from(pods.len()) == Ok(replicas);
        Ok((enough && pods.iter().all(|pod| is(pod, "Ready"))).then_some(()))
    })
    .await?;
    Ok(before)
}

/// The pods of one component.
pub(crate) async fn component_pods(cluster: &Cluster, component: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = cluster.api(e2e::install::RELEASE);
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    Ok(pods.list(&selector).await?.items)
}

/// Lets a pod run in one target only: that of a ClusterTarget or, with `target-name`, of a Target.
pub(crate) fn pinned(pod: Value, target: &str) -> Result<Value> {
    pinned_by(pod, "cluster-target-name", target)
}

/// As [`pinned`], by another label of virtual nodes.
pub(crate) fn pinned_by(mut pod: Value, label: &str, value: &str) -> Result<Value> {
    let constraints = format!("nodeSelector: {{\"{}\": \"{value}\"}}", key(label));
    let metadata = pod.pointer_mut("/metadata").and_then(Value::as_object_mut).context("no metadata")?;
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    annotations[key("proxy-pod-scheduling-constraints")] = json!(constraints);
    Ok(pod)
}

/// A condition of an object's status, by its type.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = status.get("conditions").and_then(Value::as_array);
    list.into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// Fails unless a refusal contains all of these texts.
pub(crate) fn refused<T>(outcome: Result<T>, texts: &[&str]) -> Result<()> {
    let Err(error) = outcome else { bail!("it was not refused") };
    let message = format!("{error:#}");
    for text in texts {
        ensure!(message.contains(text), "the refusal does not say {text:?}: {message}");
    }
    Ok(())
}
