//! From a proxy pod, as a path names it, to its delegate.

use super::route::PodName;
use super::streams::Streams;
use api::{Pod, PodChaperon, keys};
use http::StatusCode;
use kube::api::ListParams;
use kube::{Api, Client};
use runtime::{CancellationToken, Chain, Class, Connection, Target, Targets, class};
use std::sync::Arc;

/// Where a delegate is.
#[derive(Clone)]
pub(crate) struct Delegate {
    /// A client of its cluster, for streams.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Cancelled when its cluster is lost.
    pub(crate) end: CancellationToken,
}

/// An answer that is no success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn no_pod(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Of an API server that did not answer as wanted.
    pub(crate) fn of(what: &str, error: &kube::Error) -> Self {
        let code = match class(error) {
            Class::NotFound => StatusCode::NOT_FOUND,
            Class::Forbidden => StatusCode::FORBIDDEN,
            Class::Unreachable | Class::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Class::Conflict | Class::Invalid | Class::Bug => StatusCode::BAD_GATEWAY,
        };
        Self::new(code, format!("{what}: {}", Chain(error)))
    }
}

/// What delegates are found with.
#[derive(Clone)]
pub(crate) struct Finder {
    /// The source.
    pub(crate) local: Client,
    pub(crate) targets: Targets,
    pub(crate) streams: Streams,
}

impl Finder {
    /// The target that a virtual node stands for.
    pub(crate) fn target(&self, node: &str) -> Result<Arc<Target>, Refusal> {
        let targets = self.targets.current();
        let found = targets.values().find(|target| target.virtual_node() == node);
        found.cloned().ok_or_else(|| Refusal::no_pod(format!("node {node} stands for no target")))
    }

    /// The client of a target, for streams.
    pub(crate) fn client(&self, target: &Target) -> Result<Client, Refusal> {
        let unavailable = |why: &str| {
            let message = format!("target {} cannot be reached: {why}", target.key);
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
        };
        match &target.connection {
            Connection::Up { .. } if target.settings.is_self => Ok(self.local.clone()),
            Connection::Up { .. } => {
                self.streams.of(&target.key.to_string()).ok_or_else(|| unavailable("it has no client yet"))
            }
            Connection::Pending => Err(unavailable("its kubeconfig was not read yet")),
            Connection::Broken { message, .. } => Err(unavailable(message)),
        }
    }

    /// The delegate of a proxy pod on this node.
    ///
    /// What is asked for is looked up live: a stale answer would lead into another pod.
    pub(crate) async fn delegate(&self, node: &str, pod: &PodName) -> Result<Delegate, Refusal> {
        let PodName { namespace, name } = pod;
        let target = self.target(node)?;
        let client = self.client(&target)?;
        let pods = Api::<Pod>::namespaced(self.local.clone(), namespace);
        let found = pods.get_opt(name).await;
        let found = found.map_err(|error| Refusal::of("cannot read the proxy pod", &error))?;
        let proxy = found
            .filter(|found| found.node() == node && target.key.serves(namespace))
            .ok_or_else(|| Refusal::no_pod(format!("pod {namespace}/{name} is not on node {node}")))?;
        if !proxy.is_proxy() {
            let message = format!("pod {namespace}/{name} is no proxy pod: it runs nowhere");
            return Err(Refusal::no_pod(message));
        }
        let chaperons = Api::<PodChaperon>::namespaced(client.clone(), namespace);
        let ours = ListParams::default().labels(&format!("{}={}", keys::PARENT_UID, proxy.uid()));
        let list = chaperons.list_metadata(&ours).await;
        let list = list.map_err(|error| Refusal::of("cannot find the delegate in the target", &error))?;
        let elected = proxy.annotation(keys::ELECTED_CHAPERON);
        let mut candidates = list.items.iter().map(|item| &item.metadata).filter(|metadata| {
            let allowed = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::IS_ALLOWED));
            elected.map_or(allowed, |uid| metadata.uid.as_deref() == Some(uid))
        });
        match (candidates.next().and_then(|metadata| metadata.name.clone()), candidates.next()) {
            (Some(name), None) => {
                let end = self.streams.end_of(&target.key.to_string());
                Ok(Delegate { client, namespace: namespace.clone(), name, end })
            }
            (Some(_), Some(_)) => Err(Refusal::new(
                StatusCode::CONFLICT,
                format!("pod {namespace}/{name} has several delegates in target {}", target.key),
            )),
            (None, _) => Err(Refusal::no_pod(format!(
                "pod {namespace}/{name} has no delegate in target {}",
                target.key
            ))),
        }
    }
}
