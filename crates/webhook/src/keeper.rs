//! Keeps the Secret, the published bundle, the served certificate and the key of the proofs in step.
//!
//! Every replica runs this. A round reads the Secret live, renews what is due, publishes the bundle and only
//! then serves what the Secret holds. Two replicas that create or rotate at once meet in the API server: one
//! write wins by its resourceVersion, the other reads again.

use crate::certificates::material::{self, Data};
use crate::certificates::plan::Lifetimes;
use crate::certificates::serving::{self, Hot};
use crate::error::Error;
use crate::mac::Key;
use crate::publish::publish;
use futures::{Stream, StreamExt};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use prometheus::IntCounterVec;
use runtime::admin::Readiness;
use runtime::{CancellationToken, Chain, Class, Runtime, Seen, watch};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tracing::{debug, info, warn};

/// Condition of `/readyz`: a certificate is loaded.
pub const CERTIFICATE: &str = "certificate";
/// Condition of `/readyz`: the API server knows our CA.
pub const BUNDLE: &str = "bundle";
/// Condition of `/readyz`: the key of the proofs is loaded.
pub const KEY: &str = "key";
/// How long to wait after a lost race.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often mounted certificates are compared with those in use.
const LOOK_AT_FILES: Duration = Duration::from_secs(5);

/// The key of the proofs. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedKey(Arc<RwLock<Option<Arc<Key>>>>);

impl SharedKey {
    /// Takes another key from now on.
    pub fn set(&self, key: Key) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }

    /// The key, once there is one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Key>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What to keep, and for whom.
#[derive(Clone)]
pub struct Keeper {
    /// The cluster.
    pub client: Client,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the webhook configurations; `None` when somebody else makes certificates and publishes.
    pub configuration: Option<String>,
    /// DNS names of the certificate.
    pub names: Vec<String>,
    /// How long certificates last.
    pub lifetimes: Lifetimes,
    /// The served certificate.
    pub hot: Hot,
    /// The key of the proofs.
    pub key: SharedKey,
    /// Conditions of `/readyz`.
    pub readiness: Readiness,
    /// Failed rounds by class.
    pub failures: IntCounterVec,
}

