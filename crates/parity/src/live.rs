//! A sequence in which others act as well: controllers answer what is written to claims and volumes, and pods go when
//! they are evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use scheduling::volumes::{Claim, PersistentVolume};
use scheduling::{Cache, Judge, Nomination, PodInfo, Profiles, Progress, Snapshot, VolumePlan};
use serde_json::{Value, json};

use crate::answer::{Answer, Preemption, Seen, Verdict};
use crate::ours::{answer_with, contradiction, list, profiles, read, snapshot, write};

/// How often each pod is tried that is not placed.
const ROUNDS: usize = 2;

/// Answers for the pending pods of a document, then once more for those that are not placed.
///
/// # Errors
/// When an object of the document, or one that others have written, cannot be read.
pub(crate) fn answers(document: &Value, upstream: &[Answer]) -> Result<Vec<Answer>> {
    let preempt = document["preempt"].as_bool().unwrap_or_default();
    let mut order = read(document, "pending", PodInfo::parse)?;
    order.sort_by_key(|pod| Reverse(pod.spec.priority));
    let mut cluster = Cluster {
        raw: raw(document),
        profiles: profiles(document, preempt)?,
        snapshot: snapshot(document)?,
        caches: HashMap::new(),
        preempt,
        bindings: Vec::new(),
        waits: order.iter().filter_map(|pod| Some((key(pod), pod.nominated.clone()?))).collect(),
        gone: BTreeSet::new(),
    };
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        for pod in order.iter().filter(|pod| !cluster.is_done(pod)).cloned().collect::<Vec<_>>() {
            if cluster.gone.contains(&key(&pod)) {
                continue;
            }
            // After a difference there may be fewer answers on one side.
            let seen = upstream.get(answers.len()).and_then(|answer| answer.seen.as_ref());
            let answer = cluster.attempt(pod, seen, answers.len())?;
            answers.push(answer.sorted());
        }
        cluster.settle(&mut answers);
    }
    Ok(answers)
}

fn key(pod: &PodInfo) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

