//! What would change a reason. The reasons are those of the schedulers and of API servers, word for word.

/// A part of a reason, and what helps.
const CURES: &[(&str, &str)] = &[
    ("Insufficient ", "ask for less, add nodes there, or remove pods"),
    ("Too many pods", "add nodes there, or raise their pod limit"),
    ("untolerated taint", "tolerate the taint in the pod, or remove it from the nodes"),
    (
        "didn't match Pod's node affinity/selector",
        "change the pod's node selector or affinity, or label a node",
    ),
    ("node(s) were unschedulable", "uncordon nodes of that cluster"),
    ("didn't have free ports", "free the host port there, or use another"),
    (
        "didn't match pod topology spread constraints",
        "relax the spread constraint, or add nodes in the other domains",
    ),
    ("didn't match pod anti-affinity rules", "relax the anti-affinity, or add nodes"),
    (
        "didn't satisfy existing pods anti-affinity rules",
        "relax the anti-affinity of the pods that run there",
    ),
    ("didn't match pod affinity rules", "start the pods there that it wants to be near"),
    ("exceed max volume count", "add nodes there, or use fewer volumes"),
    ("volume node affinity conflict", "its volume lies in another zone: add nodes in that zone"),
    ("didn't find available persistent volumes to bind", "create a volume there that fits the claim"),
    ("did not have enough free storage", "free storage there, or ask for less"),
    ("unbound immediate PersistentVolumeClaims", "wait for the claim to be bound, or see why it is not"),
    ("persistentvolumeclaim", "create the claim in that cluster"),
    ("claims are not supported", "remove the claim, or keep the pod at home (annotation elect: never)"),
    ("exceeded quota", "raise the ResourceQuota there, or remove pods"),
    ("admission webhook", "change what that cluster's webhook objects to"),
    ("denied the request", "change what that cluster's admission objects to"),
    ("serviceaccount", "create the ServiceAccount in that cluster"),
    ("namespaces \"", "create the namespace in that cluster"),
    ("error looking up service account", "create the ServiceAccount in that cluster"),
    ("is forbidden", "give this cluster's identity the right in that cluster"),
    ("the virtual node is cordoned", "kubectl multicluster uncordon the target"),
    ("the virtual node is not ready", "see kubectl multicluster status"),
    ("its virtual node does not exist yet", "see whether virtual-kubelet runs"),
    ("the target does not answer", "see whether its API server can be reached; pods that run there go on"),
    ("has not been read yet", "wait; see kubectl multicluster status if it lasts"),
    ("does not exist", "create the Secret that the Target names"),
    ("others wait there for room already", "wait: a pod like it was refused there a moment ago"),
    ("may add nodes", "wait for that cluster's autoscaler, or add nodes"),
    ("may preempt", "wait: pods of lower priority make way"),
    ("its scheduler places the pod", "wait for that cluster's scheduler"),
    ("its turn is over", "wait for its confirmation; the next target follows"),
];

/// What would change a reason; empty when nothing is known to help.
pub(super) fn cure(reason: &str) -> String {
    let fitting = CURES.iter().filter(|(part, _)| reason.contains(part)).map(|(_, cure)| *cure);
    let mut cures: Vec<&str> = fitting.collect();
    cures.dedup();
    cures.join("; ")
}

#[cfg(test)]
mod tests {
    use super::cure;

    #[test]
    fn each_part_of_a_reason_has_its_cure() {
        let reason = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable";
        assert_eq!(
            cure(reason),
            "ask for less, add nodes there, or remove pods; uncordon nodes of that cluster"
        );
    }

    #[test]
    fn an_unknown_reason_has_none() {
        assert_eq!(cure("the moon is full"), "");
    }
}
