//! Everything that one run started.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use futures::future::try_join_all;

use crate::binaries::Binaries;
use crate::cluster::{Cluster, Shared};
use crate::controlplane::{Options, Plane};
use crate::images::Images;
use crate::kubelet::Faults;
use crate::namespaces;
use crate::network::Network;
use crate::process::Process;

/// The clusters of a run.
pub struct Ground {
    clusters: BTreeMap<String, Cluster>,
    /// The programs of control planes, kubectl and helm among them.
    pub binaries: Binaries,
    /// What pods asked for and the test ground cannot do.
    pub faults: Faults,
    local: Option<(Network, Shared)>,
}

impl Ground {
    /// Starts one control plane per name, all at the same time.
    ///
    /// # Errors
    /// When one does not come up.
    pub async fn start(names: &[&str], options: Options) -> Result<Self> {
        crypto();
        let shared = Shared {
            binaries: Binaries::ensure()?,
            images: Images::beside_this_program()?,
            faults: Faults::default(),
            options,
        };
        let work = namespaces::work();
        let network = Network::lay().await.context("cannot lay the run's network")?;
        let started =
            try_join_all(names.iter().map(|name| Cluster::start(name, &work, &network, &shared))).await?;
        let clusters = started.into_iter().map(|cluster| (cluster.name.clone(), cluster)).collect();
        let (binaries, faults) = (shared.binaries.clone(), shared.faults.clone());
        Ok(Self { clusters, binaries, faults, local: Some((network, shared)) })
    }

    /// Starts one more cluster, which is not among [`Ground::clusters`], for a test that needs a fresh one.
    ///
    /// # Errors
    /// When it does not come up, or the run did not start its clusters itself.
    pub async fn start_another(&self, name: &str) -> Result<Cluster> {
        let (network, shared) = self.local.as_ref().context("these clusters were there before the run")?;
        Cluster::start(name, &namespaces::work(), network, shared).await
    }

    /// Starts the API server of a cluster again after the one before has ended.
    ///
    /// # Errors
    /// When it cannot be started, or the run did not start its clusters itself.
    pub fn start_api_server(&self, cluster: &Cluster) -> Result<Process> {
        self.plane(cluster)?.api_server()
    }

    /// Starts a server of streams of a cluster; [`crate::streams::serve`] makes a node of it.
    ///
    /// # Errors
    /// When it cannot be started, or the run did not start its clusters itself.
    pub fn start_streams(&self, cluster: &Cluster, port: u16) -> Result<Process> {
        self.plane(cluster)?.streams(port)
    }

    /// Starts a metrics-server of a cluster; [`crate::usage::serve`] makes an API of it.
    ///
    /// # Errors
    /// When it cannot be started, or the run did not start its clusters itself.
    pub fn start_metrics_server(&self, cluster: &Cluster, port: u16) -> Result<Process> {
        self.plane(cluster)?.metrics_server(port)
    }

    fn plane<'a>(&'a self, cluster: &'a Cluster) -> Result<Plane<'a>> {
        let (_, shared) = self.local.as_ref().context("these clusters were there before the run")?;
        let local = cluster.local()?;
        Ok(Plane {
            binaries: &shared.binaries,
            network: &local.network,
            folder: &local.folder,
            options: &shared.options,
        })
    }

    /// Takes clusters that are there already, by name and kubeconfig file.
    ///
    /// # Errors
    /// When one does not answer.
    pub async fn adopt(kubeconfigs: &[(String, std::path::PathBuf)]) -> Result<Self> {
        crypto();
        let mut clusters = BTreeMap::new();
        for (name, kubeconfig) in kubeconfigs {
            clusters.insert(name.clone(), Cluster::adopt(name, kubeconfig).await?);
        }
        Ok(Self { clusters, binaries: Binaries::ensure()?, faults: Faults::default(), local: None })
    }

    /// One cluster by its name.
    ///
    /// # Errors
    /// When the run has none of that name.
    pub fn cluster(&self, name: &str) -> Result<&Cluster> {
        self.clusters.get(name).with_context(|| format!("the run has no cluster {name}"))
    }

    /// All clusters, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// Whether the run itself started the clusters, so that faults can be made in them.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Fails when a pod asked the test ground for something that it does not do.
    ///
    /// # Errors
    /// What was asked for, in all clusters.
    pub fn check_faults(&self) -> Result<()> {
        let faults = self.faults.all();
        if faults.is_empty() {
            return Ok(());
        }
        bail!("the test ground cannot do what pods asked for: {}", faults.join("; "))
    }

    /// Writes what all clusters hold, and all logs, into a folder.
    ///
    /// # Errors
    /// When a file cannot be written; a cluster that does not answer is only noted.
    pub async fn dump(&self, folder: &Path) -> Result<()> {
        for cluster in self.clusters() {
            crate::dump::cluster(cluster, &folder.join(&cluster.name)).await?;
        }
        Ok(())
    }

    /// As [`Ground::dump`], into a new folder for temporary files, and says where it is.
    pub async fn dump_for_people(&self, name: &str) {
        let seconds = k8s_openapi::jiff::Timestamp::now().as_second();
        let folder = std::env::temp_dir().join(format!("{name}-{seconds}"));
        match self.dump(&folder).await {
            Ok(()) => eprintln!("what the clusters held is in {}", folder.display()),
            Err(error) => eprintln!("what the clusters held could not be written: {error:#}"),
        }
    }
}

/// Chooses the one provider of cryptography of this process.
pub fn crypto() {
    // It fails when it was chosen before, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
}
