//! Calls by kind and name, and the clients of workload clusters.

use crate::error::Error;
use crate::openstack::{self, Config, Session};
use api::provisioning::CloudAccountSpec;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use runtime::Runtime;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One cluster, and what it is called in messages.
#[derive(Clone)]
pub(crate) struct Side {
    pub(crate) client: Client,
    pub(crate) cluster: &'static str,
}

impl Side {
    pub(crate) fn api(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    pub(crate) fn failed(
        &self,
        verb: &'static str,
        kind: &str,
        object: &str,
    ) -> impl FnOnce(kube::Error) -> Error + use<> {
        let (kind, object, cluster) = (kind.to_owned(), object.to_owned(), self.cluster);
        move |source| Error::Cluster { verb, kind, object, cluster, source: Box::new(source) }
    }

    /// One object as the API server has it.
    pub(crate) async fn get(
        &self,
        (api_version, kind): (&str, &str),
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let found = self.api(api_version, kind, namespace).get_opt(name).await;
        let found = found.map_err(self.failed("get", kind, name))?;
        Ok(found.map(|object| value(&object)))
    }

    /// Objects by selector.
    pub(crate) async fn list(
        &self,
        (api_version, kind): (&str, &str),
        namespace: Option<&str>,
        selector: &ListParams,
    ) -> Result<Vec<Value>, Error> {
        let list = self.api(api_version, kind, namespace).list(selector).await;
        let list = list.map_err(self.failed("list", kind, "by selector"))?;
        let with_type = list.items.into_iter().map(|object| {
            let mut object = value(&object);
            // A list says the type of its items once.
            object["apiVersion"] = Value::from(api_version);
            object["kind"] = Value::from(kind);
            object
        });
        Ok(with_type.collect())
    }
}

/// What cannot be printed is of no type of ours.
fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// What a kubeconfig leads to.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) side: Side,
    /// URL of the API server.
    pub(crate) server: String,
    /// Its authority, PEM in base64.
    pub(crate) authority: String,
}

/// Clients of workload clusters, by UID of the WorkloadCluster; each is made anew when its kubeconfig changes.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<String, (String, Workload)>>);

impl Clients {
    /// The client of a kubeconfig; `None`: it makes none, which is said in the log.
    pub(crate) async fn of(&self, runtime: &Runtime, uid: &str, kubeconfig: &str) -> Option<Workload> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned();
        if let Some((_, workload)) = known.filter(|(text, _)| text == kubeconfig) {
            return Some(workload);
        }
        let config = match runtime::kubeconfig::config(kubeconfig, None).await {
            Ok(config) => config,
            Err(fault) => {
                tracing::warn!(
                    cluster = uid,
                    reason = fault.message,
                    "the kubeconfig of Cluster API is not used"
                );
                return None;
            }
        };
        let parsed = kube::config::Kubeconfig::from_yaml(kubeconfig).ok()?;
        let cluster = parsed.clusters.into_iter().next().and_then(|named| named.cluster)?;
        let client = match runtime.connector.connect(config, "workload", &runtime.metrics) {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(cluster = uid, error = %runtime::Chain(&error), "the kubeconfig of Cluster API makes no client");
                return None;
            }
        };
        let workload = Workload {
            side: Side { client, cluster: "workload" },
            server: cluster.server?,
            authority: cluster.certificate_authority_data.unwrap_or_default(),
        };
        let entry = (kubeconfig.to_owned(), workload.clone());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), entry);
        Some(workload)
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// Sessions with clouds, by what lets us in. A session is kept for a while, since a login costs the cloud more than
/// any question.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, (Instant, Arc<Session>)>>);

/// Shorter than any cloud lets a token live.
const SESSION: Duration = Duration::from_mins(20);

impl Sessions {
    pub(crate) async fn of(
        &self,
        account: &CloudAccountSpec,
        (clouds, authority): (&str, &str),
    ) -> Result<Arc<Session>, openstack::Error> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(clouds).cloned();
        if let Some((_, session)) = known.filter(|(since, _)| since.elapsed() < SESSION) {
            return Ok(session);
        }
        let config = Config::parse(clouds, &account.cloud_name, account.region.as_deref())?;
        let session = Arc::new(Session::open(config, Some(authority)).await?);
        let entry = (Instant::now(), Arc::clone(&session));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(clouds.to_owned(), entry);
        Ok(session)
    }

    pub(crate) fn forget(&self, clouds: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(clouds);
    }
}
