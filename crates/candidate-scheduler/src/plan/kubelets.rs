//! Nodes whose kubelets refused a delegate: the last choice for the next one, until one has run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::observe::Name;
use crate::plan::Model;
use crate::plan::chaperons::Chaperon;

/// Where delegates of one chaperon were and should not be again.
#[derive(Default)]
pub(super) struct Past {
    /// The node of the last delegate, once that is gone.
    last: Option<Arc<str>>,
    avoided: BTreeSet<Arc<str>>,
}

impl Chaperon {
    /// A delegate is placed: it says nothing about the node of the one before.
    pub(super) fn has_delegate(&mut self) {
        self.past.last = None;
    }

    pub(super) fn delegate_gone_from(&mut self, node: &Arc<str>) {
        self.past.last = Some(Arc::clone(node));
        self.learn_of_refusal();
    }

    /// The refusal, and that the delegate is gone, come by different watches in any order.
    pub(super) fn learn_of_refusal(&mut self) {
        if self.seen.runs {
            self.past.avoided.clear();
        }
        if self.seen.refused_by_node {
            self.past.avoided.extend(self.past.last.take());
        }
    }

    /// The reserved node, unless a kubelet has refused since.
    pub(super) fn kept_node(&self) -> Option<Arc<str>> {
        let node = self.seen.reserved_node.as_ref();
        node.filter(|node| !self.seen.refused_by_node && !self.past.avoided.contains(*node)).cloned()
    }
}

impl Model {
    pub(super) fn was_refused_by_node(&self, name: &Name) -> bool {
        self.chaperons.get(name).is_some_and(|chaperon| chaperon.seen.refused_by_node)
    }

    /// Nodes that a delegate goes to only if it fits nowhere else.
    pub(super) fn avoided(&self, name: &Name, chaperon: Option<&Arc<str>>) -> BTreeSet<Arc<str>> {
        let chaperon = self.chaperons.get(name).filter(|known| chaperon.is_some_and(|uid| known.is(uid)));
        chaperon.map(|chaperon| chaperon.past.avoided.clone()).unwrap_or_default()
    }
}
