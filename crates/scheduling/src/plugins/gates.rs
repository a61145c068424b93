use crate::framework::{Event, Plugin, Rejection};
use crate::pod::PodInfo;

/// Holds back pods that carry scheduling gates.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        if pod.spec.gates.is_empty() {
            return Ok(());
        }
        let gates = pod.spec.gates.join(" ");
        Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{gates}]")))
    }

    /// Only a change of the pod itself opens a gate.
    fn hint(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}
