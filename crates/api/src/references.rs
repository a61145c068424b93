//! What a pod needs of its namespace: the ConfigMaps, Secrets and PersistentVolumeClaims that its spec names.

use crate::{PodChaperon, claims, keys};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of object that a pod's spec can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// core/v1 ConfigMap.
    ConfigMap,
    /// core/v1 Secret.
    Secret,
    /// core/v1 PersistentVolumeClaim.
    Claim,
}

impl Kind {
    /// The word in `kind`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
            Kind::Claim => "PersistentVolumeClaim",
        }
    }
}

/// An object that a pod's spec names, in the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// UID of the original whose copy it must be; empty: any object of this name will do.
    pub original: String,
}

impl Reference {
    /// Any object of this kind and name.
    #[must_use]
    pub fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned(), original: String::new() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

/// What a kubelet does without the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The container starts all the same: an optional reference, a Secret for pulling images.
    Optional,
    /// No container starts before the object is there.
    Required,
}

/// References of one pod; of two to one object the stricter counts.
pub type References = BTreeMap<Reference, Need>;

/// Volumes that name a Secret in a field of their own: the volume's source, and where the name stands in it.
const VOLUME_SECRETS: [(&str, &str); 9] = [
    ("azureFile", "/secretName"),
    ("cephfs", "/secretRef/name"),
    ("cinder", "/secretRef/name"),
    ("csi", "/nodePublishSecretRef/name"),
    ("flexVolume", "/secretRef/name"),
    ("iscsi", "/secretRef/name"),
    ("rbd", "/secretRef/name"),
    ("scaleIO", "/secretRef/name"),
    ("storageos", "/secretRef/name"),
];

/// Where containers stand in a spec.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What the delegate of a PodChaperon needs: as [`of_pod`], and of claims that follow the copies of their originals.
#[must_use]
pub fn of_chaperon(chaperon: &PodChaperon) -> References {
    let followings = claims::followings(chaperon.annotation(keys::CLAIMS));
    let pinned = |(mut reference, need): (Reference, Need)| {
        if let Some(following) = followings.get(&reference.name).filter(|_| reference.kind == Kind::Claim) {
            reference.original.clone_from(&following.uid);
        }
        (reference, need)
    };
    of_pod(&chaperon.spec).into_iter().map(pinned).collect()
}

/// All ConfigMaps, Secrets and claims that a pod's spec names: in volumes of every kind, projections, environments of
/// containers of every kind, and as pull secrets.
#[must_use]
pub fn of_pod(spec: &Value) -> References {
    let mut found = References::new();
    for volume in items(spec, "volumes") {
        of_volume(volume, &mut found);
    }
    for container in CONTAINERS.iter().flat_map(|list| items(spec, list)) {
        for variable in items(container, "env") {
            let from = &variable["valueFrom"];
            note(&mut found, Kind::ConfigMap, &from["configMapKeyRef"], "name");
            note(&mut found, Kind::Secret, &from["secretKeyRef"], "name");
        }
        for all in items(container, "envFrom") {
            note(&mut found, Kind::ConfigMap, &all["configMapRef"], "name");
            note(&mut found, Kind::Secret, &all["secretRef"], "name");
        }
    }
    for secret in items(spec, "imagePullSecrets") {
        // A kubelet pulls without it.
        insert(&mut found, Kind::Secret, &secret["name"], Need::Optional);
    }
    found
}

fn of_volume(volume: &Value, found: &mut References) {
    note(found, Kind::ConfigMap, &volume["configMap"], "name");
    note(found, Kind::Secret, &volume["secret"], "secretName");
    insert(found, Kind::Claim, &volume["persistentVolumeClaim"]["claimName"], Need::Required);
    for source in items(&volume["projected"], "sources") {
        note(found, Kind::ConfigMap, &source["configMap"], "name");
        note(found, Kind::Secret, &source["secret"], "name");
    }
    for (source, path) in VOLUME_SECRETS {
        if let Some(name) = volume.get(source).and_then(|source| source.pointer(path)) {
            insert(found, Kind::Secret, name, Need::Required);
        }
    }
}

fn items<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    of.get(list).and_then(Value::as_array).into_iter().flatten()
}

