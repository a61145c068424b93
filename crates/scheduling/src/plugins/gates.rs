use crate::framework::{Cycle, Event, Plugin, Rejection};

/// Holds back pods that carry scheduling gates.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn prefers(&self, _cycle: Cycle<'_>) -> bool {
        false
    }

    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Result<(), Rejection> {
        let gates = &cycle.pod.spec.gates;
        if gates.is_empty() {
            return Ok(());
        }
        let gates = gates.join(" ");
        Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{gates}]")))
    }

    fn may_open(&self, event: &Event) -> bool {
        matches!(event, Event::Itself { change, .. } if change.ungated)
    }

    /// Only a change of the pod itself opens a gate.
    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        self.may_open(event)
    }
}
