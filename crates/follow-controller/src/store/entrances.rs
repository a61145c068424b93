//! Ingresses follow the Services that they lead to.

use super::{Entrance, Store};
use crate::ingresses::Ingress;
use crate::kinds::{Kind, Object};
use crate::views::Source;
use runtime::TargetKey;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// What an Ingress needs where it is: itself and its certificates.
fn uses(object: &Object, ingress: &Ingress) -> BTreeSet<Object> {
    let secrets = ingress.secrets.iter().map(|name| Object {
        kind: Kind::Secret,
        namespace: Arc::clone(&object.namespace),
        name: Arc::from(name.as_str()),
    });
    secrets.chain([object.clone()]).collect()
}

impl Store {
    /// A Service or Ingress was seen; returns what is to be looked at.
    pub(crate) fn put_leader(&mut self, object: &Object, source: &Source) -> BTreeSet<Object> {
        let mut changed = BTreeSet::new();
        if source.service.is_some() {
            changed.extend(self.put_service(object, source.service.clone()));
        }
        if source.ingress.is_some() {
            changed.extend(self.put_ingress(object, source.ingress.clone()));
        }
        changed
    }

    /// A Service or Ingress is gone; returns what is to be looked at.
    pub(crate) fn drop_leader(&mut self, object: &Object) -> BTreeSet<Object> {
        match object.kind {
            Kind::Service => self.put_service(object, None),
            Kind::Ingress => self.put_ingress(object, None),
            Kind::ConfigMap | Kind::Secret | Kind::Claim => BTreeSet::new(),
        }
    }

    /// An Ingress was seen, or is gone; returns what is to be looked at.
    pub(crate) fn put_ingress(&mut self, object: &Object, ingress: Option<Ingress>) -> BTreeSet<Object> {
        let ingress = ingress.filter(|ingress| !ingress.is_copy);
        let at = ingress.as_ref().map(|ingress| self.behind_services(object, ingress)).unwrap_or_default();
        self.set_entrance(object, ingress.map(|ingress| Entrance { ingress, at }))
    }

    /// Those that are not listed are gone.
    pub(super) fn drop_entrances(&mut self, kind: Kind, there: &HashSet<Object>) {
        if kind != Kind::Ingress {
            return;
        }
        let known = self.ingresses.values().flat_map(BTreeMap::keys);
        for gone in known.filter(|object| !there.contains(object)).cloned().collect::<Vec<_>>() {
            self.put_ingress(&gone, None);
        }
    }

    /// Pods of a Service run elsewhere than before; so do those that its Ingresses lead to.
    pub(super) fn follow_service(&mut self, service: &Object) -> BTreeSet<Object> {
        let of_namespace = self.ingresses.get(&service.namespace).into_iter().flatten();
        let leads = |entrance: &Entrance| entrance.ingress.backends.contains(&*service.name);
        let entrances: Vec<(Object, Ingress)> = of_namespace
            .filter(|(_, entrance)| leads(entrance))
            .map(|(object, entrance)| (object.clone(), entrance.ingress.clone()))
            .collect();
        entrances.into_iter().flat_map(|(object, ingress)| self.put_ingress(&object, Some(ingress))).collect()
    }

    /// Targets with pods of the Services that an Ingress leads to.
    fn behind_services(&self, object: &Object, ingress: &Ingress) -> BTreeSet<TargetKey> {
        let service = |name: &String| Object {
            kind: Kind::Service,
            namespace: Arc::clone(&object.namespace),
            name: Arc::from(name.as_str()),
        };
        let entries = ingress.backends.iter().filter_map(|name| self.entries.get(&service(name)));
        let all = entries.flat_map(|entry| entry.uses.keys());
        all.filter(|key| !self.is_self(key)).cloned().collect()
    }

    fn set_entrance(&mut self, object: &Object, entrance: Option<Entrance>) -> BTreeSet<Object> {
        let mut changed = BTreeSet::new();
        let pairs = |entrance: &Entrance| -> Vec<(Object, TargetKey)> {
            let uses = uses(object, &entrance.ingress);
            uses.iter().flat_map(|one| entrance.at.iter().map(|at| (one.clone(), at.clone()))).collect()
        };
        let new = entrance.as_ref().map(pairs).unwrap_or_default();
        let of_namespace = self.ingresses.entry(Arc::clone(&object.namespace)).or_default();
        let before = match entrance {
            Some(entrance) => of_namespace.insert(object.clone(), entrance),
            None => of_namespace.remove(object),
        };
        for (used, at) in new {
            if self.begin_use(&used, &at) {
                changed.insert(used);
            }
        }
        for (used, at) in before.as_ref().map(pairs).unwrap_or_default() {
            if self.end_use(&used, &at) {
                changed.insert(used);
            }
        }
        changed
    }
}
