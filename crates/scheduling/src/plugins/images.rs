use crate::framework::{Cycle, Event, MAX_SCORE, NodeScore, Plugin, Scale};
use crate::snapshot::Node;

/// Prefers nodes that have the pod's images already, less so if hardly any node has them.
pub struct ImageLocality;

const MIB: i64 = 1024 * 1024;
/// What is smaller than this together is as good as nothing.
const LEAST: i64 = 23 * MIB;
/// More than this for each image does not count.
const MOST_EACH: i64 = 1000 * MIB;

struct Images {
    /// What the images that are on a node are worth there, by slot: the size of each, times the share of nodes
    /// that have it.
    worth: Vec<i64>,
    count: usize,
}

impl Images {
    /// Nodes may report other sizes for one image; the first counts, as upstream has it. None if no node has any.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the formula is defined in floating point, cut off to bytes"
    )]
    fn new(Cycle { pod, snapshot }: Cycle<'_>) -> Option<Self> {
        let images = &pod.spec.images;
        let places: Vec<_> = images.iter().filter_map(|image| snapshot.images().nodes(image)).collect();
        if places.is_empty() {
            return None;
        }
        let mut worth = vec![0; snapshot.slot_count()];
        for nodes in places {
            let first = nodes.values().next().copied().unwrap_or_default();
            let share = nodes.len() as f64 / snapshot.node_count() as f64;
            nodes.keys().for_each(|slot| worth[*slot] += (first as f64 * share) as i64);
        }
        Some(Self { worth, count: images.len() })
    }
}

impl NodeScore for Images {
    fn score(&self, node: &Node) -> i64 {
        let sum = self.worth.get(node.slot()).copied().unwrap_or_default();
        let most = MOST_EACH * i64::try_from(self.count).unwrap_or(1);
        MAX_SCORE * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }

    fn scale(&self) -> Scale {
        Scale::Identity
    }
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn prefers(&self, Cycle { pod, snapshot }: Cycle<'_>) -> bool {
        pod.spec.images.iter().any(|image| snapshot.images().nodes(image).is_some())
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        Images::new(cycle).map(|images| Box::new(images) as Box<dyn NodeScore>)
    }

    /// It never rejects.
    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}
