use crate::framework::{Cycle, Event, MAX_SCORE, NodeScore, Plugin};
use crate::snapshot::Node;

/// Prefers nodes that have the pod's images already, less so if hardly any node has them.
pub struct ImageLocality;

const MIB: i64 = 1024 * 1024;
/// What is smaller than this together is as good as nothing.
const LEAST: i64 = 23 * MIB;
/// More than this for each image does not count.
const MOST_EACH: i64 = 1000 * MIB;

struct Images<'a> {
    /// Each image and what it is worth where it is: its size, times the share of nodes that have it.
    worth: Vec<(&'a str, i64)>,
}

impl<'a> Images<'a> {
    /// Nodes may report other sizes for one image; the first counts, as upstream has it.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the formula is defined in floating point, cut off to bytes"
    )]
    fn new(cycle: Cycle<'a>) -> Self {
        let all = cycle.snapshot.node_count() as f64;
        let worth = cycle.pod.spec.images.iter().map(|image| {
            let mut sizes = cycle.snapshot.nodes().filter_map(|node| node.info.images.get(image));
            let first = sizes.next().copied().unwrap_or_default();
            let share = (1 + sizes.count()) as f64 / all;
            (image.as_str(), (first as f64 * share) as i64)
        });
        Self { worth: worth.collect() }
    }
}

impl NodeScore for Images<'_> {
    fn score(&self, node: &Node) -> i64 {
        let there = self.worth.iter().filter(|(image, _)| node.info.images.contains_key(*image));
        let sum: i64 = there.map(|(_, worth)| worth).sum();
        let most = MOST_EACH * i64::try_from(self.worth.len()).unwrap_or(1);
        MAX_SCORE * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        if cycle.pod.spec.images.is_empty() {
            return None;
        }
        Some(Box::new(Images::new(cycle)))
    }

    /// It never rejects.
    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}
