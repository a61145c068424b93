//! Every read, into one value.

use crate::addons::{self, Content, Facts, Wanted};
use crate::apply::Way;
use crate::catalog::Catalog;
use crate::clients::{Clients, Sessions, Side, Workload as Connected};
use crate::error::Error;
use crate::openstack;
use crate::plan::addons::{Addon, CONFIRM, inventory_name};
use crate::plan::cloud::{Facts as CloudFacts, Purpose, is_needed, purposes};
use crate::plan::registration::{ACCOUNT, TARGETS, secret_name, source};
use crate::plan::rollout::{contains, marked};
use crate::plan::{Observed, Registration, View, Workload};
use crate::render::{
    BOOTSTRAP, CLUSTER_NAME, CONTROL_PLANE, CORE, CORE_VERSION, INFRASTRUCTURE, INFRASTRUCTURE_VERSION, Names,
};
use api::Remote;
use api::provisioning::{
    ABANDON, AddonInventorySpec, AddonName, CloudAccountSpec, FINALIZER, GROUP_VERSION, InventoryItem,
    Manifest, OWNER_UID, Rendering, SecretKey, TargetScope,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{ListParams, Patch, PatchParams};
use runtime::{Chain, Class, Runtime};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use tracing::debug;

const SECRET: (&str, &str) = ("v1", "Secret");

/// Which cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What reads need.
pub(crate) struct Eyes<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) here: Side,
    pub(crate) clients: &'a Clients,
    pub(crate) catalog: Catalog,
    pub(crate) refusal: Option<String>,
    pub(crate) sessions: &'a Sessions,
}

/// What was seen, and the way into the workload cluster.
pub(crate) struct Seen {
    pub(crate) observed: Observed,
    pub(crate) workload: Option<Connected>,
    pub(crate) cloud: Option<Way>,
    /// resourceVersion of the WorkloadCluster.
    pub(crate) version: String,
}

/// An object that is not what its kind says.
pub(crate) struct Unreadable(pub(crate) String);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn view(object: &Value) -> Result<View, Unreadable> {
    let metadata = &object["metadata"];
    let parse = |error: serde_json::Error| Unreadable(error.to_string());
    let finalizers = metadata["finalizers"].as_array();
    Ok(View {
        name: text(&metadata["name"]),
        namespace: text(&metadata["namespace"]),
        uid: text(&metadata["uid"]),
        generation: metadata["generation"].as_i64(),
        deleting: !metadata["deletionTimestamp"].is_null(),
        held: finalizers.into_iter().flatten().any(|one| one == FINALIZER),
        confirmed: metadata["annotations"][CONFIRM]
            .as_str()
            .map(|names| names.split(',').map(|name| name.trim().to_owned()).collect())
            .unwrap_or_default(),
        abandon: metadata["annotations"][ABANDON].as_str().map(str::to_owned),
        spec: serde_json::from_value(object["spec"].clone()).map_err(parse)?,
        // A status of another release is written anew.
        status: serde_json::from_value(object["status"].clone()).unwrap_or_default(),
    })
}