fn note(found: &mut References, kind: Kind, reference: &Value, field: &str) {
    let need = if reference["optional"] == true { Need::Optional } else { Need::Required };
    insert(found, kind, &reference[field], need);
}

fn insert(found: &mut References, kind: Kind, name: &Value, need: Need) {
    let Some(name) = name.as_str().filter(|name| !name.is_empty()) else { return };
    let known = found.entry(Reference::new(kind, name)).or_insert(need);
    *known = need.max(*known);
}

#[cfg(test)]
mod tests {
    use super::{Need, of_chaperon, of_pod};
    use crate::{PodChaperon, keys};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: &Value, want: &[(&str, Need)]) {
        let found: Vec<(String, Need)> =
            of_pod(spec).into_iter().map(|(reference, need)| (reference.to_string(), need)).collect();
        let want: Vec<(String, Need)> = want.iter().map(|(text, need)| ((*text).to_owned(), *need)).collect();
        assert_eq!(found, want);
    }

    #[test]
    fn a_pod_that_names_nothing_needs_nothing() {
        check(
            &json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}),
            &[],
        );
    }

    #[test]
    fn w35_containers_of_every_kind_are_looked_at() {
        let reads = |name: &str| {
            json!([{"name": name, "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": format!("{name}-map"), "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": format!("{name}-secret"), "key": "k", "optional": true}}}],
                "envFrom": [{"configMapRef": {"name": format!("{name}-all")}}, {"secretRef": {"name": "shared"}}]}])
        };
        check(
            &json!({"containers": reads("c"), "initContainers": reads("i"), "ephemeralContainers": reads("e")}),
            &[
                ("ConfigMap c-all", Need::Required),
                ("ConfigMap c-map", Need::Required),
                ("ConfigMap e-all", Need::Required),
                ("ConfigMap e-map", Need::Required),
                ("ConfigMap i-all", Need::Required),
                ("ConfigMap i-map", Need::Required),
                ("Secret c-secret", Need::Optional),
                ("Secret e-secret", Need::Optional),
                ("Secret i-secret", Need::Optional),
                ("Secret shared", Need::Required),
            ],
        );
    }

    #[test]
    fn w35_volumes_of_every_kind_are_looked_at() {
        check(
            &json!({"volumes": [
                {"configMap": {"name": "map", "optional": true}},
                {"secret": {"secretName": "secret"}},
                {"projected": {"sources": [{"configMap": {"name": "part"}}, {"secret": {"name": "key", "optional": true}},
                    {"serviceAccountToken": {"path": "token"}}]}},
                {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "publish"}}},
                {"iscsi": {"secretRef": {"name": "chap"}}}, {"persistentVolumeClaim": {"claimName": "data"}},
                {"azureFile": {"secretName": "share"}}]}),
            &[
                ("ConfigMap map", Need::Optional),
                ("ConfigMap part", Need::Required),
                ("Secret chap", Need::Required),
                ("Secret key", Need::Optional),
                ("Secret publish", Need::Required),
                ("Secret secret", Need::Required),
                ("Secret share", Need::Required),
                ("PersistentVolumeClaim data", Need::Required),
            ],
        );
    }

    #[test]
    fn w30_a_claim_that_follows_must_be_the_copy_of_its_original() {
        let claims = json!({"data": {"uid": "u", "spec": {}}}).to_string();
        let chaperon: PodChaperon =
            serde_json::from_value(json!({"metadata": {"annotations": {keys::CLAIMS: claims}},
            "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}},
                {"persistentVolumeClaim": {"claimName": "own"}}, {"configMap": {"name": "data"}}]}}))
            .unwrap();
        let originals: Vec<String> = of_chaperon(&chaperon).into_keys().map(|one| one.original).collect();
        assert_eq!(originals, ["", "u", ""]);
    }

    #[test]
    fn the_stricter_of_two_references_counts() {
        let pull = json!({"imagePullSecrets": [{"name": "registry"}, {"name": ""}]});
        check(&pull, &[("Secret registry", Need::Optional)]);
        let mut both = pull;
        both["volumes"] = json!([{"secret": {"secretName": "registry"}}]);
        check(&both, &[("Secret registry", Need::Required)]);
    }
}
