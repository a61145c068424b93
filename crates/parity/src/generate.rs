//! Random clusters and pods.
//!
//! A document is a JSON object as the referee reads it: lists of raw objects, and the pods to be judged in
//! `pending`. The same seed and number give the same document. What exists in a document differs widely between
//! documents, so that rare combinations appear: full and empty clusters, one zone or five, few labels or many.

mod config;
mod devices;
mod node;
mod placement;
mod pod;
mod volume;

use serde_json::{Map, Value, json};

use crate::random::Random;

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const APPS: [&str; 5] = ["web", "db", "cache", "batch", "queue"];
pub(crate) const NAMESPACES: [&str; 3] = ["default", "prod", "dev"];
pub(crate) const IMAGES: [&str; 4] = ["img-a:1", "img-b", "reg.example/x/img-c:2", "reg.example:5000/img-d"];

/// Parts of the API that documents may use.
#[expect(clippy::struct_excessive_bools, reason = "each is a part of its own")]
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// PersistentVolumeClaims and all that belongs to them.
    pub volumes: bool,
    /// Pods that are nominated to a node.
    pub nominated: bool,
    /// Services, which make the system's default spread constraints take effect.
    pub services: bool,
    /// Configurations with several profiles.
    pub profiles: bool,
    /// Let PostFilter make room.
    pub preemption: bool,
    /// One document in so many has devices, and claims for them; 0: none.
    pub devices: u64,
    /// Let controllers answer, and evicted pods go, in some of the sequences.
    pub live: bool,
}

/// How a document's objects are drawn.
#[derive(Debug, Clone)]
pub(crate) struct Theme {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) pending: usize,
    pub(crate) zones: usize,
    /// Percentage of pods that ask for spread or inter-pod affinity.
    pub(crate) sociable: usize,
    /// Percentage of nodes with taints.
    pub(crate) tainted: usize,
    /// Percentage of nodes that are small.
    pub(crate) small: usize,
    /// Percentage of pods that are like another one in all but their names, as those of a ReplicaSet are.
    pub(crate) twins: usize,
    /// Schedule the pods one after another.
    pub(crate) sequence: bool,
    /// Others act as well in that sequence.
    pub(crate) live: bool,
    pub(crate) parts: Parts,
}

impl Theme {
    /// One document in 250 has 1000 nodes, one in 25 has 200 to 400; the others have 12 to 120.
    fn draw(random: &mut Random, number: u64, parts: Parts) -> Self {
        let (nodes, pending) = match number {
            number if number % 250 == 17 => (1000, 50),
            number if number % 25 == 3 => (random.between(200, 400), 50),
            number if number % 16 == 5 => (random.between(50, 120), 25),
            _ => (random.between(12, 32), random.between(8, 16)),
        };
        let live = parts.live && number % 20 == 4;
        // Where others act too, more pods should find a place.
        let density = if live { random.pick(&[0, 0, 0, 1, 3]) } else { random.pick(&[0, 1, 2, 3, 4]) };
        Self {
            nodes,
            pods: nodes * density * 3 / 4 + random.below(10),
            pending,
            zones: random.between(1, 5),
            sociable: random.pick(&[10, 30, 60]),
            tainted: random.pick(&[0, 20, 60]),
            small: random.pick(&[0, 30, 80]),
            twins: random.pick(&[0, 0, 40, 80]),
            sequence: number % 5 == 4,
            live,
            parts,
        }
    }
}

