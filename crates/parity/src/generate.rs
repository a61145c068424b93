//! Random clusters and pods.
//!
//! A document is a JSON object as the referee reads it: lists of raw objects, and the pods to be judged in
//! `pending`. The same seed and number give the same document. What exists in a document differs widely between
//! documents, so that rare combinations appear: full and empty clusters, one zone or five, few labels or many.

mod node;
mod placement;
mod pod;

use serde_json::{Map, Value, json};

use crate::random::Random;

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const APPS: [&str; 5] = ["web", "db", "cache", "batch", "queue"];
pub(crate) const NAMESPACES: [&str; 3] = ["default", "prod", "dev"];
pub(crate) const IMAGES: [&str; 4] = ["img-a:1", "img-b", "reg.example/x/img-c:2", "reg.example:5000/img-d"];

/// Parts of the API that documents may use.
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
    /// Schedule the pods one after another.
    pub(crate) sequence: bool,
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
        let density = random.pick(&[0, 1, 2, 3, 4]);
        Self {
            nodes,
            pods: nodes * density * 3 / 4 + random.below(10),
            pending,
            zones: random.between(1, 5),
            sociable: random.pick(&[10, 30, 60]),
            tainted: random.pick(&[0, 20, 60]),
            small: random.pick(&[0, 30, 80]),
            sequence: number % 5 == 4,
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
    let nodes: Vec<_> = (0..theme.nodes).map(|index| node::node(random, &theme, index)).collect();
    document.insert("nodes".to_owned(), json!(nodes));
    document.insert("namespaces".to_owned(), json!(namespaces(random)));
    let pods: Vec<_> = (0..theme.pods).map(|index| pod::placed(random, &theme, index)).collect();
    document.insert("pods".to_owned(), json!(pods));
    if parts.services {
        document.insert("services".to_owned(), json!(services(random)));
    }
    let pending: Vec<_> = (0..theme.pending).map(|index| pod::pending(random, &theme, index)).collect();
    document.insert("pending".to_owned(), json!(pending));
    Value::Object(document)
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

fn services(random: &mut Random) -> Vec<Value> {
    let mut services = Vec::new();
    for namespace in NAMESPACES {
        for app in APPS {
            if random.chance(30) {
                let mut selector = json!({"app": app});
                if random.chance(15) {
                    selector["ver"] = json!("1");
                }
                services.push(json!({
                    "metadata": {"name": format!("{app}-{}", services.len()), "namespace": namespace},
                    "spec": {"selector": selector},
                }));
            }
        }
    }
    services
}
