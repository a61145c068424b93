use crate::framework::QueueSort;
use crate::pod::PodInfo;

/// Higher priority first, then whoever has waited longer.
pub struct PrioritySort;

impl QueueSort for PrioritySort {
    fn key(&self, pod: &PodInfo, queued_at: u64) -> (i64, u64) {
        (-i64::from(pod.spec.priority), queued_at)
    }
}
