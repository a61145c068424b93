//! The Targets and ClusterTargets of the source cluster.

use crate::access::Cluster;
use anyhow::{Context as _, Result, bail};
use api::v1alpha1::{ClusterTarget, Target, TargetStatus};
use api::{conditions, keys, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// Where a target's kubeconfig stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretPlace {
    /// Namespace of the Secret.
    pub(crate) namespace: String,
    /// Name of the Secret.
    pub(crate) name: String,
    /// Key of the kubeconfig.
    pub(crate) key: String,
    /// Context of the kubeconfig; its current one when absent.
    pub(crate) context: Option<String>,
}

/// A Target or ClusterTarget.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Namespace of a Target; `None` for a ClusterTarget.
    pub(crate) namespace: Option<String>,
    /// Name of the object.
    pub(crate) name: String,
    /// The target is the source itself.
    pub(crate) is_self: bool,
    /// Where its credentials are.
    pub(crate) secret: Option<SecretPlace>,
    /// What virtual-kubelet found out.
    pub(crate) status: TargetStatus,
    /// It is being deleted.
    pub(crate) terminating: bool,
}

impl Member {
    /// `NAME` of a ClusterTarget, `NAMESPACE/NAME` of a Target.
    #[must_use]
    pub(crate) fn key(&self) -> String {
        self.namespace.as_ref().map_or_else(|| self.name.clone(), |ns| format!("{ns}/{}", self.name))
    }

    /// As kubectl names it.
    #[must_use]
    pub(crate) fn object(&self) -> String {
        let kind = if self.namespace.is_some() { "target" } else { "clustertarget" };
        format!("{kind}.multicluster.admiralty.io/{}", self.name)
    }

    /// The virtual node that stands for it.
    #[must_use]
    pub(crate) fn node(&self) -> String {
        names::virtual_node(self.namespace.as_deref().unwrap_or_default(), &self.name)
    }

    /// Whether pods of a namespace may go there.
    #[must_use]
    pub(crate) fn serves(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Status of a condition: `True`, `False` or `Unknown`.
    #[must_use]
    pub(crate) fn condition(&self, kind: conditions::Kind) -> &str {
        self.find(kind).map_or("Unknown", |condition| &condition.status)
    }

    fn find(&self, kind: conditions::Kind) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == kind.as_str())
    }

    /// The first condition that is not as it should be: reason and message.
    #[must_use]
    pub(crate) fn trouble(&self) -> Option<(&str, &str)> {
        use conditions::Kind::{Accepted, Reachable, Ready};
        let bad = |kind| self.find(kind).filter(|condition| condition.status != "True");
        let condition = [Accepted, Reachable, Ready].into_iter().find_map(bad)?;
        Some((&condition.reason, &condition.message))
    }

    /// Context of the Secret's kubeconfig.
    #[must_use]
    pub(crate) fn secret_context(&self) -> Option<&str> {
        self.secret.as_ref()?.context.as_deref()
    }

    /// The kubeconfig that the Secret holds.
    ///
    /// # Errors
    /// When the person may not read it, or it holds none.
    pub(crate) async fn kubeconfig(&self, source: &Client) -> Result<String> {
        let Some(place) = &self.secret else { bail!("target {} names no Secret", self.key()) };
        let secrets: Api<Secret> = Api::namespaced(source.clone(), &place.namespace);
        let secret = secrets
            .get(&place.name)
            .await
            .with_context(|| format!("cannot read Secret {}/{}", place.namespace, place.name))?;
        let value = secret.data.unwrap_or_default().remove(&place.key).with_context(|| {
            format!("Secret {}/{} has no key {:?}", place.namespace, place.name, place.key)
        })?;
        String::from_utf8(value.0).context("the Secret's kubeconfig is no text")
    }
}

const KEY: &str = "config";

impl From<Target> for Member {
    fn from(target: Target) -> Self {
        let namespace = target.namespace();
        let secret = target.spec.kubeconfig_secret.map(|secret| SecretPlace {
            namespace: namespace.clone().unwrap_or_default(),
            name: secret.name,
            key: secret.key.unwrap_or_else(|| KEY.to_owned()),
            context: secret.context,
        });
        Self {
            namespace,
            name: target.metadata.name.unwrap_or_default(),
            is_self: target.spec.self_ == Some(true),
            secret,
            status: target.status.unwrap_or_default(),
            terminating: target.metadata.deletion_timestamp.is_some(),
        }
    }
}

impl From<ClusterTarget> for Member {
    fn from(target: ClusterTarget) -> Self {
        let secret = target.spec.kubeconfig_secret.map(|secret| SecretPlace {
            namespace: secret.namespace,
            name: secret.name,
            key: secret.key.unwrap_or_else(|| KEY.to_owned()),
            context: secret.context,
        });
        Self {
            namespace: None,
            name: target.metadata.name.unwrap_or_default(),
            is_self: target.spec.self_ == Some(true),
            secret,
            status: target.status.unwrap_or_default(),
            terminating: target.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// All proxy pods.
#[must_use]
pub(crate) fn proxies() -> ListParams {
    ListParams::default().labels(&format!("{}=true", keys::HAS_FINALIZER))
}

/// All virtual nodes.
#[must_use]
pub(crate) fn virtual_nodes() -> ListParams {
    ListParams::default().labels(&format!("{}={}", keys::PROVIDER, keys::PROVIDER_VALUE))
}

/// All of them, ClusterTargets first, each kind in the order of its names.
///
/// # Errors
/// When they cannot be listed.
pub(crate) async fn members(source: &Cluster) -> Result<Vec<Member>> {
    let all = ListParams::default();
    let hint = "cannot list ClusterTargets; is multicluster-scheduler installed in this cluster?";
    let wide = Api::<ClusterTarget>::all(source.client.clone()).list(&all).await.context(hint)?;
    let narrow = Api::<Target>::all(source.client.clone()).list(&all).await.context("cannot list Targets")?;
    let mut members: Vec<Member> =
        wide.items.into_iter().map(Member::from).chain(narrow.items.into_iter().map(Member::from)).collect();
    members.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    Ok(members)
}

/// The one that a person names.
///
/// # Errors
/// When there is none of the name: with the names that there are.
pub(crate) async fn member(source: &Cluster, key: &str) -> Result<Member> {
    let members = members(source).await?;
    let known: Vec<String> = members.iter().map(Member::key).collect();
    members
        .into_iter()
        .find(|member| member.key() == key)
        .with_context(|| format!("there is no target {key}; there are: {}", known.join(", ")))
}
