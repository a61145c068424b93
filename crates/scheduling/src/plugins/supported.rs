use std::borrow::Cow;

use crate::framework::{Code, Cycle, Event, Plugin, PreFilter, Rejection, Scope};

/// Refuses pods that need what this release does not know, rather than placing them wrongly.
pub struct Supported;

impl Plugin for Supported {
    fn name(&self) -> &'static str {
        "Supported"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if cycle.pod.spec.unsupported.is_empty() {
            return PreFilter::Skip;
        }
        let reasons = cycle.pod.spec.unsupported.iter().cloned().map(Cow::Owned).collect();
        PreFilter::Reject(Rejection { code: Code::UnschedulableAndUnresolvable, reasons })
    }

    /// Nothing in the cluster makes it supported.
    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        matches!(event, Event::Itself { old, pod, .. } if old.spec.unsupported != pod.spec.unsupported)
    }
}
