//! Ingresses whose Services lead to pods that run elsewhere.

use api::keys;
use kube::core::ObjectMeta;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What of an Ingress decides whether and how it follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ingress {
    /// Names of the Services that it leads to.
    pub(crate) backends: BTreeSet<String>,
    /// Names of the Secrets with its certificates.
    pub(crate) secrets: BTreeSet<String>,
    /// It is a copy that somebody made here.
    pub(crate) is_copy: bool,
    /// The original says that it has copies.
    pub(crate) is_marked: bool,
    /// Where it is reached, as its status says.
    pub(crate) addresses: Vec<Value>,
    /// Those of them that we wrote there.
    pub(crate) ours: Vec<Value>,
}

/// The addresses in the status of an Ingress.
pub(crate) fn addresses(status: &Value) -> Vec<Value> {
    items(status, "/loadBalancer/ingress").cloned().collect()
}

fn items<'a>(of: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

impl Ingress {
    pub(crate) fn new(metadata: &ObjectMeta, spec: &Value, status: &Value) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
        // A rule may have no paths at all, and a backend may be no Service.
        let paths = items(spec, "/rules").flat_map(|rule| items(rule, "/http/paths"));
        let backends = paths.map(|path| &path["backend"]).chain([&spec["defaultBackend"]]);
        let backends =
            backends.filter_map(|backend| Some(backend.pointer("/service/name")?.as_str()?.to_owned()));
        let secrets = items(spec, "/tls").filter_map(|tls| Some(tls["secretName"].as_str()?.to_owned()));
        Self {
            backends: backends.collect(),
            secrets: secrets.collect(),
            is_copy: annotation(keys::IS_DELEGATE).is_some(),
            is_marked: annotation(keys::GLOBAL).is_some_and(|value| value == "true"),
            addresses: addresses(status),
            ours: annotation(keys::INGRESS_ADDRESSES)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
        }
    }

    /// What its status is to say, given the addresses of its copies; `None` when that stands there, or when a
    /// controller of the source gives it addresses of its own.
    pub(crate) fn status(&self, copies: &[Value]) -> Option<Vec<Value>> {
        let mut wanted: Vec<Value> = Vec::new();
        for address in copies {
            if !wanted.contains(address) {
                wanted.push(address.clone());
            }
        }
        wanted.sort_by_cached_key(ToString::to_string);
        let is_ours = self.addresses.iter().all(|address| self.ours.contains(address));
        let is_shown = wanted.len() == self.addresses.len()
            && wanted.iter().all(|address| self.addresses.contains(address));
        (is_ours && !is_shown).then_some(wanted)
    }
}

/// How Ingresses change on their way into a target, as annotations of its Target say: `from=to,from=to`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Class in the source to class in the target.
    classes: BTreeMap<String, String>,
    /// Host, or end of hosts behind a dot, to what stands in its place.
    hosts: BTreeMap<String, String>,
}

