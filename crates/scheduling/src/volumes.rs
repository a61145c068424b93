//! Where the storage of pods is, or can be: claims, volumes, classes, and what CSI drivers say.

mod binding;
mod cache;
mod claim;
mod disk;
mod event;
mod migration;
mod storage;
#[cfg(test)]
pub(crate) mod tests;
mod volume;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub(crate) use binding::{Found, Wanted};
pub use binding::{Progress, VolumePlan, VolumeWrite};
use cache::AssumeCache;
pub use claim::Claim;
pub use disk::InlineDisk;
pub use event::StorageEvent;
pub use migration::{Migrated, Plugin as InTreePlugin};
pub use storage::{BindingMode, CsiDriver, CsiNode, StorageCapacity, StorageClass, VolumeAttachment};
pub(crate) use volume::{BETA_REGION, BETA_ZONE, REGION, ZONE, ZONE_LABELS};
pub use volume::{ClaimRef, PersistentVolume, VolumeSource};

/// Every object that says where storage is, and what we assume of claims and volumes while we write to them.
#[derive(Debug, Clone, Default)]
pub struct Volumes {
    claims: AssumeCache<Claim>,
    volumes: AssumeCache<PersistentVolume>,
    /// Names of the volumes of each class.
    by_class: HashMap<String, BTreeSet<Arc<str>>>,
    classes: HashMap<String, Arc<StorageClass>>,
    csi_nodes: HashMap<String, Arc<CsiNode>>,
    csi_drivers: HashMap<String, Arc<CsiDriver>>,
    /// By namespace and name.
    capacities: BTreeMap<(String, String), Arc<StorageCapacity>>,
    attachments: HashMap<String, Arc<VolumeAttachment>>,
    /// Names of the attachments of each node.
    attached: HashMap<String, BTreeSet<String>>,
    changes: u64,
}

impl Volumes {
    /// A number that grows with every change: decisions about pods with volumes hold as long as it stays.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The claim as it was seen last.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Claim>> {
        self.claims.seen(namespace, name)
    }

    /// Every claim as it was seen last, in no order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.all_seen()
    }

    /// The volume as it was seen last.
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.seen("", name)
    }

    /// Every volume as it was seen last, in no order.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.volumes.all_seen()
    }

    pub fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    pub fn classes(&self) -> impl Iterator<Item = &Arc<StorageClass>> {
        self.classes.values()
    }

    pub fn csi_node(&self, node: &str) -> Option<&Arc<CsiNode>> {
        self.csi_nodes.get(node)
    }

    pub fn csi_nodes(&self) -> impl Iterator<Item = &Arc<CsiNode>> {
        self.csi_nodes.values()
    }

    pub fn csi_driver(&self, name: &str) -> Option<&Arc<CsiDriver>> {
        self.csi_drivers.get(name)
    }

    pub fn csi_drivers(&self) -> impl Iterator<Item = &Arc<CsiDriver>> {
        self.csi_drivers.values()
    }

    pub fn capacities(&self) -> impl Iterator<Item = &Arc<StorageCapacity>> {
        self.capacities.values()
    }

    pub fn attachments(&self) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attachments.values()
    }

    /// Attachments to one node, by name.
    pub(crate) fn attached(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attached.get(node).into_iter().flatten().filter_map(|name| self.attachments.get(name))
    }

    /// Takes in a claim. None if it is as it was.
    pub fn set_claim(&mut self, claim: Claim) -> Option<StorageEvent> {
        let new = Arc::new(claim);
        let old = self.claims.set(Arc::clone(&new));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::Claim { old, new })
    }

    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.changes += 1;
        self.claims.remove(namespace, name);
    }

    /// Takes in a volume. None if it is as it was.
    pub fn set_volume(&mut self, volume: PersistentVolume) -> Option<StorageEvent> {
        let new = Arc::new(volume);
        let old = self.volumes.set(Arc::clone(&new));
        if let Some(old) = old.as_ref().filter(|old| old.class != new.class) {
            self.forget_class(&old.class, &old.name);
        }
        self.by_class.entry(new.class.clone()).or_default().insert(Arc::clone(&new.name));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::Volume { old, new })
    }

    pub fn remove_volume(&mut self, name: &str) {
        self.changes += 1;
        if let Some(gone) = self.volumes.remove("", name) {
            self.forget_class(&gone.class, name);
        }
    }

    fn forget_class(&mut self, class: &str, volume: &str) {
        if let Some(names) = self.by_class.get_mut(class) {
            names.remove(volume);
            if names.is_empty() {
                self.by_class.remove(class);
            }
        }
    }

    /// Takes in a class. None if it is as it was.
    pub fn set_class(&mut self, class: StorageClass) -> Option<StorageEvent> {
        let new = Arc::new(class);
        let old = self.classes.insert(new.name.clone(), Arc::clone(&new));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::Class { old, new })
    }

    pub fn remove_class(&mut self, name: &str) {
        self.changes += 1;
        self.classes.remove(name);
    }

    /// Takes in what CSI drivers say about a node. None if it is as it was.
    pub fn set_csi_node(&mut self, node: CsiNode) -> Option<StorageEvent> {
        let new = Arc::new(node);
        let old = self.csi_nodes.insert(new.name.clone(), Arc::clone(&new));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::CsiNode { old, new })
    }

    pub fn remove_csi_node(&mut self, name: &str) {
        self.changes += 1;
        self.csi_nodes.remove(name);
    }

    /// Takes in a CSI driver. None if it is as it was.
    pub fn set_csi_driver(&mut self, driver: CsiDriver) -> Option<StorageEvent> {
        let new = Arc::new(driver);
        let old = self.csi_drivers.insert(new.name.clone(), Arc::clone(&new));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::CsiDriver { old, new })
    }

    pub fn remove_csi_driver(&mut self, name: &str) {
        self.changes += 1;
        self.csi_drivers.remove(name);
    }

    /// Takes in how much storage is left somewhere. None if it is as it was.
    pub fn set_capacity(&mut self, capacity: StorageCapacity) -> Option<StorageEvent> {
        let new = Arc::new(capacity);
        let old = self.capacities.insert((new.namespace.clone(), new.name.clone()), Arc::clone(&new));
        self.changed(old.as_ref(), &new).then_some(StorageEvent::Capacity { old, new })
    }

    pub fn remove_capacity(&mut self, namespace: &str, name: &str) {
        self.changes += 1;
        self.capacities.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Takes in that a volume is attached, which makes no pod schedulable.
    pub fn set_attachment(&mut self, attachment: VolumeAttachment) {
        self.remove_attachment(&attachment.name);
        self.attached.entry(attachment.node.clone()).or_default().insert(attachment.name.clone());
        self.attachments.insert(attachment.name.clone(), Arc::new(attachment));
    }

    /// None if it was not known.
    pub fn remove_attachment(&mut self, name: &str) -> Option<StorageEvent> {
        self.changes += 1;
        let gone = self.attachments.remove(name)?;
        if let Some(names) = self.attached.get_mut(&gone.node) {
            names.remove(name);
            if names.is_empty() {
                self.attached.remove(&gone.node);
            }
        }
        Some(StorageEvent::AttachmentGone(gone))
    }

    fn changed<T: PartialEq>(&mut self, old: Option<&Arc<T>>, new: &Arc<T>) -> bool {
        let changed = old != Some(new);
        self.changes += u64::from(changed);
        changed
    }
}
