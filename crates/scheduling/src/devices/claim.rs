//! ResourceClaims: which devices a pod asks for, and which it was given.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::devices::allocation::Allocation;
use crate::devices::selector::Selector;
use crate::devices::slice::DeviceTaint;
use crate::field::{Field, FieldError};
use crate::quantity::Quantity;

/// The finalizer of a claim that has devices.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// How many devices an ask is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    Exactly(i64),
    /// Every device that matches, at least one.
    All,
    /// This release does not know this mode.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceToleration {
    key: String,
    operator: String,
    value: String,
    effect: String,
    pub(crate) raw: Value,
}

impl DeviceToleration {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| Ok(field.get(key).text()?.unwrap_or_default().to_owned());
        let raw = field.raw().cloned().unwrap_or_default();
        Ok(Self {
            key: text("key")?,
            operator: text("operator")?,
            value: text("value")?,
            effect: text("effect")?,
            raw,
        })
    }

    pub(crate) fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let effect_fits = self.effect.is_empty() || self.effect == taint.effect;
        let key_fits = self.key.is_empty() || self.key == taint.key;
        effect_fits
            && key_fits
            && match self.operator.as_str() {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                _ => false,
            }
    }
}

/// Devices that are asked for by class, selectors, and number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) mode: Mode,
    /// Devices that others have are looked at, and stay theirs.
    pub(crate) admin: bool,
    /// None: not a selector that this release knows.
    pub(crate) selectors: Vec<Option<Selector>>,
    pub(crate) tolerations: Vec<DeviceToleration>,
    /// How much of a shared device's capacity is asked for.
    pub(crate) capacity: BTreeMap<String, Quantity>,
    /// It names attributes that are computed, which are off by default.
    pub(crate) derived: bool,
}

impl Ask {
    /// `spec` is the ask itself, which has the name in an alternative only.
    fn parse(name: &str, spec: &Field<'_>) -> Result<Self, FieldError> {
        let mode = match spec.get("allocationMode").text()?.unwrap_or_default() {
            "ExactCount" => Mode::Exactly(spec.get("count").integer()?.unwrap_or_default()),
            "All" => Mode::All,
            other => Mode::Unknown(other.to_owned()),
        };
        let requests = spec.get("capacity").get("requests");
        let mut capacity = BTreeMap::new();
        for key in requests.keys()? {
            capacity.insert(key.clone(), requests.get(&key).quantity()?.unwrap_or_default());
        }
        let tolerations = spec.get("tolerations").items()?;
        Ok(Self {
            name: name.to_owned(),
            class: spec.get("deviceClassName").text()?.unwrap_or_default().to_owned(),
            mode,
            admin: spec.get("adminAccess").flag()?,
            selectors: selectors(spec)?,
            tolerations: tolerations.iter().map(DeviceToleration::parse).collect::<Result<_, _>>()?,
            capacity,
            derived: !spec.get("derivedAttributes").items()?.is_empty(),
        })
    }
}

/// Selectors of a class or an ask.
pub(crate) fn selectors(spec: &Field<'_>) -> Result<Vec<Option<Selector>>, FieldError> {
    let items = spec.get("selectors").items()?;
    items.iter().map(|item| Ok(item.get("cel").get("expression").text()?.map(Selector::new))).collect()
}

/// What a request may be satisfied by.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wish {
    Exactly(Ask),
    /// The first of these that can be had.
    FirstAvailable(Vec<Ask>),
    /// Of a kind that this release does not know.
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) wish: Wish,
}

impl Request {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let name = field.get("name").text()?.unwrap_or_default();
        let exactly = field.get("exactly");
        let alternatives = field.get("firstAvailable").items()?;
        let wish = if exactly.present() {
            Wish::Exactly(Ask::parse(name, &exactly)?)
        } else if alternatives.is_empty() {
            Wish::Unknown
        } else {
            let asks = alternatives.iter().map(|ask| {
                let name = ask.get("name").text()?.unwrap_or_default();
                Ask::parse(name, ask)
            });
            Wish::FirstAvailable(asks.collect::<Result<_, _>>()?)
        };
        Ok(Self { name: name.to_owned(), wish })
    }

    pub(crate) fn asks(&self) -> &[Ask] {
        match &self.wish {
            Wish::Exactly(ask) => std::slice::from_ref(ask),
            Wish::FirstAvailable(asks) => asks,
            Wish::Unknown => &[],
        }
    }

    pub(crate) fn has_alternatives(&self) -> bool {
        matches!(self.wish, Wish::FirstAvailable(_))
    }
}

