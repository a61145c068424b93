//! Claims that will be made when a chaperon is elected: it is judged as if they were there.
//!
//! Nothing is bound or provisioned for a chaperon. A claim of a class that waits for its first consumer is judged like
//! any other that has no volume yet. One that is bound at once may get a volume anywhere, so that only its class is
//! looked at, and the delegate is scheduled where the volume came to be.

use std::sync::Arc;

use api::claims::{Followings, unborn};
use api::keys;
use scheduling::volumes::{BindingMode, Claim, Volumes};
use scheduling::{Diagnosis, PodInfo};
use serde_json::Value;

use crate::observe::Name;
use crate::plan::Model;

/// Whose events make a chaperon worth another look that was refused for its claims.
const PLUGIN: &str = "VolumeBinding";

/// The claims of a chaperon that are not there.
#[derive(Debug, Default)]
struct Unborn {
    /// Those that are judged as if they were there.
    judged: Vec<Claim>,
    /// Names of those that say nothing about nodes yet.
    silent: Vec<String>,
}

/// What a claim that is to be made says about nodes.
enum Fate {
    /// As much as one that is there.
    Judged(Box<Claim>),
    /// Nothing before it has its volume.
    Silent,
}

fn text<'a>(spec: &'a Value, field: &str) -> Option<&'a str> {
    spec.get(field).and_then(Value::as_str)
}

/// Whether a volume without claim would do for a claim that no class makes a volume for.
fn finds_volume(volumes: &Volumes, class: &str, claim: &Claim) -> bool {
    let does = |volume: &&Arc<scheduling::volumes::PersistentVolume>| {
        volume.available && volume.class == class && volume.claim.is_none() && volume.capacity >= claim.size()
    };
    volumes.volumes().any(|volume| does(&volume))
}

fn fate(volumes: &Volumes, raw: &Value) -> Result<Fate, String> {
    let mut claim = Claim::parse(raw).map_err(|problem| format!("a claim cannot be read: {problem}"))?;
    let name = Arc::clone(&claim.name);
    let default = || volumes.classes().filter(|class| class.is_default).map(|class| class.name.clone()).min();
    let named = text(&raw["spec"], "storageClassName").map(str::to_owned);
    let class_name = named.clone().or_else(default).unwrap_or_default();
    let Some(class) = volumes.class(&class_name) else {
        return match (finds_volume(volumes, &class_name, &claim), named) {
            (true, _) => Ok(Fate::Silent),
            (false, None) => {
                Err(format!("no default StorageClass in this cluster for PersistentVolumeClaim \"{name}\""))
            }
            (false, Some(class)) => Err(format!(
                "StorageClass \"{class}\" of PersistentVolumeClaim \"{name}\" does not exist in this cluster"
            )),
        };
    };
    if class.binding_mode == Some(BindingMode::WaitForFirstConsumer) {
        claim.class.clone_from(&class.name);
        return Ok(Fate::Judged(Box::new(claim)));
    }
    if class.provisions() || finds_volume(volumes, &class.name, &claim) {
        return Ok(Fate::Silent);
    }
    Err(format!("no volume of StorageClass \"{}\" for PersistentVolumeClaim \"{name}\"", class.name))
}

/// The claim template of an ephemeral volume in a manifest.
fn template<'a>(manifest: &'a Value, volume: &str) -> &'a Value {
    let volumes = manifest["spec"]["volumes"].as_array().into_iter().flatten();
    let found = volumes.filter(|found| found["name"] == volume).find_map(|found| found.get("ephemeral"));
    found.map_or(&Value::Null, |ephemeral| &ephemeral["volumeClaimTemplate"]["spec"])
}

/// Sorts out the claims of a pod.
fn sort(
    volumes: &Volumes,
    pod: &PodInfo,
    (followings, manifest): (&Followings, &Value),
) -> Result<Unborn, String> {
    let mut unborn_claims = Unborn::default();
    for volume in &pod.spec.volumes {
        let Some(name) = volume.claim_name(pod) else { continue };
        let known = volumes.claim(&pod.namespace, &name);
        let raw = match volume {
            scheduling::PodVolume::Claim { .. } => {
                // Others are the target's own, and must be there.
                let Some(following) = followings.get(&*name) else { continue };
                if let Some(known) = known {
                    if known.labels.get(keys::PARENT_UID).is_some_and(|uid| *uid == *following.uid) {
                        continue;
                    }
                    return Err(format!(
                        "PersistentVolumeClaim \"{name}\" of this cluster is not that of the source"
                    ));
                }
                unborn(&pod.namespace, &name, &following.spec, None)
            }
            scheduling::PodVolume::Ephemeral { volume } if known.is_none() => {
                unborn(&pod.namespace, &name, template(manifest, volume), Some(&pod.uid))
            }
            scheduling::PodVolume::Ephemeral { .. }
            | scheduling::PodVolume::Csi { .. }
            | scheduling::PodVolume::Disk { .. } => continue,
        };
        match fate(volumes, &raw)? {
            Fate::Judged(claim) => unborn_claims.judged.push(*claim),
            Fate::Silent => unborn_claims.silent.push(name.into_owned()),
        }
    }
    Ok(unborn_claims)
}

impl Model {
    /// The best node for a chaperon, as if the claims were there that are made for it when it is elected.
    pub(super) fn evaluate_as_if(
        &mut self,
        name: &Name,
        pod: &Arc<PodInfo>,
    ) -> Result<Arc<str>, Arc<Diagnosis>> {
        let has_claims = pod.spec.volumes.iter().any(|volume| volume.claim_name(pod).is_some());
        let chaperon = self.chaperons.get(name).filter(|_| has_claims && self.settings.storage);
        let Some(chaperon) = chaperon else { return self.evaluate(pod) };
        let (followings, manifest) = (Arc::clone(&chaperon.seen.claims), Arc::clone(&chaperon.seen.manifest));
        let found = sort(self.snapshot.volumes(), pod, (&followings, &manifest));
        let Unborn { judged, silent } = match found {
            Ok(found) => found,
            Err(reason) => return Err(Arc::new(self.refused_by(PLUGIN, reason))),
        };
        let names: Vec<Arc<str>> = judged.iter().map(|claim| Arc::clone(&claim.name)).collect();
        for claim in judged {
            // Nobody else is told: it is there for this one judgement.
            drop(self.snapshot.volumes_mut().set_claim(claim));
        }
        let answer =
            if silent.is_empty() { self.evaluate(pod) } else { self.evaluate(&without(pod, &silent)) };
        for name in names {
            self.snapshot.volumes_mut().remove_claim(&pod.namespace, &name);
        }
        answer
    }
}

/// The pod without the volumes behind some claims.
fn without(pod: &PodInfo, claims: &[String]) -> PodInfo {
    let mut spec = (*pod.spec).clone();
    spec.volumes
        .retain(|volume| volume.claim_name(pod).is_none_or(|name| !claims.iter().any(|gone| *gone == name)));
    PodInfo { spec: Arc::new(spec), ..pod.clone() }
}