impl Eyes<'_> {
    /// Reads all about one cluster; `None`: it is gone.
    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Result<Seen, Unreadable>>, Error> {
        let kind = (GROUP_VERSION, "WorkloadCluster");
        let Some(object) = self.here.get(kind, Some(&key.namespace), &key.name).await? else {
            return Ok(None);
        };
        let version = text(&object["metadata"]["resourceVersion"]);
        let cluster = match view(&object) {
            Ok(cluster) => cluster,
            Err(unreadable) => return Ok(Some(Err(unreadable))),
        };
        let names = Names::of(&cluster.name, &cluster.spec);
        let (account, cloud) = self.account(&cluster).await?;
        let (cluster_api, objects) = self.objects(&cluster, &names).await?;
        let workload = self.kubeconfig(&cluster, &names).await?;
        let identity = self.here.get(SECRET, Some(&cluster.namespace), &names.secret).await?;
        let server = workload.as_ref().map(|known| (known.server.clone(), known.authority.clone()));
        let inside = match &workload {
            None => Remote::Absent,
            Some(known) => inside(&known.side, &cluster).await,
        };
        let registration = self.registration(&cluster).await?;
        let inventories = self.inventories(&cluster).await?;
        let workload_secret =
            self.here.get(SECRET, Some(&cluster.namespace), &Purpose::Workload.secret(&cluster)).await?;
        let (openstack, way) = self.openstack(&cluster, account.as_ref(), cloud.as_ref()).await;
        // Controllers in the cluster use their own credentials, else those of Cluster API.
        let inner = match purposes(&cluster.spec).last() {
            None => cloud.clone(),
            Some(Purpose::Workload) => data_of(workload_secret.as_ref()),
            Some(Purpose::Infrastructure) => data_of(identity.as_ref()),
        };
        let addons = match &workload {
            Some(known) if inside != Remote::Unknown && !cluster.deleting => {
                self.addons((&cluster, account.as_ref(), inner.as_ref()), &known.side, &inventories).await?
            }
            _unknown => Vec::new(),
        };
        let observed = Observed {
            now: self.runtime.clock.now(),
            cluster,
            account,
            cluster_api,
            cloud,
            catalog: self.catalog.clone(),
            objects,
            identity,
            workload: inside,
            server,
            registration,
            addons,
            openstack,
            workload_secret,
            inventories,
            refusal: self.refusal.clone(),
        };
        Ok(Some(Ok(Seen { observed, workload, cloud: way, version })))
    }

    /// The account and what its Secrets hold, as they hold it.
    async fn account(
        &self,
        cluster: &View,
    ) -> Result<(Option<CloudAccountSpec>, Option<BTreeMap<String, String>>), Error> {
        let namespace = Some(cluster.namespace.as_str());
        let kind = (GROUP_VERSION, "CloudAccount");
        let Some(object) = self.here.get(kind, namespace, &cluster.spec.cloud_ref.name).await? else {
            return Ok((None, None));
        };
        let Ok(account) = serde_json::from_value::<CloudAccountSpec>(object["spec"].clone()) else {
            return Ok((None, None));
        };
        let mut data = BTreeMap::new();
        let wanted =
            [("clouds.yaml", Some(account.clouds_yaml.clone())), ("cacert", account.ca_certificate.clone())];
        for (key, of) in wanted {
            let Some(of) = of else { continue };
            let Some(value) = self.secret(&cluster.namespace, &of).await? else {
                return Ok((Some(account), None));
            };
            data.insert(key.to_owned(), value);
        }
        Ok((Some(account), Some(data)))
    }

    /// What the cloud says, if it must be asked.
    async fn openstack(
        &self,
        cluster: &View,
        account: Option<&CloudAccountSpec>,
        cloud: Option<&BTreeMap<String, String>>,
    ) -> (Option<Result<CloudFacts, String>>, Option<Way>) {
        if !is_needed(cluster) {
            return (None, None);
        }
        let (Some(account), Some(cloud)) = (account, cloud) else {
            return (Some(Err("the credentials of the CloudAccount are not there".to_owned())), None);
        };
        let text = |key: &str| cloud.get(key).and_then(|text| decoded(text)).unwrap_or_default();
        let (clouds, authority) = (text("clouds.yaml"), text("cacert"));
        let asked = async {
            let session = self.sessions.of(account, (&clouds, &authority)).await?;
            let mut facts = CloudFacts { project: session.project.clone(), ..CloudFacts::default() };
            facts.credentials = session.credentials().await?;
            facts.groups = session.groups().await?;
            Ok::<_, openstack::Error>((facts, session))
        };
        match asked.await {
            Ok((facts, session)) => {
                let now = self.runtime.clock.now();
                let section = account.cloud_name.clone();
                (Some(Ok(facts)), Some(Way { session, section, authority, now }))
            }
            Err(error) => {
                // A token may have ended, or its credential is gone: the next round logs in anew.
                self.sessions.forget(&clouds);
                (Some(Err(Chain(&error).to_string())), None)
            }
        }
    }

    async fn secret(&self, namespace: &str, of: &SecretKey) -> Result<Option<String>, Error> {
        let secret = self.here.get(SECRET, Some(namespace), &of.name).await?;
        Ok(secret.and_then(|secret| secret["data"][&of.key].as_str().map(str::to_owned)))
    }

    /// All objects of Cluster API with the label of the cluster. Those of a kind are few, and what is to be deleted
    /// must be found although nobody remembers its name.
    async fn objects(
        &self,
        cluster: &View,
        names: &Names,
    ) -> Result<(bool, BTreeMap<(String, String), Value>), Error> {
        let core = format!("{CORE}/{CORE_VERSION}");
        let infrastructure = format!("{INFRASTRUCTURE}/{INFRASTRUCTURE_VERSION}");
        let plane = format!("{CONTROL_PLANE}/{CORE_VERSION}");
        let bootstrap = format!("{BOOTSTRAP}/{CORE_VERSION}");
        let mut kinds = vec![
            (core.as_str(), "Cluster"),
            (core.as_str(), "MachineDeployment"),
            (core.as_str(), "MachineHealthCheck"),
            (plane.as_str(), "KubeadmControlPlane"),
            (bootstrap.as_str(), "KubeadmConfigTemplate"),
            (infrastructure.as_str(), "OpenStackCluster"),
            (infrastructure.as_str(), "OpenStackMachine"),
            (infrastructure.as_str(), "OpenStackMachineTemplate"),
        ];
        if cluster.spec.rendering == Rendering::Topology {
            kinds.push((core.as_str(), "ClusterClass"));
            kinds.push((plane.as_str(), "KubeadmControlPlaneTemplate"));
            kinds.push((infrastructure.as_str(), "OpenStackClusterTemplate"));
        }
        let selector = ListParams::default().labels(&format!("{CLUSTER_NAME}={}", names.cluster));
        let mut objects = BTreeMap::new();
        for kind in kinds {
            match self.here.list(kind, Some(&cluster.namespace), &selector).await {
                Ok(found) => {
                    for object in found {
                        objects.insert(crate::plan::key(&object), object);
                    }
                }
                Err(error) if error.class() == Class::NotFound => return Ok((false, BTreeMap::new())),
                Err(error) => return Err(error),
            }
        }
        // A Cluster that somebody else made has no label of Cluster API.
        let of = (core.as_str(), "Cluster");
        if let Some(found) = self.here.get(of, Some(&cluster.namespace), &names.cluster).await? {
            objects.insert(("Cluster".to_owned(), names.cluster.clone()), found);
        }
        Ok((true, objects))
    }

    /// The way into the cluster, from the Secret that Cluster API writes.
    async fn kubeconfig(&self, cluster: &View, names: &Names) -> Result<Option<Connected>, Error> {
        let of = SecretKey { name: names.kubeconfig(), key: "value".to_owned() };
        let Some(encoded) = self.secret(&cluster.namespace, &of).await? else { return Ok(None) };
        match decoded(&encoded) {
            Some(text) => Ok(self.clients.of(self.runtime, &cluster.uid, &text).await),
            None => Ok(None),
        }
    }

    async fn inventories(&self, cluster: &View) -> Result<Vec<Value>, Error> {
        let ours = ListParams::default().labels(&format!("{OWNER_UID}={}", cluster.uid));
        self.here.list((GROUP_VERSION, "AddonInventory"), Some(&cluster.namespace), &ours).await
    }

    /// Add-ons that are wanted or were applied, with their objects as they are.
    async fn addons(
        &self,
        (cluster, account, cloud): (&View, Option<&CloudAccountSpec>, Option<&BTreeMap<String, String>>),
        side: &Side,
        inventories: &[Value],
    ) -> Result<Vec<Addon>, Error> {
        let decided = cluster.status.resolved.as_ref().and_then(|known| known.kubernetes_version.clone());
        let kubernetes = decided.unwrap_or_default();
        let wanted = addons::wanted(&cluster.spec, &self.catalog, &kubernetes);
        let clouds = cloud.and_then(|data| data.get("clouds.yaml")).and_then(|text| decoded(text));
        let names = Names::of(&cluster.name, &cluster.spec);
        let network = cluster.spec.network.as_ref();
        let nodes =
            network.and_then(|network| network.node_cidr.clone()).map_or_else(String::new, |range| range.0);
        let facts = Facts {
            cluster: &names.cluster,
            spec: &cluster.spec,
            nodes: if nodes.is_empty() { "10.8.0.0/20" } else { &nodes },
            clouds: clouds.as_deref().zip(account.map(|account| account.cloud_name.as_str())),
        };
        let mut all = Vec::new();
        for name in AddonName::ALL {
            let own = inventory_name(&cluster.name, name);
            let inventory = inventories.iter().find(|one| one["metadata"]["name"] == own.as_str());
            let inventory: Option<AddonInventorySpec> =
                inventory.and_then(|one| serde_json::from_value(one["spec"].clone()).ok());
            let ask = wanted.iter().find(|one| one.name == name);
            let content = match ask {
                None => None,
                Some(ask) => Some(self.content(ask, &kubernetes, &facts).await?),
            };
            if content.is_none() && inventory.is_none() {
                continue;
            }
            let mut addon =
                Addon { name, wanted: content, inventory, live: BTreeMap::new(), unchanged: BTreeSet::new() };
            self.live(side, &mut addon).await?;
            all.push(addon);
        }
        Ok(all)
    }

    async fn content(
        &self,
        ask: &Wanted,
        kubernetes: &str,
        facts: &Facts<'_>,
    ) -> Result<Result<Content, String>, Error> {
        let entry = match self.catalog.addon(ask.name, &ask.version, kubernetes) {
            Ok(entry) => entry,
            Err(fault) => return Ok(Err(fault.to_string())),
        };
        let mut texts = Vec::new();
        for manifest in &entry.manifests {
            match self.manifest(manifest).await? {
                Ok(text) => texts.push(text),
                Err(problem) => return Ok(Err(problem)),
            }
        }
        Ok(addons::content(entry, ask, &texts, facts))
    }

    async fn manifest(&self, manifest: &Manifest) -> Result<Result<String, String>, Error> {
        let Some(of) = &manifest.config_map else {
            let url = manifest.url.clone().unwrap_or_default();
            return Ok(Err(format!(
                "{url} is not fetched; put it into a ConfigMap and name that in the catalogue"
            )));
        };
        let namespace = &self.runtime.args.pod_namespace;
        let map = self.here.get(("v1", "ConfigMap"), Some(namespace), &of.name).await?;
        let Some(text) = map.as_ref().and_then(|map| map["data"][&of.key].as_str()) else {
            return Ok(Err(format!("ConfigMap {namespace}/{} has no key {}", of.name, of.key)));
        };
        match &manifest.sha256 {
            Some(sum) if !addons::is_sum(text, sum) => Ok(Err(format!(
                "ConfigMap {namespace}/{} key {} has another checksum than the catalogue says",
                of.name, of.key
            ))),
            _right => Ok(Ok(text.to_owned())),
        }
    }

    /// Reads each object; one of a kind that the cluster does not know yet is absent.
    async fn live(&self, side: &Side, addon: &mut Addon) -> Result<(), Error> {
        let mut places: Vec<InventoryItem> = Vec::new();
        if let Some(Ok(content)) = &addon.wanted {
            places.extend(content.objects.iter().map(|object| addons::place(&addons::item(object))));
        }
        if let Some(inventory) = &addon.inventory {
            places.extend(inventory.items.iter().map(addons::place));
        }
        places.sort();
        places.dedup();
        for place in places {
            let kind = (place.api_version.as_str(), place.kind.as_str());
            if let Some(found) = side.get(kind, place.namespace.as_deref(), &place.name).await? {
                addon.live.insert(place, found);
            }
        }
        let Some(Ok(content)) = &addon.wanted else { return Ok(()) };
        for object in content.objects.iter().map(marked) {
            let place = addons::place(&addons::item(&object));
            let Some(live) = addon.live.get(&place) else { continue };
            if !contains(live, &object) && self.is_same(side, live, &object).await {
                addon.unchanged.insert(place);
            }
        }
        Ok(())
    }

    /// Whether the API server would change nothing; one that refuses would not say so.
    async fn is_same(&self, side: &Side, live: &Value, object: &Value) -> bool {
        let item = addons::item(object);
        let api = side.api(&item.api_version, &item.kind, item.namespace.as_deref());
        let mut parameters = PatchParams::apply(&self.runtime.manager()).force();
        parameters.dry_run = true;
        let Ok(answer) = api.patch(&item.name, &parameters, &Patch::Apply(object)).await else {
            return false;
        };
        let bare = |mut object: Value| {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
                metadata.remove("resourceVersion");
            }
            object
        };
        bare(serde_json::to_value(answer).unwrap_or_default()) == bare(live.clone())
    }

    async fn registration(&self, cluster: &View) -> Result<Registration, Error> {
        let namespace = Some(cluster.namespace.as_str());
        let target = match cluster.spec.target.scope {
            TargetScope::Namespaced => self.here.get((TARGETS, "Target"), namespace, &cluster.name).await?,
            TargetScope::Cluster => self.here.get((TARGETS, "ClusterTarget"), None, &cluster.name).await?,
        };
        // One that somebody else made is none of ours.
        let target = target.filter(|target| crate::plan::owner(target) == Some(cluster.uid.as_str()));
        let secret = self.here.get(SECRET, namespace, &secret_name(&cluster.name)).await?;
        let mut registration = Registration { target, secret, ..Registration::default() };
        let node = registration.target.as_ref().and_then(|target| target["status"]["virtualNode"].as_str());
        let Some(node) = node.filter(|_| cluster.deleting) else { return Ok(registration) };
        let found = self.here.get(("v1", "Node"), None, node).await?;
        registration.cordoned = found.is_none_or(|node| node["spec"]["unschedulable"] == true);
        let selector = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = self.here.list(("v1", "Pod"), None, &selector).await?;
        let movable = pods.iter().filter(|pod| {
            let owners = pod["metadata"]["ownerReferences"].as_array();
            let ended = pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
            !ended && !owners.into_iter().flatten().any(|owner| owner["kind"] == "DaemonSet")
        });
        registration.pods = movable.map(full_name).collect();
        Ok(registration)
    }
}