/// Every pod of a document as it was written, by namespace and name.
fn raw(document: &Value) -> BTreeMap<String, Value> {
    let pods = list(document, "pods").iter().chain(list(document, "pending"));
    let named = pods.map(|raw| {
        let metadata = &raw["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        (format!("{namespace}/{}", metadata["name"].as_str().unwrap_or_default()), raw.clone())
    });
    named.collect()
}

/// A number below `bound` that follows from a name (FNV-1a), as the referee has it.
fn fate(name: &str, bound: u32) -> u32 {
    let sum =
        name.bytes().fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    sum % bound
}

/// A pod whose claims are being bound.
struct Binding {
    pod: Arc<PodInfo>,
    plan: VolumePlan,
    /// The number of its answer.
    answer: usize,
}

struct Cluster {
    raw: BTreeMap<String, Value>,
    profiles: Profiles,
    snapshot: Snapshot,
    caches: HashMap<String, Cache>,
    preempt: bool,
    bindings: Vec<Binding>,
    /// The nodes for which pods wait, by namespace and name.
    waits: BTreeMap<String, Arc<str>>,
    gone: BTreeSet<String>,
}

impl Cluster {
    fn is_done(&self, pod: &PodInfo) -> bool {
        self.snapshot.place_of(&pod.uid).is_some()
    }

    /// One scheduling cycle, and what others do about it.
    fn attempt(&mut self, pod: PodInfo, seen: Option<&Seen>, number: usize) -> Result<Answer> {
        let pod = PodInfo { nominated: self.waits.get(&key(&pod)).cloned(), ..pod };
        let (mut answer, nomination) =
            answer_with(Judge::new(&self.profiles, &self.snapshot), &pod, self.preempt);
        let cache = self.caches.entry(pod.spec.scheduler_name.to_string()).or_default();
        answer.contradiction = contradiction(self.profiles.of(&pod), cache, &pod, &self.snapshot, &answer);
        answer.pod = key(&pod);
        match (answer.verdict, &nomination, &answer.preemption) {
            (Verdict::Schedulable, ..) => self.assume(Arc::new(pod), seen, (&mut answer, number))?,
            (_, Nomination::Node(_), Some(room)) => self.make_room(&room.clone(), &pod)?,
            (_, Nomination::Clear, Some(_)) => self.wait_for(&pod, None),
            _ => {}
        }
        Ok(answer)
    }

    fn assume(
        &mut self,
        pod: Arc<PodInfo>,
        seen: Option<&Seen>,
        (answer, number): (&mut Answer, usize),
    ) -> Result<()> {
        let Some(best) = answer.best.first().cloned() else { return Ok(()) };
        let node = self.snapshot.node(&best).context("the chosen node does not exist")?;
        let name = Arc::clone(&node.info.name);
        answer.node = best;
        let plan = self.profiles.of(&pod).volumes(&pod, &self.snapshot, node);
        self.wait_for(&pod, None);
        self.snapshot.assume(Arc::clone(&pod), &name);
        let Some(mut plan) = plan else { return Ok(()) };
        answer.writes = plan.writes().iter().map(write).collect();
        answer.writes.sort_unstable();
        let volumes = self.snapshot.volumes_mut();
        ensure!(volumes.assume(&plan), "the volumes of {} changed meanwhile", answer.pod);
        for _ in 0..answer.writes.len() {
            plan.written("");
        }
        if let Some(seen) = seen {
            for raw in &seen.persistent_volumes {
                volumes.set_volume(PersistentVolume::parse(raw)?);
            }
            for raw in &seen.persistent_volume_claims {
                volumes.set_claim(Claim::parse(raw)?);
            }
        }
        self.bindings.push(Binding { pod, plan, answer: number });
        Ok(())
    }

    /// Sees what came of what was written. Pods for which it came to nothing are taken back.
    fn settle(&mut self, answers: &mut [Answer]) {
        for binding in std::mem::take(&mut self.bindings) {
            let Some(node) = self.snapshot.node(binding.plan.node()) else { continue };
            let progress = self.snapshot.volumes().progress(&binding.plan, &node.info);
            let Some(answer) = answers.get_mut(binding.answer) else { continue };
            match progress {
                Progress::Bound => answer.binding = "bound".to_owned(),
                Progress::Waiting => {
                    answer.binding = "waiting".to_owned();
                    self.bindings.push(binding);
                }
                Progress::Failed(problem) => {
                    answer.binding =
                        format!("running PreBind plugin \"VolumeBinding\": binding volumes: {problem}");
                    self.take_back(&binding);
                }
            }
        }
    }

    fn take_back(&mut self, binding: &Binding) {
        self.snapshot.volumes_mut().forget(&binding.plan);
        self.snapshot.remove_pod(&binding.pod.uid);
    }

    /// Lets a pod wait for a node, or for none.
    fn wait_for(&mut self, pod: &PodInfo, node: Option<&Arc<str>>) {
        self.snapshot.nominator_mut().remove(&pod.uid);
        self.waits.remove(&key(pod));
        let Some(node) = node else { return };
        self.waits.insert(key(pod), Arc::clone(node));
        let waiting = Arc::new(PodInfo { nominated: Some(Arc::clone(node)), ..pod.clone() });
        self.snapshot.nominator_mut().nominate(waiting, node);
    }

    /// Carries out what was decided, on the first of the nodes that are equally good.
    fn make_room(&mut self, room: &Preemption, pod: &PodInfo) -> Result<()> {
        let Some(candidate) =
            room.best.first().and_then(|node| room.candidates.iter().find(|known| known.node == *node))
        else {
            return Ok(());
        };
        for victim in &candidate.victims {
            self.evict(victim)?;
        }
        let node: Arc<str> = Arc::from(candidate.node.as_str());
        for lower in self.snapshot.nominator().below(pod.spec.priority, &node) {
            self.wait_for(&lower, None);
        }
        self.wait_for(pod, Some(&node));
        Ok(())
    }

    /// Deletes a pod. Some pods take their time; those that wait for storage have not begun to run.
    fn evict(&mut self, name: &str) -> Result<()> {
        let found = self.snapshot.pods().find(|(_, pod)| key(pod) == name);
        let Some((node, pod)) = found.filter(|(_, pod)| !pod.terminating) else { return Ok(()) };
        let (node, pod) = (Arc::clone(&node.info.name), Arc::clone(pod));
        if let Some(place) = self.bindings.iter().position(|binding| binding.pod.uid == pod.uid) {
            let binding = self.bindings.remove(place);
            self.gone.insert(name.to_owned());
            self.take_back(&binding);
        } else if fate(name, 2) == 0 {
            self.gone.insert(name.to_owned());
            self.snapshot.remove_pod(&pod.uid);
        } else {
            let mut raw = self.raw.get(name).cloned().context("a pod that nobody knows was evicted")?;
            raw["spec"]["nodeName"] = json!(&*node);
            raw["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            raw["status"]["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            }]);
            self.snapshot.add_pod(Arc::new(PodInfo::parse(&raw)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_are_those_of_the_referee() {
        // FNV-1a of the empty text and of "a", as its authors give them.
        assert_eq!(fate("", u32::MAX), 0x811c_9dc5);
        assert_eq!(fate("a", u32::MAX), 0xe40c_292c);
    }

    /// A cluster with one node, a volume that it reaches, and two pods that share a claim; upstream's answer about
    /// the first is that the volume was written for it and that the controller is late.
    #[test]
    fn a_volume_that_was_written_for_a_claim_is_kept_for_it_while_the_controller_is_late() {
        let pod = |name: &str| {
            json!({
                "metadata": {"namespace": "default", "name": name},
                "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            })
        };
        let mut volume = json!({
            "metadata": {"name": "v"},
            "spec": {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "storageClassName": "local"},
            "status": {"phase": "Available"},
        });
        let document = json!({
            "live": true, "sequence": true,
            "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}}}],
            "storageClasses": [{
                "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }],
            "persistentVolumeClaims": [{
                "metadata": {"namespace": "default", "name": "c"},
                "spec": {
                    "accessModes": ["ReadWriteMany"], "storageClassName": "local",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
            "persistentVolumes": [volume],
            "pending": [pod("p"), pod("q")],
        });
        volume["metadata"]["resourceVersion"] = json!("1");
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "c", "uid": "default/c"});
        let first =
            json!({"pod": "default/p", "verdict": "schedulable", "seen": {"persistentVolumes": [volume]}});
        let upstream = serde_json::from_value(first).expect("an answer");
        let ours = answers(&document, &[upstream]).expect("answers");
        let places: Vec<_> =
            ours.iter().map(|answer| (&*answer.pod, &*answer.node, &*answer.binding)).collect();
        assert_eq!(places, [("default/p", "n", "waiting"), ("default/q", "n", "waiting")]);
    }
}
