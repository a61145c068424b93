use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use hashbrown::DefaultHashBuilder;
use thin_vec::ThinVec;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::pod::PodVolume;
use crate::pod::requests::Requests;
use crate::resources::{ResourceList, Resources};
use crate::selector::{LabelSelector, NodeTerm};
use crate::snapshot::OwnerKind;
use crate::text::{Text, exact, shared};

/// A port of the node that a pod takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// `0.0.0.0` stands for every address.
    pub ip: Text,
    pub protocol: Text,
    pub port: i64,
}

impl HostPort {
    /// True if both cannot be served on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same_address = self.ip == other.ip || self.ip == ANY_ADDRESS || other.ip == ANY_ADDRESS;
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

const ANY_ADDRESS: &str = "0.0.0.0";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    Equal,
    Exists,
    /// An operator that this release does not know; it tolerates nothing.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Empty: every key.
    pub key: Text,
    pub operator: Operator,
    pub value: Text,
    /// Empty: every effect.
    pub effect: Text,
}

impl Toleration {
    /// True if the taint `key=value:effect` is tolerated.
    pub fn tolerates(&self, key: &str, value: &str, effect: &str) -> bool {
        let effect_fits = self.effect.is_empty() || self.effect == effect;
        let key_fits = self.key.is_empty() || self.key == key;
        effect_fits
            && key_fits
            && match self.operator {
                Operator::Equal => self.value == value,
                Operator::Exists => true,
                Operator::Unknown => false,
            }
    }

    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| field.get(key).text().map(|text| shared(text.unwrap_or_default()));
        let operator = match field.get("operator").text()? {
            None | Some("" | "Equal") => Operator::Equal,
            Some("Exists") => Operator::Exists,
            Some(_) => Operator::Unknown,
        };
        Ok(Self { key: text("key")?, operator, value: text("value")?, effect: text("effect")? })
    }
}

/// A preference and how much it weighs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Weighted<T> {
    pub weight: i64,
    pub term: T,
}

/// Whether a spread constraint looks at a property of nodes when it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    Honor,
    Ignore,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: Text,
    /// `DoNotSchedule`; otherwise it is a preference.
    pub required: bool,
    /// `matchLabelKeys` is merged in. None matches nothing.
    pub selector: Option<LabelSelector>,
    pub min_domains: i64,
    pub affinity_policy: Policy,
    pub taints_policy: Policy,
}

impl SpreadConstraint {
    pub(crate) fn parse(field: &Field<'_>, labels: &Labels) -> Result<Self, FieldError> {
        let policy = |key: &str, default| {
            Ok(match field.get(key).text()? {
                None => default,
                Some("Honor") => Policy::Honor,
                Some("Ignore") => Policy::Ignore,
                Some(_) => return Err(field.get(key).error("must be Honor or Ignore")),
            })
        };
        let required = match field.get("whenUnsatisfiable").text()? {
            Some("DoNotSchedule") | None => true,
            Some("ScheduleAnyway") => false,
            Some(_) => {
                return Err(field.get("whenUnsatisfiable").error("must be DoNotSchedule or ScheduleAnyway"));
            }
        };
        let mut selector = LabelSelector::parse(&field.get("labelSelector"))?;
        for key in field.get("matchLabelKeys").texts()? {
            if let (Some(selector), Some(value)) = (&mut selector, labels.get(&key)) {
                selector.require(&key, value);
            }
        }
        Ok(Self {
            max_skew: field.get("maxSkew").integer()?.unwrap_or(1),
            topology_key: shared(field.get("topologyKey").text()?.unwrap_or_default()),
            required,
            selector: selector.map(LabelSelector::shrunk),
            min_domains: field.get("minDomains").integer()?.unwrap_or(1),
            affinity_policy: policy("nodeAffinityPolicy", Policy::Honor)?,
            taints_policy: policy("nodeTaintsPolicy", Policy::Ignore)?,
        })
    }
}

