//! One cluster of a run: a control plane that the run started, or one that was there before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde_json::json;

use crate::binaries::Binaries;
use crate::controlplane::{Options, Plane};
use crate::images::Images;
use crate::kubelet::{Faults, Kubelet};
use crate::network::{ClusterNetwork, Network};
use crate::process::{Process, Signal};
use crate::wait;

/// One cluster.
pub struct Cluster {
    /// Its name in the run, such as `source`.
    pub name: String,
    /// A client with all rights.
    pub client: Client,
    /// A kubeconfig file with all rights.
    pub kubeconfig: PathBuf,
    /// The URL at which every other cluster reaches its API server.
    pub server: String,
    /// The certificate authority of its API server, in PEM.
    pub authority: String,
    local: Option<Local>,
}

/// What only a cluster has that the run itself started.
pub struct Local {
    /// Its network.
    pub network: ClusterNetwork,
    /// Its own folder, with `logs/` and, when asked for, `audit.log`.
    pub folder: PathBuf,
    /// Its processes, in the order in which they were started.
    pub processes: Vec<Process>,
    /// The kubelet of its node `harness`.
    pub kubelet: Kubelet,
}

/// What all clusters of a run share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// The programs of control planes.
    pub binaries: Binaries,
    /// The programs that stand for images.
    pub images: Images,
    /// What went wrong in a way that fails the run.
    pub faults: Faults,
    /// How clusters are started.
    pub options: Options,
}

impl Cluster {
    /// Starts a control plane of its own and waits until it serves and its node `harness` is Ready.
    ///
    /// # Errors
    /// When a process cannot be started or does not serve in time, with the end of its log.
    pub async fn start(name: &str, work: &Path, network: &Network, shared: &Shared) -> Result<Self> {
        let folder = work.join(name);
        std::fs::create_dir_all(folder.join("logs")).context("cannot make a cluster's folder")?;
        let network = network.join().await.with_context(|| format!("cannot lay the network of {name}"))?;
        let plane = Plane {
            binaries: &shared.binaries,
            network: &network,
            folder: &folder,
            options: &shared.options,
        };
        let authority = plane.identities()?.authority;
        let mut processes = vec![plane.etcd()?, plane.api_server()?];
        let kubeconfig = folder.join("admin.kubeconfig");
        let client = client(&kubeconfig).await?;
        serves(name, &client, &processes).await?;
        processes.extend([plane.controllers()?, plane.scheduler()?, plane.kwok()?]);
        let server = plane.server();
        let kubelet = Kubelet::start(
            client.clone(),
            network.clone(),
            &folder,
            shared.images.clone(),
            shared.faults.clone(),
        )
        .await
        .with_context(|| format!("cannot start the kubelet of {name}"))?;
        let local = Some(Local { network, folder, processes, kubelet });
        let cluster = Self { name: name.to_owned(), client, kubeconfig, server, authority, local };
        cluster.namespace_is_usable("default").await?;
        Ok(cluster)
    }

    /// Takes a cluster that is there already, from a kubeconfig file.
    ///
    /// # Errors
    /// When the file does not lead to a cluster.
    pub async fn adopt(name: &str, kubeconfig: &Path) -> Result<Self> {
        let client = client(kubeconfig).await?;
        client.apiserver_version().await.with_context(|| format!("cluster {name} does not answer"))?;
        let parsed = Kubeconfig::read_from(kubeconfig).context("cannot read a kubeconfig")?;
        let loader = Config::from_custom_kubeconfig(parsed.clone(), &KubeConfigOptions::default()).await?;
        let authority = parsed
            .clusters
            .iter()
            .filter_map(|named| named.cluster.as_ref()?.certificate_authority_data.clone())
            .find_map(|data| crate::provider::decode(&data).ok())
            .context("the kubeconfig has no certificate-authority-data")?;
        Ok(Self {
            name: name.to_owned(),
            client,
            kubeconfig: kubeconfig.to_path_buf(),
            server: loader.cluster_url.to_string(),
            authority,
            local: None,
        })
    }

