//! Clients of the clusters that a person has kubeconfig contexts for, and of targets through their Secrets.

use crate::args::Access;
use crate::fleet::Member;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for a connection and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One cluster through one context.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// A client with the rights of the context's user.
    pub(crate) client: Client,
    /// What the client was made of: server, authority and default namespace.
    pub(crate) config: Config,
}

impl Cluster {
    /// UID of the cluster: that of its `kube-system` namespace. `which` names it in errors.
    ///
    /// # Errors
    /// When the namespace cannot be read or has none.
    pub(crate) async fn uid(&self, which: &str) -> Result<String> {
        let what = || format!("cannot read the identity of {which} (namespace kube-system)");
        let system =
            Api::<Namespace>::all(self.client.clone()).get("kube-system").await.with_context(what)?;
        system.metadata.uid.with_context(what)
    }
}

/// The file that the person named, or those that kubectl would read.
fn kubeconfig(access: &Access) -> Result<Kubeconfig> {
    match &access.kubeconfig {
        Some(file) => Kubeconfig::read_from(file).with_context(|| format!("cannot read {}", file.display())),
        None => Kubeconfig::read().context("cannot read a kubeconfig; name one by --kubeconfig"),
    }
}

/// The cluster of a context; the current one when none is named.
///
/// # Errors
/// When the kubeconfig has no such context, or it makes no client.
pub(crate) async fn cluster(access: &Access, context: Option<&str>) -> Result<Cluster> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let which = context.map_or_else(|| "the current context".to_owned(), |name| format!("context {name:?}"));
    let config = Config::from_custom_kubeconfig(kubeconfig(access)?, &options)
        .await
        .with_context(|| format!("cannot use {which} of the kubeconfig"))?;
    connect(config).with_context(|| format!("cannot make a client of {which}"))
}

fn connect(mut config: Config) -> Result<Cluster> {
    config.connect_timeout = Some(PATIENCE);
    config.read_timeout = Some(PATIENCE);
    let client = Client::try_from(config.clone())?;
    Ok(Cluster { client, config })
}

/// The source cluster.
///
/// # Errors
/// As [`cluster`].
pub(crate) async fn source(access: &Access) -> Result<Cluster> {
    let mut cluster = cluster(access, access.context.as_deref()).await?;
    if let Some(namespace) = &access.namespace {
        cluster.config.default_namespace.clone_from(namespace);
    }
    Ok(cluster)
}

/// Ways into targets: contexts that the person named, and the Targets' own Secrets.
pub(crate) struct Targets<'a> {
    access: &'a Access,
    contexts: BTreeMap<&'a str, &'a str>,
}

impl<'a> Targets<'a> {
    /// From arguments of the form `TARGET=CONTEXT`.
    ///
    /// # Errors
    /// When one has another form.
    pub(crate) fn new(access: &'a Access, contexts: &'a [String]) -> Result<Self> {
        let pairs = contexts.iter().map(|pair| match pair.split_once('=') {
            Some((target, context)) if !target.is_empty() && !context.is_empty() => Ok((target, context)),
            Some(_) | None => bail!("--target-context {pair}: write TARGET=CONTEXT"),
        });
        Ok(Self { access, contexts: pairs.collect::<Result<_>>()? })
    }

    /// The cluster of a target. The Secret is read with the person's rights, and what it asks for is checked as
    /// the components check it: a tenant who may write it must not run commands as this person.
    ///
    /// # Errors
    /// When there is no way in.
    pub(crate) async fn of(&self, source: &Cluster, member: &Member) -> Result<Cluster> {
        let key = member.key();
        if let Some(context) = self.contexts.get(key.as_str()) {
            return cluster(self.access, Some(context)).await;
        }
        if member.is_self {
            return Ok(source.clone());
        }
        let text = member.kubeconfig(&source.client).await?;
        through(&text, member.secret_context()).await
    }
}

/// The cluster of a Secret's kubeconfig.
///
/// # Errors
/// When it asks for what is not allowed, or makes no client.
pub(crate) async fn through(kubeconfig: &str, context: Option<&str>) -> Result<Cluster> {
    let config = runtime::kubeconfig::config(kubeconfig, context)
        .await
        .map_err(|fault| anyhow::anyhow!("{}: {}", fault.reason.as_str(), fault.message))?;
    connect(config)
}
