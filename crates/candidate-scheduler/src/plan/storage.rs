//! Claims, volumes, and what CSI drivers say: they are counted as they are seen, and may make room for pods.

use std::collections::HashSet;
use std::mem::Discriminant;

use scheduling::Event;
use scheduling::volumes::{
    Claim, CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, StorageEvent,
    VolumeAttachment, Volumes,
};

use crate::observe::{Change, Name, Read, StorageSeen};
use crate::plan::Model;

/// A kind of object that says where storage is.
trait Stored: Sized {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent>;
    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent>;
    fn names(volumes: &Volumes) -> Vec<Name>;
}

impl Stored for Claim {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_claim(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_claim(&name.namespace, &name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.claims().map(|claim| Name::new(&claim.namespace, &claim.name)).collect()
    }
}

impl Stored for PersistentVolume {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_volume(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_volume(&name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.volumes().map(|volume| Name::new("", &volume.name)).collect()
    }
}

impl Stored for StorageClass {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_class(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_class(&name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.classes().map(|class| Name::new("", &class.name)).collect()
    }
}

impl Stored for CsiNode {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_csi_node(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_csi_node(&name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.csi_nodes().map(|node| Name::new("", &node.name)).collect()
    }
}

impl Stored for CsiDriver {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_csi_driver(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_csi_driver(&name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.csi_drivers().map(|driver| Name::new("", &driver.name)).collect()
    }
}

impl Stored for StorageCapacity {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_capacity(self)
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_capacity(&name.namespace, &name.name);
        None
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.capacities().map(|capacity| Name::new(&capacity.namespace, &capacity.name)).collect()
    }
}

impl Stored for VolumeAttachment {
    fn set(self, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.set_attachment(self);
        None
    }

    fn remove(name: &Name, volumes: &mut Volumes) -> Option<StorageEvent> {
        volumes.remove_attachment(&name.name)
    }

    fn names(volumes: &Volumes) -> Vec<Name> {
        volumes.attachments().map(|attachment| Name::new("", &attachment.name)).collect()
    }
}

/// Which kinds were listed.
pub(super) type Listed = HashSet<Discriminant<StorageSeen>>;

impl Model {
    pub(super) fn see_storage(&mut self, seen: StorageSeen, now: u64) {
        let kind = std::mem::discriminant(&seen);
        let listed = match seen {
            StorageSeen::Claim(change) => self.see_stored(change, now),
            StorageSeen::Volume(change) => self.see_stored(change, now),
            StorageSeen::Class(change) => self.see_stored(change, now),
            StorageSeen::CsiNode(change) => self.see_stored(change, now),
            StorageSeen::CsiDriver(change) => self.see_stored(change, now),
            StorageSeen::Capacity(change) => self.see_stored(change, now),
            StorageSeen::Attachment(change) => self.see_stored(change, now),
        };
        if listed {
            self.synced.storage.insert(kind);
        }
        self.memo.clear();
        self.storage_touched = true;
    }

    /// True if it was the whole list.
    fn see_stored<T: Stored>(&mut self, change: Change<Read<T>, Name>, now: u64) -> bool {
        let (objects, is_list) = change.one_by_one(|| T::names(self.snapshot.volumes()));
        for object in objects {
            self.stored_is(object, now);
        }
        is_list
    }

    fn stored_is<T: Stored>(&mut self, (name, object): Read<T>, now: u64) {
        let volumes = self.snapshot.volumes_mut();
        let event = match object {
            Some(object) => object.set(volumes),
            None => T::remove(&name, volumes),
        };
        if let Some(event) = event {
            self.happened(&Event::Storage(event), now);
        }
    }
}