    /// The parts of a cluster that the run itself started.
    ///
    /// # Errors
    /// When the cluster was there before the run.
    pub fn local(&self) -> Result<&Local> {
        self.local.as_ref().with_context(|| format!("cluster {} was not started by this run", self.name))
    }

    /// A client for the objects of one namespace.
    #[must_use]
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// A client for objects of any kind, such as `multicluster.admiralty.io/v1alpha1` `Target`, in one
    /// namespace, or in none or all of them.
    #[must_use]
    pub fn dynamic(&self, group_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Creates a namespace with these labels and waits until pods can be created in it.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
                .context("labels")?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.create(&PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other.with_context(|| format!("cannot create namespace {name}"))?),
        }
        self.namespace_is_usable(name).await
    }

    async fn namespace_is_usable(&self, name: &str) -> Result<()> {
        let accounts: Api<ServiceAccount> = self.api(name);
        wait::until(wait::SOON, &format!("namespace {name} has its ServiceAccount"), async || {
            Ok(accounts.get_opt("default").await?)
        })
        .await
        .map(drop)
    }

    /// The process of one program, such as `kube-apiserver`.
    ///
    /// # Errors
    /// When this run did not start it.
    pub fn process(&self, program: &str) -> Result<&Process> {
        let processes = &self.local()?.processes;
        processes.iter().find(|process| process.name == program).with_context(|| format!("no {program} here"))
    }

    /// Ends all processes of the cluster, for one that only a single test needed.
    ///
    /// # Errors
    /// When this run did not start it or a signal cannot be sent.
    pub async fn end(self) -> Result<()> {
        for process in self.local()?.processes.iter().rev() {
            process.signal(Signal::Kill).await?;
        }
        Ok(())
    }

    /// Freezes the API server: connections stay open and nothing is answered.
    ///
    /// # Errors
    /// When this run did not start it.
    pub async fn freeze(&self) -> Result<()> {
        self.process("kube-apiserver")?.signal(Signal::Stop).await
    }

    /// Lets a frozen API server go on.
    ///
    /// # Errors
    /// When this run did not start it.
    pub async fn thaw(&self) -> Result<()> {
        self.process("kube-apiserver")?.signal(Signal::Cont).await
    }

    /// Cuts the cluster off from all others.
    ///
    /// # Errors
    /// When this run did not start it.
    pub async fn cut(&self) -> Result<()> {
        self.local()?.network.cut().await
    }

    /// Undoes [`Cluster::cut`].
    ///
    /// # Errors
    /// When this run did not start it.
    pub async fn heal(&self) -> Result<()> {
        self.local()?.network.heal().await
    }

    /// The metrics of the API server, in the text format of Prometheus.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<String> {
        self.raw("/metrics").await
    }

    /// The body of a GET of any path of the API server.
    ///
    /// # Errors
    /// When it answers with an error.
    pub async fn raw(&self, path: &str) -> Result<String> {
        let request = http::Request::get(path).body(Vec::new()).context("not a path")?;
        self.client.request_text(request).await.with_context(|| format!("GET {path} of {}", self.name))
    }
}

/// A client from a kubeconfig file.
///
/// # Errors
/// When the file cannot be read or names no cluster.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("cannot read a kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("cannot make a client")
}

async fn serves(name: &str, client: &Client, processes: &[Process]) -> Result<()> {
    let answers = async || {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok((client.request_text(request).await? == "ok").then_some(()))
    };
    let any_ends = futures::future::select_all(processes.iter().map(|process| Box::pin(process.wait())));
    let what = format!("the API server of {name} is ready");
    tokio::select! {
        ready = wait::until(Duration::from_secs(120), &what, answers) => ready.with_context(|| {
            processes.iter().map(|process| format!("{}:\n{}\n", process.name, process.tail())).collect::<String>()
        }),
        (_, which, _) = any_ends => match processes.get(which) {
            Some(process) => bail!("{} of {name} ended:\n{}", process.name, process.tail()),
            None => bail!("a process of {name} ended"),
        },
    }
}
