//! `bundle`: what a maintainer needs to see, in one archive. Secrets are not read; what a pod's owner wrote into
//! values and commands is left out.

mod redact;

use crate::access::{self, Cluster};
use crate::args::Access;
use crate::fleet;
use crate::output::Steps;
use anyhow::{Context as _, Result};
use api::v1alpha1::{ClusterSource, ClusterTarget, Source, Target};
use api::{ClusterSummary, PodChaperon};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::{Api, Resource, ResourceExt as _};
use redact::redact;
use std::fs::File;
use std::path::Path;
use tar::{Builder, Header};

/// Lines of each container's log.
const LINES: i64 = 2000;
const RELEASE: &str = "app.kubernetes.io/part-of=multicluster-scheduler";

/// The archive that is being written.
struct Archive {
    tar: Builder<GzEncoder<File>>,
    missing: Vec<String>,
}

impl Archive {
    fn create(file: &Path) -> Result<Self> {
        let out = File::create_new(file).with_context(|| format!("cannot create {}", file.display()))?;
        let tar = Builder::new(GzEncoder::new(out, Compression::default()));
        Ok(Self { tar, missing: Vec::new() })
    }

    fn add(&mut self, name: &str, text: &str) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(text.len()).context("the file is too large")?);
        header.set_mode(0o600);
        header.set_cksum();
        self.tar.append_data(&mut header, name, text.as_bytes()).with_context(|| format!("cannot add {name}"))
    }

    /// Adds what was read, or the reason why it was not: a person with few rights still gets a bundle.
    fn add_or_miss(&mut self, name: &str, text: Result<String>) -> Result<()> {
        match text {
            Ok(text) => self.add(name, &text),
            Err(error) => {
                self.missing.push(format!("{name}: {error:#}"));
                Ok(())
            }
        }
    }

    fn finish(mut self) -> Result<usize> {
        let missing = self.missing.join("\n");
        self.add("missing.txt", &missing)?;
        self.tar.into_inner().and_then(GzEncoder::finish).context("cannot finish the archive")?;
        Ok(self.missing.len())
    }
}

/// Collects and writes.
///
/// # Errors
/// When the file exists already or cannot be written.
pub(crate) async fn run(access: &Access, file: &Path) -> Result<()> {
    let steps = Steps::default();
    let source = access::source(access).await?;
    let mut archive = Archive::create(file)?;
    let version = source.client.apiserver_version().await;
    let version = version.context("the cluster does not answer")?;
    archive.add("kubernetes-version.txt", &format!("{}\n", version.git_version))?;
    archive.add("version.txt", &format!("{}\n", env!("CARGO_PKG_VERSION")))?;
    let all = ListParams::default();
    let release = ListParams::default().labels(RELEASE);
    steps.doing("reading objects");
    let listed = [
        ("targets", list::<Target>(&source, &all).await),
        ("clustertargets", list::<ClusterTarget>(&source, &all).await),
        ("sources", list::<Source>(&source, &all).await),
        ("clustersources", list::<ClusterSource>(&source, &all).await),
        ("clustersummaries", list::<ClusterSummary>(&source, &all).await),
        ("podchaperons", list::<PodChaperon>(&source, &all).await),
        ("virtual-nodes", list::<Node>(&source, &fleet::virtual_nodes()).await),
        ("proxy-pods", list::<Pod>(&source, &fleet::proxies()).await),
        ("deployments", list::<Deployment>(&source, &release).await),
        ("components", list::<Pod>(&source, &release).await),
        ("leases", list::<Lease>(&source, &all).await),
        ("events", list::<Event>(&source, &all).await),
    ];
    for (name, text) in listed {
        archive.add_or_miss(&format!("{name}.yaml"), text)?;
    }
    logs(&source, &release, &mut archive, &steps).await?;
    let missing = archive.finish()?;
    steps.done(&format!("wrote {}; look through it before you send it", file.display()));
    if missing > 0 {
        steps.warn(&format!("{missing} parts could not be read; missing.txt says why"));
    }
    Ok(())
}

/// Objects of a kind, without what their owners wrote into them.
async fn list<K>(source: &Cluster, which: &ListParams) -> Result<String>
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(source.client.clone(), &kind);
    let list = api.list(which).await.with_context(|| format!("cannot list {}", kind.plural))?;
    let mut objects = Vec::with_capacity(list.items.len());
    for object in list.items {
        let mut value = serde_json::to_value(object).context("an object is no JSON")?;
        redact(&mut value);
        objects.push(value);
    }
    serde_yaml::to_string(&objects).context("cannot write YAML")
}

async fn logs(source: &Cluster, release: &ListParams, archive: &mut Archive, steps: &Steps) -> Result<()> {
    let Ok(pods) = Api::<Pod>::all(source.client.clone()).list(release).await else { return Ok(()) };
    for pod in pods.items {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        steps.doing(&format!("reading the log of {name}"));
        let api: Api<Pod> = Api::namespaced(source.client.clone(), &namespace);
        for (suffix, previous) in [("", false), ("-previous", true)] {
            let params = LogParams { tail_lines: Some(LINES), previous, ..LogParams::default() };
            let text = api.logs(&name, &params).await.context("cannot read the log");
            archive.add_or_miss(&format!("logs/{namespace}/{name}{suffix}.log"), text)?;
        }
    }
    Ok(())
}