impl Mapping {
    pub(crate) fn new(annotations: &BTreeMap<String, String>) -> Self {
        let pairs = |key: &str| {
            let text = annotations.get(key).map(String::as_str).unwrap_or_default();
            let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
            pairs.map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned())).collect()
        };
        Self { classes: pairs(keys::INGRESS_CLASSES), hosts: pairs(keys::INGRESS_HOSTS) }
    }

    fn host(&self, host: &str) -> Option<String> {
        if let Some(to) = self.hosts.get(host) {
            return Some(to.clone());
        }
        // The longest end wins.
        let ends = self.hosts.iter().filter_map(|(from, to)| {
            Some((from.len(), format!("{}.{to}", host.strip_suffix(from)?.strip_suffix('.')?)))
        });
        ends.max_by_key(|(length, _)| *length).map(|(_, mapped)| mapped)
    }

    fn map_host(&self, host: &mut Value) {
        if let Value::String(host) = host
            && let Some(to) = self.host(host)
        {
            *host = to;
        }
    }

    /// The spec of a copy.
    pub(crate) fn apply(&self, spec: &mut Value) {
        if let Some(Value::String(class)) = spec.get_mut("ingressClassName")
            && let Some(to) = self.classes.get(class)
        {
            class.clone_from(to);
        }
        for rule in spec.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
            rule.get_mut("host").into_iter().for_each(|host| self.map_host(host));
        }
        for tls in spec.get_mut("tls").and_then(Value::as_array_mut).into_iter().flatten() {
            for host in tls.get_mut("hosts").and_then(Value::as_array_mut).into_iter().flatten() {
                self.map_host(host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ingress, Mapping};
    use api::keys;
    use kube::core::ObjectMeta;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: &Value, backends: &[&str], secrets: &[&str]) {
        let seen = Ingress::new(&ObjectMeta::default(), spec, &Value::Null);
        assert_eq!(seen.backends.iter().collect::<Vec<_>>(), backends);
        assert_eq!(seen.secrets.iter().collect::<Vec<_>>(), secrets);
    }

    #[test]
    fn w16_an_ingress_of_every_legal_shape_is_understood() {
        check(&json!({}), &[], &[]);
        check(&json!({"rules": [{"host": "a.example.com"}, {"http": {"paths": []}}]}), &[], &[]);
        check(
            &json!({"defaultBackend": {"service": {"name": "fallback"}},
                "rules": [{"host": "a"}, {"http": {"paths": [{"backend": {"service": {"name": "web"}}},
                    {"backend": {"resource": {"kind": "Bucket", "name": "b"}}}]}}],
                "tls": [{"hosts": ["a"]}, {"secretName": "cert"}]}),
            &["fallback", "web"],
            &["cert"],
        );
    }

    #[test]
    fn addresses_of_copies_are_shown_where_the_source_gives_none() {
        let at = |ip: &str| json!({"ip": ip});
        let seen = |shown: &[Value], ours: &[Value]| {
            let meta = json!({"annotations": {keys::INGRESS_ADDRESSES: json!(ours).to_string()}});
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            Ingress::new(&meta, &json!({}), &json!({"loadBalancer": {"ingress": shown}}))
        };
        let (one, two) = (at("10.0.0.1"), at("10.0.0.2"));
        let both = vec![one.clone(), two.clone()];
        assert_eq!(seen(&[], &[]).status(&[two.clone(), one.clone(), two.clone()]), Some(both.clone()));
        assert_eq!(seen(&both, &both).status(&[two.clone(), one.clone()]), None, "w40: it stands there");
        assert_eq!(seen(&both, &both).status(&[]), Some(vec![]));
        assert_eq!(
            seen(std::slice::from_ref(&two), &[]).status(&[one]),
            None,
            "the source has a controller for it"
        );
    }

    #[test]
    fn classes_and_hosts_are_those_of_the_target() {
        let annotations = [
            (keys::INGRESS_CLASSES.to_owned(), "nginx=traefik, a=b".to_owned()),
            (
                keys::INGRESS_HOSTS.to_owned(),
                "example.com=eu.example.com,www.example.com=eu.example.org".to_owned(),
            ),
        ];
        let mapping = Mapping::new(&annotations.into());
        let mut spec = json!({"ingressClassName": "nginx", "rules": [{"host": "shop.example.com"},
            {"host": "www.example.com"}, {"host": "other.org"}, {"host": "badexample.com"}, {}],
            "tls": [{"hosts": ["example.com"]}]});
        mapping.apply(&mut spec);
        assert_eq!(
            spec,
            json!({"ingressClassName": "traefik", "rules": [{"host": "shop.eu.example.com"},
                {"host": "eu.example.org"}, {"host": "other.org"}, {"host": "badexample.com"}, {}],
                "tls": [{"hosts": ["eu.example.com"]}]})
        );
        let mut untouched = spec.clone();
        Mapping::default().apply(&mut untouched);
        assert_eq!(untouched, spec);
    }
}