/// Unix seconds.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Keeper {
    /// Runs rounds when due, when something changed and after failures, until stopped.
    pub async fn keep(self, mut changes: impl Stream<Item = ()> + Unpin, stop: CancellationToken) {
        let mut failing: Option<Duration> = None;
        loop {
            let wait = match self.round().await {
                Ok(wait) => {
                    failing = None;
                    wait
                }
                Err(error) if error.class() == Class::Conflict => AGAIN,
                Err(error) => {
                    self.failures.with_label_values(&["certificates", error.class().as_str()]).inc();
                    if failing.is_none() {
                        warn!(error = %Chain(&error), "certificates are not in place; trying again");
                    } else {
                        debug!(error = %Chain(&error), "certificates are still not in place");
                    }
                    let wait = failing.map_or(AGAIN, |last| (last * 2).min(LONGEST_WAIT));
                    failing = Some(wait);
                    wait
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = changes.next() => (),
                () = tokio::time::sleep(wait) => (),
            }
        }
    }

    /// One round; says after how long the next is due if nothing happens before.
    async fn round(&self) -> Result<Duration, Error> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let name = format!("{}/{}", self.namespace, self.secret);
        let read = |source| Error::ReadSecret { name: name.clone(), source };
        let current = secrets.get_opt(&self.secret).await.map_err(read)?;
        let mut data = current.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
        let (changes, recheck) = match self.configuration {
            Some(_) => material::renew(&data, &self.names, self.lifetimes, now())?,
            None => (material::mac_key(&data)?, LONGEST_WAIT.as_secs() * 10),
        };
        if !changes.is_empty() {
            self.write(&secrets, current.as_ref(), &changes).await?;
            data.extend(changes);
        }
        if let Some(key) = data.get(material::MAC_KEY) {
            self.key.set(Key::new(&key.0));
            self.readiness.set(KEY, true);
        }
        if let Some(configuration) = &self.configuration {
            self.serve(configuration, &data).await?;
        }
        Ok(Duration::from_secs(recheck))
    }

    /// Creates the Secret, or changes it if nobody has since it was read.
    async fn write(
        &self,
        secrets: &Api<Secret>,
        current: Option<&Secret>,
        changes: &Data,
    ) -> Result<(), Error> {
        let keys: Vec<_> = changes.keys().collect();
        let failed = |verb| {
            let name = format!("{}/{}", self.namespace, self.secret);
            move |source| Error::WriteSecret { verb, name, source }
        };
        let Some(current) = current else {
            let secret = json!({
                "metadata": {"name": self.secret, "labels": {
                    "app.kubernetes.io/component": "webhook",
                    "app.kubernetes.io/managed-by": "multicluster-webhook",
                }},
                "type": "Opaque",
                "data": changes,
            });
            let secret =
                serde_json::from_value(secret).map_err(kube::Error::SerdeError).map_err(failed("create"))?;
            secrets.create(&PostParams::default(), &secret).await.map_err(failed("create"))?;
            info!(object = %self.secret, "created the secret of certificates and keys");
            return Ok(());
        };
        let version = current.metadata.resource_version.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": version}, "data": changes});
        let params = PatchParams::default();
        secrets.patch(&self.secret, &params, &Patch::Merge(patch)).await.map_err(failed("patch"))?;
        info!(object = %self.secret, ?keys, "renewed certificates or keys");
        Ok(())
    }

    /// Publishes the bundle, then serves: an API server never meets a certificate that it cannot check.
    async fn serve(&self, configuration: &str, data: &Data) -> Result<(), Error> {
        let part = |key| data.get(key).cloned().unwrap_or_default();
        publish(&self.client, configuration, &part(material::CA_CERTIFICATES)).await?;
        self.readiness.set(BUNDLE, true);
        let certified = serving::certified(&part(material::CERTIFICATE).0, &part(material::KEY).0)?;
        if self.hot.differs(&certified) {
            self.hot.set(certified);
            self.readiness.set(CERTIFICATE, true);
            info!("serving a new certificate");
        }
        Ok(())
    }
}

/// An item whenever the Secret or one of the configurations changes.
pub fn changes(
    rt: &Runtime,
    secret: &str,
    configuration: Option<&str>,
) -> impl Stream<Item = ()> + Unpin + use<> {
    let named = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
    let secrets = Api::<Secret>::namespaced(rt.client.clone(), &rt.args.pod_namespace);
    let mut all = vec![watch(secrets, named(secret), "local", &rt.metrics).filter(seen).map(|_| ()).boxed()];
    if let Some(name) = configuration {
        let mutating = Api::<MutatingWebhookConfiguration>::all(rt.client.clone());
        let validating = Api::<ValidatingWebhookConfiguration>::all(rt.client.clone());
        all.push(watch(mutating, named(name), "local", &rt.metrics).filter(seen).map(|_| ()).boxed());
        all.push(watch(validating, named(name), "local", &rt.metrics).filter(seen).map(|_| ()).boxed());
    }
    futures::stream::select_all(all)
}

/// Whether a watch saw anything.
fn seen<K>(seen: &Seen<K>) -> std::future::Ready<bool> {
    std::future::ready(!matches!(seen, Seen::Failed(_)))
}

/// Serves the certificate in a directory and follows its changes, until stopped.
pub async fn follow_files(directory: &Path, hot: &Hot, readiness: &Readiness, stop: &CancellationToken) {
    let mut failing = false;
    loop {
        match serving::from_directory(directory).await {
            Ok(certified) => {
                failing = false;
                if hot.differs(&certified) {
                    hot.set(certified);
                    readiness.set(CERTIFICATE, true);
                    info!("serving a new certificate");
                }
            }
            Err(error) if failing => debug!(error = %Chain(&error), "mounted certificate is still unusable"),
            Err(error) => {
                failing = true;
                warn!(error = %Chain(&error), "mounted certificate is unusable; keeping the one in use");
            }
        }
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(LOOK_AT_FILES) => () }
    }
}