/// Makes the document with this number.
#[must_use]
pub fn document(seed: u64, number: u64, parts: Parts) -> Value {
    let mut random = Random::new(seed, number);
    let random = &mut random;
    let theme = Theme::draw(random, number, parts);
    let mut document = Map::new();
    document.insert("name".to_owned(), json!(format!("{seed}/{number}")));
    if theme.sequence {
        document.insert("sequence".to_owned(), json!(true));
    }
    if theme.live {
        document.insert("live".to_owned(), json!(true));
    }
    if parts.profiles && number % 3 == 1 {
        document.insert("config".to_owned(), config::configuration(random));
    }
    // Configurations turn no plugin of this kind off.
    if parts.preemption && (number.is_multiple_of(2) || document.contains_key("config")) {
        document.insert("preempt".to_owned(), json!(true));
    }
    let nodes: Vec<_> = (0..theme.nodes).map(|index| node::node(random, &theme, index)).collect();
    document.insert("nodes".to_owned(), json!(nodes));
    document.insert("namespaces".to_owned(), json!(namespaces(random)));
    let claims =
        (parts.volumes && !number.is_multiple_of(3)).then(|| volume::add(random, &theme, &mut document));
    let make = pod::Make {
        theme: &theme,
        claims: claims.as_ref(),
        profiles: document.contains_key("config").then(|| match theme.sequence {
            // Upstream's profiles do not tell each other what they assume of volumes.
            true => vec![random.pick(&config::PROFILES)],
            false => config::PROFILES.to_vec(),
        }),
        owners: parts.services && random.chance(70),
    };
    let mut pods: Vec<_> = (0..theme.pods).map(|index| make.placed(random, index)).collect();
    pod::part_ports(&mut pods);
    document.insert("pods".to_owned(), json!(pods));
    if make.owners {
        owners(random, &mut document);
    }
    if parts.preemption {
        document.insert("podDisruptionBudgets".to_owned(), json!(budgets(random)));
    }
    let mut pending: Vec<Value> = Vec::new();
    for index in 0..theme.pending {
        let pod = match pending.last() {
            Some(last) if random.chance(theme.twins) => {
                let mut twin = last.clone();
                twin["metadata"]["name"] = json!(format!("p{index}"));
                twin
            }
            _ => make.pending(random, index),
        };
        pending.push(pod);
    }
    if parts.devices > 0 && number % parts.devices == parts.devices / 2 {
        claims_for(seed, number, &theme, &mut pending, &mut document);
    }
    document.insert("pending".to_owned(), json!(pending));
    Value::Object(document)
}

/// Adds devices, and claims to most pods. The choices are drawn apart, so that the rest of a document does not depend
/// on whether there are any.
fn claims_for(
    seed: u64,
    number: u64,
    theme: &Theme,
    pending: &mut [Value],
    document: &mut Map<String, Value>,
) {
    let mut random = Random::new(!seed, number);
    if theme.parts.preemption {
        // Taking devices back is PostFilter's.
        document.insert("preempt".to_owned(), json!(true));
    }
    let devices = devices::add(&mut random, theme, document);
    for pod in pending {
        // The referee waits for no volume controller: it ends PreBind of all plugins at once.
        let waits = theme.sequence && pod["spec"]["volumes"].to_string().contains("laim");
        if random.chance(75) && !waits {
            devices.give(&mut random, pod, document);
        }
    }
}

/// All namespaces, now and then without one that pods live in.
fn namespaces(random: &mut Random) -> Vec<Value> {
    let mut namespaces = Vec::new();
    for name in NAMESPACES {
        if random.chance(3) {
            continue;
        }
        let env = if name == "prod" { "prod" } else { "test" };
        namespaces.push(json!({"metadata": {
            "name": name,
            "labels": {"kubernetes.io/metadata.name": name, "env": env},
        }}));
    }
    namespaces
}

/// What selects pods, and so makes the system's default spread constraints apply to them. Pods name the controllers
/// of their app as their owners.
fn owners(random: &mut Random, document: &mut Map<String, Value>) {
    let kinds = ["services", "replicaSets", "statefulSets", "replicationControllers"];
    let mut lists = kinds.map(|_| Vec::new());
    for namespace in NAMESPACES {
        for app in APPS {
            let mut labels = json!({"app": app});
            if random.chance(15) {
                labels["ver"] = json!("1");
            }
            for (kind, list) in kinds.iter().zip(&mut lists) {
                let simple = matches!(*kind, "services" | "replicationControllers");
                let selector = if simple { labels.clone() } else { json!({"matchLabels": labels}) };
                let mut object = json!({
                    "metadata": {"name": app, "namespace": namespace},
                    "spec": {"selector": selector},
                });
                if !simple {
                    object["spec"]["template"] =
                        json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
                }
                if *kind == "statefulSets" {
                    object["spec"]["serviceName"] = json!(app);
                }
                if random.chance(30) {
                    list.push(object);
                }
            }
        }
    }
    for (kind, list) in kinds.iter().zip(lists) {
        document.insert((*kind).to_owned(), json!(list));
    }
}

fn budgets(random: &mut Random) -> Vec<Value> {
    let mut budgets = Vec::new();
    for namespace in NAMESPACES {
        for app in APPS {
            if random.chance(25) {
                budgets.push(json!({
                    "metadata": {"name": app, "namespace": namespace},
                    "spec": {"selector": {"matchLabels": {"app": app}}},
                    "status": {
                        "disruptionsAllowed": random.pick(&[0, 0, 1, 2]),
                        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
                    },
                }));
            }
        }
    }
    budgets
}
