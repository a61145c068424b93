//! DeviceClasses: a pod that needs what they stand for is refused where nodes do not count it themselves.

use std::collections::HashSet;
use std::sync::Arc;

use scheduling::{DeviceClass, Event};

use crate::observe::Change;
use crate::plan::Model;

impl Model {
    pub(super) fn see_devices(&mut self, change: Change<DeviceClass, Arc<str>>, now: u64) {
        match change {
            Change::All(classes) => {
                let there: HashSet<_> = classes.iter().map(|class| Arc::clone(&class.name)).collect();
                let known: Vec<_> = self.snapshot.devices().classes().names().map(Arc::clone).collect();
                for name in known.iter().filter(|name| !there.contains(*name)) {
                    self.device_class_gone(name, now);
                }
                for class in classes {
                    self.device_class_is(class, now);
                }
                self.synced.devices = true;
            }
            Change::Is(class) => self.device_class_is(class, now),
            Change::Gone(name) => self.device_class_gone(&name, now),
        }
    }

    fn device_class_is(&mut self, class: DeviceClass, now: u64) {
        let old = self.snapshot.set_device_class(class.clone());
        if old.as_ref() != Some(&class) {
            self.memo.clear();
            self.happened(&Event::Devices { old, new: Some(class) }, now);
        }
    }

    fn device_class_gone(&mut self, name: &str, now: u64) {
        if let Some(old) = self.snapshot.remove_device_class(name) {
            self.memo.clear();
            self.happened(&Event::Devices { old: Some(old), new: None }, now);
        }
    }
}
