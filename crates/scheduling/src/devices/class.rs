//! DeviceClasses: which devices belong to a class, and which extended resources it stands for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::devices::claim::{DriverConfig, selectors};
use crate::devices::selector::Selector;
use crate::field::{Field, FieldError};
use crate::pod::PodInfo;

/// Every class stands for the resource of this name with its own appended, whatever else it stands for.
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// A DeviceClass.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceClass {
    pub name: Arc<str>,
    /// The extended resource that it stands for besides: `spec.extendedResourceName`.
    pub resource: Option<Arc<str>>,
    /// A device belongs to it if all of these match.
    pub(crate) selectors: Arc<[Option<Selector>]>,
    /// What drivers are told about its devices.
    pub(crate) config: Arc<[DriverConfig]>,
}

impl DeviceClass {
    /// Reads a raw DeviceClass.
    pub fn parse(class: &Value) -> Result<Self, FieldError> {
        let root = Field::root(class);
        let name = root.get("metadata").get("name").text()?.unwrap_or_default();
        let spec = root.get("spec");
        let resource = spec.get("extendedResourceName").text()?;
        let config = spec.get("config").items()?;
        let raw = |item: &Field<'_>| item.raw().cloned().unwrap_or_default();
        let config = config.iter().map(|item| DriverConfig { requests: Vec::new(), raw: raw(item) });
        Ok(Self {
            name: Arc::from(name),
            resource: resource.filter(|name| !name.is_empty()).map(Arc::from),
            selectors: selectors(&spec)?.into(),
            config: config.collect(),
        })
    }

    /// A class that exists and cannot be read: asking for its devices fails.
    pub fn unreadable(name: &str, error: &FieldError) -> Self {
        let selector = Selector::broken(&error.to_string());
        Self {
            name: Arc::from(name),
            resource: None,
            selectors: Arc::new([Some(selector)]),
            config: Arc::new([]),
        }
    }

    /// Does the class stand for this resource?
    fn backs(&self, resource: &str) -> bool {
        self.resource.as_deref() == Some(resource) || resource.strip_prefix(IMPLICIT) == Some(&*self.name)
    }

    /// Does a pod ask for something that the class stands for?
    pub(crate) fn concerns(&self, pod: &PodInfo) -> bool {
        pod.spec.requests().asks().any(|(kind, _)| self.backs(kind.name()))
    }
}

/// The DeviceClasses of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceClasses {
    by_name: BTreeMap<Arc<str>, DeviceClass>,
}

impl DeviceClasses {
    /// Adds or replaces a class. Returns what was known of it before.
    pub(crate) fn set(&mut self, class: DeviceClass) -> Option<DeviceClass> {
        self.by_name.insert(Arc::clone(&class.name), class)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<DeviceClass> {
        self.by_name.remove(name)
    }

    pub fn get(&self, name: &str) -> Option<&DeviceClass> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// The first class by name that stands for a resource.
    pub fn backing(&self, resource: &str) -> Option<&DeviceClass> {
        if let Some(name) = resource.strip_prefix(IMPLICIT) {
            return self.by_name.get(name);
        }
        self.by_name.values().find(|class| class.resource.as_deref() == Some(resource))
    }
}