/// What the devices of a claim must have in common, or must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Constraint {
    /// Names of requests, or `request/alternative`. Empty: all.
    pub(crate) requests: Vec<String>,
    pub(crate) rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    /// All have the same value of this attribute.
    Match(String),
    /// No two have the same value of this attribute.
    Distinct(String),
    Unknown,
}

impl Constraint {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| Ok(field.get(key).text()?.map(str::to_owned));
        let rule = match (text("matchAttribute")?, text("distinctAttribute")?) {
            (Some(name), _) => Rule::Match(name),
            (None, Some(name)) => Rule::Distinct(name),
            (None, None) => Rule::Unknown,
        };
        Ok(Self { requests: field.get("requests").texts()?, rule })
    }
}

/// Configuration for drivers, for some requests or (without any) for all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DriverConfig {
    pub(crate) requests: Vec<String>,
    pub(crate) raw: Value,
}

/// A ResourceClaim.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceClaim {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub resource_version: String,
    pub(crate) deleting: bool,
    /// The UID of the object that controls it.
    pub(crate) controller: Option<String>,
    /// Its finalizers.
    pub(crate) finalizers: Vec<String>,
    pub(crate) requests: Vec<Request>,
    pub(crate) constraints: Vec<Constraint>,
    pub(crate) config: Vec<DriverConfig>,
    pub(crate) allocation: Option<Arc<Allocation>>,
    /// UIDs of those that may use it.
    pub(crate) reserved_for: Vec<String>,
    /// As it was written.
    pub(crate) status: Value,
}

impl ResourceClaim {
    /// Reads a raw ResourceClaim. The UID may be absent, and then is `namespace/name`.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn parse(claim: &Value) -> Result<Self, FieldError> {
        let root = Field::root(claim);
        let (metadata, status) = (root.get("metadata"), root.get("status"));
        let devices = root.get("spec").get("devices");
        let namespace = metadata.get("namespace").text()?.unwrap_or("default");
        let name = metadata.get("name").text()?.unwrap_or_default();
        let uid = metadata.get("uid").text()?.map_or_else(|| format!("{namespace}/{name}"), str::to_owned);
        let mut controller = None;
        for owner in metadata.get("ownerReferences").items()? {
            if owner.get("controller").flag()? {
                controller = owner.get("uid").text()?.map(str::to_owned);
            }
        }
        let mut reserved_for = Vec::new();
        for consumer in status.get("reservedFor").items()? {
            reserved_for.push(consumer.get("uid").text()?.unwrap_or_default().to_owned());
        }
        let requests = devices.get("requests").items()?;
        let constraints = devices.get("constraints").items()?;
        let mut config = Vec::new();
        for item in devices.get("config").items()? {
            let raw = item.raw().cloned().unwrap_or_default();
            config.push(DriverConfig { requests: item.get("requests").texts()?, raw });
        }
        Ok(Self {
            namespace: Arc::from(namespace),
            name: Arc::from(name),
            uid: Arc::from(uid),
            resource_version: metadata.get("resourceVersion").text()?.unwrap_or_default().to_owned(),
            deleting: metadata.get("deletionTimestamp").present(),
            controller,
            finalizers: metadata.get("finalizers").texts()?,
            requests: requests.iter().map(Request::parse).collect::<Result<_, _>>()?,
            constraints: constraints.iter().map(Constraint::parse).collect::<Result<_, _>>()?,
            config,
            allocation: Allocation::parse(&status.get("allocation"))?.map(Arc::new),
            reserved_for,
            status: status.raw().cloned().unwrap_or_default(),
        })
    }

    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Somebody was given its devices.
    pub fn is_allocated(&self) -> bool {
        self.allocation.is_some()
    }
}
