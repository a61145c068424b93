//! The message of a waiting proxy pod's condition `PodScheduled`: one reason for each target.
//!
//! proxy-scheduler composes it and the command line takes it apart again.

/// Why one target does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The virtual node that stands for the target.
    pub node: String,
    /// In words, as the target's scheduler or the proxy-scheduler says it.
    pub text: String,
}

const AVAILABLE: &str = " virtual nodes are available: ";

/// The message for a pod of a namespace, from the reasons of all targets that serve it.
#[must_use]
pub fn compose(namespace: &str, reasons: &[Reason]) -> String {
    if reasons.is_empty() {
        return format!("0/0{AVAILABLE}no Target or ClusterTarget serves namespace {namespace}.");
    }
    let parts: Vec<String> = reasons
        .iter()
        .map(|reason| format!("1 {}: {}", reason.node, reason.text.trim_end_matches('.')))
        .collect();
    format!("0/{}{AVAILABLE}{}.", parts.len(), parts.join("; "))
}

/// The reasons in a message; `None` when it is not one of [`compose`].
///
/// `nodes` are the virtual nodes that there may be: a reason may contain anything, the separator too.
#[must_use]
pub fn parse(message: &str, nodes: &[&str]) -> Option<Vec<Reason>> {
    let (count, mut rest) = message.strip_suffix('.')?.split_once(AVAILABLE)?;
    let count: usize = count.strip_prefix("0/")?.parse().ok()?;
    let mut reasons = Vec::with_capacity(count);
    while reasons.len() < count {
        let (node, text) = rest.strip_prefix("1 ")?.split_once(": ")?;
        let next = nodes.iter().filter_map(|known| text.find(&format!("; 1 {known}: "))).min();
        let (text, more) = match next {
            Some(at) => text.split_at_checked(at)?,
            None => (text, ""),
        };
        reasons.push(Reason { node: node.to_owned(), text: text.to_owned() });
        rest = more.strip_prefix("; ").unwrap_or_default();
    }
    Some(reasons)
}

#[cfg(test)]
mod tests {
    use super::{Reason, compose, parse};

    fn reason(node: &str, text: &str) -> Reason {
        Reason { node: node.to_owned(), text: text.to_owned() }
    }

    #[track_caller]
    fn check(reasons: &[Reason], message: &str) {
        assert_eq!(compose("ns", reasons), message);
        assert_eq!(parse(message, &["admiralty-a", "admiralty-b"]).as_deref(), Some(reasons));
    }

    #[test]
    fn each_target_has_its_reason() {
        check(
            &[
                reason(
                    "admiralty-a",
                    "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)",
                ),
                reason("admiralty-b", "namespaces \"ns\" not found; create it"),
            ],
            "0/2 virtual nodes are available: 1 admiralty-a: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) \
             had untolerated taint(s); 1 admiralty-b: namespaces \"ns\" not found; create it.",
        );
    }

    #[test]
    fn without_a_target_the_namespace_is_named() {
        check(&[], "0/0 virtual nodes are available: no Target or ClusterTarget serves namespace ns.");
    }

    #[test]
    fn a_message_of_somebody_else_has_no_reasons() {
        assert_eq!(parse("waiting for the gates to open", &[]), None);
        assert_eq!(parse("0/2 virtual nodes are available: 1 admiralty-a: full.", &["admiralty-b"]), None);
    }
}
