//! The environment of a container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use super::Host;
use super::volumes::Trouble;
use crate::controlplane::API_PORT;

/// Everything that the container's program finds in its environment; nothing of the machine's own.
pub(super) async fn environment(
    host: &Host,
    pod: &Pod,
    container: &Container,
    address: std::net::Ipv4Addr,
) -> Result<BTreeMap<String, String>, Trouble> {
    let mut env = BTreeMap::from([
        ("HOSTNAME".to_owned(), pod.name_any()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), host.address().to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), API_PORT.to_string()),
    ]);
    let fields = Fields { pod, address, host: host.address() };
    let objects = Objects { host, namespace: pod.namespace().unwrap_or_default() };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        let map = if let Some(reference) = &source.config_map_ref {
            objects.config_map(&reference.name, reference.optional).await?
        } else if let Some(reference) = &source.secret_ref {
            objects.secret(&reference.name, reference.optional).await?
        } else {
            return Err(Trouble::Never("envFrom of an unknown kind".into()));
        };
        for (key, value) in map {
            env.insert(format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(expand(value, &env)),
            (None, Some(source)) => lookup(&fields, &objects, container, source).await?,
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            env.insert(variable.name.clone(), value);
        }
    }
    Ok(env)
}

async fn lookup(
    fields: &Fields<'_>,
    objects: &Objects<'_>,
    container: &Container,
    source: &EnvVarSource,
) -> Result<Option<String>, Trouble> {
    if let Some(field) = &source.field_ref {
        return fields.value(&field.field_path).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        let (kind, name) = resource.resource.split_once('.').unwrap_or(("limits", &resource.resource));
        let requirements = container.resources.clone().unwrap_or_default();
        let map = if kind == "requests" { requirements.requests } else { requirements.limits };
        return Ok(map.and_then(|map| map.get(name).map(|quantity| quantity.0.clone())));
    }
    let (map, key, optional) = if let Some(reference) = &source.config_map_key_ref {
        (objects.config_map(&reference.name, reference.optional).await?, &reference.key, reference.optional)
    } else if let Some(reference) = &source.secret_key_ref {
        (objects.secret(&reference.name, reference.optional).await?, &reference.key, reference.optional)
    } else {
        return Err(Trouble::Never("valueFrom of an unknown kind".into()));
    };
    match map.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => Err(Trouble::NotYet(format!("key {key} is missing"))),
    }
}

/// The fields of a pod that its containers may ask for.
pub(super) struct Fields<'a> {
    pub(super) pod: &'a Pod,
    pub(super) address: std::net::Ipv4Addr,
    pub(super) host: std::net::Ipv4Addr,
}

impl Fields<'_> {
    pub(super) fn value(&self, path: &str) -> Result<String, Trouble> {
        let spec = self.pod.spec.as_ref();
        match path {
            "metadata.name" => Ok(self.pod.name_any()),
            "metadata.namespace" => Ok(self.pod.namespace().unwrap_or_default()),
            "metadata.uid" => Ok(self.pod.uid().unwrap_or_default()),
            "metadata.labels" => Ok(lines(self.pod.labels())),
            "metadata.annotations" => Ok(lines(self.pod.annotations())),
            "spec.nodeName" => Ok(super::NODE.to_owned()),
            "spec.serviceAccountName" => {
                Ok(spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default())
            }
            "status.podIP" | "status.podIPs" => Ok(self.address.to_string()),
            "status.hostIP" | "status.hostIPs" => Ok(self.host.to_string()),
            other => Err(Trouble::Never(format!("fieldRef {other}"))),
        }
    }
}

fn lines(map: &BTreeMap<String, String>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={}", Value::from(value.as_str()));
    map.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The ConfigMaps and Secrets of a pod's namespace.
pub(super) struct Objects<'a> {
    pub(super) host: &'a Host,
    pub(super) namespace: String,
}

pub(super) type Data = BTreeMap<String, Vec<u8>>;

impl Objects<'_> {
    pub(super) async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Data, Trouble> {
        let api: Api<ConfigMap> = Api::namespaced(self.host.client.clone(), &self.namespace);
        match api.get_opt(name).await {
            Ok(Some(map)) => {
                let text =
                    map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
                let binary =
                    map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
                Ok(text.chain(binary).collect())
            }
            Ok(None) if optional == Some(true) => Ok(Data::new()),
            Ok(None) => Err(Trouble::NotYet(format!("configmap {name} not found"))),
            Err(error) => Err(Trouble::NotYet(format!("configmap {name}: {error}"))),
        }
    }

    pub(super) async fn secret(&self, name: &str, optional: Option<bool>) -> Result<Data, Trouble> {
        let api: Api<Secret> = Api::namespaced(self.host.client.clone(), &self.namespace);
        match api.get_opt(name).await {
            Ok(Some(secret)) => {
                Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
            }
            Ok(None) if optional == Some(true) => Ok(Data::new()),
            Ok(None) => Err(Trouble::NotYet(format!("secret {name} not found"))),
            Err(error) => Err(Trouble::NotYet(format!("secret {name}: {error}"))),
        }
    }
}

/// Replaces `$(NAME)` by the variable of that name; `$$(NAME)` stands for the text itself.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match name.and_then(|(name, tail)| Some((env.get(name)?, tail))) {
            Some((value, tail)) => {
                out.push_str(value);
                rest = tail;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_a_kubelet_does() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let cases =
            [("x=$(A).", "x=1."), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$A $", "$A $"), ("$(A)$(A)", "11")];
        for (text, want) in cases {
            assert_eq!(expand(text, &env), want);
        }
    }
}
