//! From which nodes a device can be reached.

use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::node::NodeInfo;
use crate::selector::NodeTerm;

/// A node selector, of which any term may match; and as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeSelector {
    pub(crate) terms: Vec<NodeTerm>,
    pub(crate) raw: Value,
}

impl NodeSelector {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Option<Arc<Self>>, FieldError> {
        let Some(raw) = field.raw() else { return Ok(None) };
        let terms = field.get("nodeSelectorTerms").items()?;
        let terms = terms.iter().map(NodeTerm::parse).collect::<Result<_, _>>()?;
        Ok(Some(Arc::new(Self { terms, raw: raw.clone() })))
    }

    pub(crate) fn matches(&self, node: &NodeInfo) -> bool {
        self.terms.iter().any(|term| term.matches(&node.name, &node.labels))
    }

    /// Some term cannot be understood, so that the selector says nothing about any node.
    pub(crate) fn is_malformed(&self) -> bool {
        self.terms.iter().any(NodeTerm::is_malformed)
    }
}

/// Where a slice's devices, or one device, can be reached: one node, all, or some by their labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Access {
    pub(crate) node: Option<Arc<str>>,
    pub(crate) all: bool,
    pub(crate) selector: Option<Arc<NodeSelector>>,
}

impl Access {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            node: field.get("nodeName").text()?.filter(|name| !name.is_empty()).map(Arc::from),
            all: field.get("allNodes").flag()?,
            selector: NodeSelector::parse(&field.get("nodeSelector"))?,
        })
    }

    /// Nothing is said.
    pub(crate) fn is_unknown(&self) -> bool {
        self.node.is_none() && !self.all && self.selector.is_none()
    }

    pub(crate) fn reaches(&self, node: &NodeInfo) -> bool {
        match (&self.node, &self.selector) {
            (Some(name), _) => *name == node.name,
            (None, _) if self.all => true,
            (None, Some(selector)) => selector.matches(node),
            (None, None) => false,
        }
    }
}
