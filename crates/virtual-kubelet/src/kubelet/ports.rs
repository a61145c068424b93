//! Which port stands for which virtual node. Pure.
//!
//! An API server calls `https://<node's address>:<node's port>/…` and says nowhere in it which node it means, so
//! each node has a port of its own. It stays the same while the process or its successor can have it.

use std::collections::{BTreeMap, BTreeSet};

/// Which ports there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) count: u16,
}

impl Range {
    fn ports(self) -> impl Iterator<Item = u16> {
        (0..self.count).filter_map(move |number| self.first.checked_add(number))
    }

    fn has(self, port: u16) -> bool {
        self.ports().any(|one| one == port)
    }
}

/// The port of each node. What is open stays, then what a node showed until now, then the lowest that is free.
/// A node beyond the last port has none.
pub(crate) fn assign(
    nodes: &BTreeSet<String>,
    open: &BTreeMap<String, u16>,
    shown: &BTreeMap<String, u16>,
    (range, taken): (Range, &BTreeSet<u16>),
) -> BTreeMap<String, u16> {
    let mut assigned: BTreeMap<String, u16> = open
        .iter()
        .filter(|(node, _)| nodes.contains(*node))
        .map(|(node, port)| (node.clone(), *port))
        .collect();
    let mut used: BTreeSet<u16> = assigned.values().copied().chain(taken.iter().copied()).collect();
    for (node, port) in shown {
        if nodes.contains(node) && !assigned.contains_key(node) && range.has(*port) && used.insert(*port) {
            assigned.insert(node.clone(), *port);
        }
    }
    for node in nodes {
        if assigned.contains_key(node) {
            continue;
        }
        let Some(port) = range.ports().find(|port| !used.contains(port)) else { break };
        used.insert(port);
        assigned.insert(node.clone(), port);
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::{Range, assign};
    use std::collections::{BTreeMap, BTreeSet};

    const RANGE: Range = Range { first: 10_250, count: 3 };

    fn ports(pairs: &[(&str, u16)]) -> BTreeMap<String, u16> {
        pairs.iter().map(|(node, port)| ((*node).to_owned(), *port)).collect()
    }

    #[track_caller]
    fn check(
        nodes: &[&str],
        open: &[(&str, u16)],
        shown: &[(&str, u16)],
        taken: &[u16],
        want: &[(&str, u16)],
    ) {
        let nodes: BTreeSet<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let taken: BTreeSet<u16> = taken.iter().copied().collect();
        let got = assign(&nodes, &ports(open), &ports(shown), (RANGE, &taken));
        assert_eq!(got, ports(want));
        assert_eq!(assign(&nodes, &got, &ports(shown), (RANGE, &taken)), got, "a settled world changes");
    }

    #[test]
    fn the_first_node_has_the_port_of_kubelets() {
        check(&["a"], &[], &[], &[], &[("a", 10_250)]);
        check(&["a", "b"], &[], &[], &[], &[("a", 10_250), ("b", 10_251)]);
    }

    #[test]
    fn a_node_keeps_its_port() {
        check(&["a", "b"], &[("b", 10_250)], &[], &[], &[("a", 10_251), ("b", 10_250)]);
        check(&["a", "b"], &[], &[("b", 10_250)], &[], &[("a", 10_251), ("b", 10_250)]);
        check(&["a", "b"], &[("a", 10_252)], &[("b", 10_252)], &[], &[("a", 10_252), ("b", 10_250)]);
    }

    #[test]
    fn a_port_of_another_range_or_program_is_not_kept() {
        check(&["a"], &[], &[("a", 443)], &[], &[("a", 10_250)]);
        check(&["a"], &[], &[("a", 10_250)], &[10_250], &[("a", 10_251)]);
    }

    #[test]
    fn two_nodes_never_have_one_port() {
        check(&["a", "b"], &[], &[("a", 10_251), ("b", 10_251)], &[], &[("a", 10_251), ("b", 10_250)]);
    }

    #[test]
    fn the_port_of_a_node_that_is_gone_is_free_and_more_nodes_than_ports_have_none() {
        check(&["b"], &[("a", 10_250)], &[("a", 10_250)], &[], &[("b", 10_250)]);
        let four = [("a", 10_250), ("b", 10_251), ("c", 10_252)];
        check(&["a", "b", "c", "d"], &[], &[], &[], &four);
    }
}