/// Which pods an affinity or anti-affinity is about, and within which topology.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    pub topology_key: Text,
    /// None matches nothing.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name, in order; the pod's own if the manifest names none and selects none.
    pub namespaces: ThinVec<Text>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
}

impl AffinityTerm {
    fn parse(field: &Field<'_>, namespace: &str, labels: &Labels) -> Result<Self, FieldError> {
        let namespace_selector = LabelSelector::parse(&field.get("namespaceSelector"))?;
        let mut namespaces: Vec<_> =
            field.get("namespaces").texts()?.iter().map(|name| shared(name)).collect();
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(shared(namespace));
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        let mut selector = LabelSelector::parse(&field.get("labelSelector"))?;
        // The API server has merged these keys already into pods that it admitted; twice does no harm.
        for (list, same) in [("matchLabelKeys", true), ("mismatchLabelKeys", false)] {
            for key in field.get(list).texts()? {
                match (&mut selector, labels.get(&key), same) {
                    (Some(selector), Some(value), true) => selector.require(&key, value),
                    (Some(selector), Some(value), false) => selector.refuse(&key, value),
                    (None, _, _) | (_, None, _) => {}
                }
            }
        }
        Ok(Self {
            topology_key: shared(field.get("topologyKey").text()?.unwrap_or_default()),
            selector: selector.map(LabelSelector::shrunk),
            namespaces: exact(namespaces),
            namespace_selector,
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PodAffinity {
    pub required: ThinVec<AffinityTerm>,
    pub preferred: ThinVec<Weighted<AffinityTerm>>,
}

impl PodAffinity {
    fn parse(field: &Field<'_>, namespace: &str, labels: &Labels) -> Result<Self, FieldError> {
        let required = field.get("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = field.get("preferredDuringSchedulingIgnoredDuringExecution");
        Ok(Self {
            required: list(&required, |term| AffinityTerm::parse(term, namespace, labels))?,
            preferred: list(&preferred, |item| {
                Ok(Weighted {
                    weight: item.get("weight").integer()?.unwrap_or_default(),
                    term: AffinityTerm::parse(&item.get("podAffinityTerm"), namespace, labels)?,
                })
            })?,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }
}

/// Where a resource claim of a pod comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimSource {
    /// The claim of this name.
    Claim(String),
    /// It is made from a template, and the pod's status names it.
    Template,
    /// From something that this release does not know.
    Unknown,
}

/// A resource claim as a pod names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodClaim {
    pub name: String,
    pub source: ClaimSource,
}

/// What a pod asks of its node. Pods made from one template are equal here and share computed work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodSpec {
    pub namespace: Text,
    pub labels: Labels,
    /// The controller that owns it, if it is of a kind that stands for a group of pods, and that object's name.
    pub controller: Option<(OwnerKind, Text)>,
    pub scheduler_name: Text,
    pub priority: i32,
    /// Its preemption policy is `Never`: no pod makes way for it.
    pub never_preempts: bool,
    /// Names of scheduling gates.
    pub gates: ThinVec<String>,
    pub tolerations: ThinVec<Toleration>,
    pub node_selector: Labels,
    /// Required node affinity: one of the terms must match. None if there is none.
    pub node_terms: Option<ThinVec<NodeTerm>>,
    pub preferred_nodes: ThinVec<Weighted<NodeTerm>>,
    pub host_ports: ThinVec<HostPort>,
    pub spread: ThinVec<SpreadConstraint>,
    pub affinity: PodAffinity,
    pub anti_affinity: PodAffinity,
    /// Features that its node's kubelet must declare, each once.
    pub features: ThinVec<&'static str>,
    /// Images of its containers and image volumes, each with a tag or digest.
    pub images: ThinVec<Text>,
    /// Volumes that scheduling looks at, in the manifest's order.
    pub volumes: ThinVec<PodVolume>,
    /// Its resource claims, in the manifest's order.
    pub claims: ThinVec<PodClaim>,
    pub(crate) requests: Requests,
}

impl PodSpec {
    pub(crate) fn parse(pod: &Field<'_>, namespace: &str) -> Result<Self, FieldError> {
        let spec = pod.get("spec");
        let labels = pod.get("metadata").get("labels").labels()?;
        let affinity = spec.get("affinity");
        let node_affinity = affinity.get("nodeAffinity");
        let gate = |gate: &Field<'_>| Ok(gate.get("name").text()?.unwrap_or_default().to_owned());
        let constraint = |constraint: &Field<'_>| SpreadConstraint::parse(constraint, &labels);
        Ok(Self {
            namespace: shared(namespace),
            scheduler_name: shared(spec.get("schedulerName").text()?.unwrap_or("default-scheduler")),
            priority: spec.get("priority").integer32()?.unwrap_or_default(),
            never_preempts: spec.get("preemptionPolicy").text()? == Some("Never"),
            gates: list(&spec.get("schedulingGates"), gate)?,
            tolerations: list(&spec.get("tolerations"), Toleration::parse)?,
            node_selector: spec.get("nodeSelector").labels()?,
            node_terms: node_terms(&node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))?,
            preferred_nodes: preferred_nodes(&node_affinity)?,
            host_ports: exact(host_ports(&spec)?),
            spread: list(&spec.get("topologySpreadConstraints"), constraint)?,
            affinity: PodAffinity::parse(&affinity.get("podAffinity"), namespace, &labels)?,
            anti_affinity: PodAffinity::parse(&affinity.get("podAntiAffinity"), namespace, &labels)?,
            features: exact(features(&spec)?.into_iter().collect()),
            images: exact(images(&spec)?),
            volumes: exact(PodVolume::parse_all(&spec)?),
            claims: exact(claims(&spec)?),
            requests: Requests::parse(pod)?,
            controller: controller(pod)?,
            labels,
        })
    }

    /// Why a scheduler that knows no resource claims refuses the pod, as a sentence for the user.
    pub fn claim_refusal(&self) -> Option<String> {
        let claim = &self.claims.first()?.name;
        Some(format!("resource claims are not supported yet (claim {claim:?})"))
    }

    /// Whether it matters to the pod, or to others because of it, where other pods are.
    pub fn is_picky(&self) -> bool {
        !(self.spread.is_empty() && self.affinity.is_empty() && self.anti_affinity.is_empty())
    }

    /// A number that is equal for equal specs, within one process.
    pub fn class(&self) -> u64 {
        static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
        HASHER.hash_one(self)
    }

    /// What a node must have free for the pod: containers, sidecars, the largest init step, pod-level
    /// requests, overhead.
    pub fn requests(&self) -> &Resources {
        &self.requests.total
    }

    /// [`Self::requests`] as exact quantities.
    pub fn request_list(&self) -> ResourceList {
        self.requests.list()
    }
}

/// The items of a list, each as `parse` reads it.
fn list<T>(
    field: &Field<'_>,
    parse: impl Fn(&Field<'_>) -> Result<T, FieldError>,
) -> Result<ThinVec<T>, FieldError> {
    let items = field.items()?;
    let mut list = ThinVec::with_capacity(items.len());
    for item in &items {
        list.push(parse(item)?);
    }
    Ok(list)
}

fn controller(pod: &Field<'_>) -> Result<Option<(OwnerKind, Text)>, FieldError> {
    for owner in pod.get("metadata").get("ownerReferences").items()? {
        if owner.get("controller").flag()? {
            let text = |key: &str| owner.get(key).text().map(Option::unwrap_or_default);
            let kind = OwnerKind::of_controller(text("apiVersion")?, text("kind")?);
            return Ok(kind.map(|kind| (kind, shared(text("name").unwrap_or_default()))));
        }
    }
    Ok(None)
}

pub(crate) fn node_terms(field: &Field<'_>) -> Result<Option<ThinVec<NodeTerm>>, FieldError> {
    if !field.present() {
        return Ok(None);
    }
    list(&field.get("nodeSelectorTerms"), NodeTerm::parse).map(Some)
}

pub(crate) fn preferred_nodes(node_affinity: &Field<'_>) -> Result<ThinVec<Weighted<NodeTerm>>, FieldError> {
    list(&node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution"), |item| {
        Ok(Weighted {
            weight: item.get("weight").integer()?.unwrap_or_default(),
            term: NodeTerm::parse(&item.get("preference"))?,
        })
    })
}

fn host_ports(spec: &Field<'_>) -> Result<Vec<HostPort>, FieldError> {
    let mut ports = Vec::new();
    for init in spec.get("initContainers").items()? {
        if init.get("restartPolicy").text()? == Some("Always") {
            ports.extend(container_ports(&init)?);
        }
    }
    for container in spec.get("containers").items()? {
        ports.extend(container_ports(&container)?);
    }
    Ok(ports)
}

fn container_ports(container: &Field<'_>) -> Result<Vec<HostPort>, FieldError> {
    let mut ports = Vec::new();
    for port in container.get("ports").items()? {
        let number = port.get("hostPort").integer()?.unwrap_or_default();
        if number <= 0 {
            continue;
        }
        let or = |key: &str, default: &str| {
            let text = port.get(key).text()?.filter(|text| !text.is_empty());
            Ok(shared(text.unwrap_or(default)))
        };
        ports.push(HostPort {
            ip: or("hostIP", ANY_ADDRESS)?,
            protocol: or("protocol", "TCP")?,
            port: number,
        });
    }
    Ok(ports)
}

fn claims(spec: &Field<'_>) -> Result<Vec<PodClaim>, FieldError> {
    let claims = spec.get("resourceClaims").items()?;
    claims
        .iter()
        .map(|claim| {
            let named = claim.get("resourceClaimName").text()?;
            let source = match named {
                Some(name) => ClaimSource::Claim(name.to_owned()),
                None if claim.get("resourceClaimTemplateName").present() => ClaimSource::Template,
                None => ClaimSource::Unknown,
            };
            Ok(PodClaim { name: claim.get("name").text()?.unwrap_or_default().to_owned(), source })
        })
        .collect()
}

fn all_containers<'a>(spec: &Field<'a>) -> Result<Vec<Field<'a>>, FieldError> {
    let mut containers = spec.get("initContainers").items()?;
    containers.extend(spec.get("containers").items()?);
    Ok(containers)
}

/// What a kubelet must be able to do that not every kubelet can.
fn features(spec: &Field<'_>) -> Result<BTreeSet<&'static str>, FieldError> {
    let mut features = BTreeSet::new();
    let host_users = spec.get("hostUsers");
    if spec.get("hostNetwork").flag()? && host_users.present() && !host_users.flag()? {
        features.insert("UserNamespacesHostNetworkSupport");
    }
    for container in all_containers(spec)? {
        for rule in container.get("restartPolicyRules").items()? {
            if rule.get("action").text()? == Some("RestartAllContainers") {
                features.insert("RestartAllContainersOnContainerExits");
            }
        }
        for mount in container.get("volumeMounts").items()? {
            if !mount.get("bindMountOptions").items()?.is_empty() {
                features.insert("VolumeBindMountOptions");
            }
        }
    }
    Ok(features)
}

fn images(spec: &Field<'_>) -> Result<Vec<Text>, FieldError> {
    let mut images = Vec::new();
    for container in all_containers(spec)? {
        images.push(container.get("image").text()?);
    }
    for volume in spec.get("volumes").items()? {
        let image = volume.get("image");
        if image.present() {
            images.push(image.get("reference").text()?);
        }
    }
    Ok(images.into_iter().map(|image| tagged(image.unwrap_or_default())).collect())
}

/// The name with a tag: `latest` where there is none.
fn tagged(image: &str) -> Text {
    if image.rfind(':') <= image.rfind('/') { shared(&format!("{image}:latest")) } else { shared(image) }
}