fn data_of(secret: Option<&Value>) -> Option<BTreeMap<String, String>> {
    serde_json::from_value(secret?["data"].clone()).ok()
}

fn decoded(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

fn full_name(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]))
}

/// What the workload cluster says; whatever goes wrong on the way means that it says nothing.
async fn inside(side: &Side, cluster: &View) -> Remote<Workload> {
    let system = match side.get(("v1", "Namespace"), None, "kube-system").await {
        Ok(Some(system)) => system,
        Ok(None) => return Remote::Unknown,
        Err(error) => {
            debug!(cluster = cluster.name, error = %Chain(&error), "the workload cluster does not answer");
            return Remote::Unknown;
        }
    };
    let mut workload = Workload { uid: text(&system["metadata"]["uid"]), ..Workload::default() };
    let seen = if cluster.deleting {
        leftovers(side, &mut workload).await
    } else {
        source_side(side, cluster, &mut workload).await
    };
    match seen {
        Ok(()) => Remote::Present(workload),
        Err(error) => {
            debug!(cluster = cluster.name, error = %Chain(&error), "the workload cluster does not answer");
            Remote::Unknown
        }
    }
}

async fn source_side(side: &Side, cluster: &View, workload: &mut Workload) -> Result<(), Error> {
    workload.is_target = side.client.list_api_group_resources(TARGETS).await.is_ok();
    if !workload.is_target {
        return Ok(());
    }
    let (kind, namespace) = source(cluster);
    let scope = (kind == "Source").then_some(namespace.as_str());
    workload.invited = side.get((TARGETS, kind), scope, ACCOUNT).await?.is_some();
    workload.account = side.get(("v1", "ServiceAccount"), Some(&namespace), ACCOUNT).await?.is_some();
    Ok(())
}

/// What holds something in the cloud that only the cluster's own controllers can let go.
async fn leftovers(side: &Side, workload: &mut Workload) -> Result<(), Error> {
    let all = ListParams::default();
    let services = side.list(("v1", "Service"), None, &all).await?;
    let balancers = services.iter().filter(|service| service["spec"]["type"] == "LoadBalancer");
    workload.balancers = balancers.map(full_name).collect();
    let claims = side.list(("v1", "PersistentVolumeClaim"), None, &all).await?;
    workload.claims = claims.iter().map(full_name).collect();
    let volumes = side.list(("v1", "PersistentVolume"), None, &all).await?;
    let going = volumes.iter().filter(|volume| volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete");
    workload.volumes = going.map(|volume| text(&volume["metadata"]["name"])).collect();
    Ok(())
}
