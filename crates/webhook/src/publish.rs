//! The CA bundle in the webhook configurations: patched only where it differs.

use crate::error::Error;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use tracing::info;

/// A webhook configuration of either kind.
pub trait Configuration: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug {
    /// Name and CA bundle of each entry, in order.
    fn entries(&self) -> Vec<(&str, Option<&ByteString>)>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn entries(&self) -> Vec<(&str, Option<&ByteString>)> {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.as_str(), entry.client_config.ca_bundle.as_ref())).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn entries(&self) -> Vec<(&str, Option<&ByteString>)> {
        let entries = self.webhooks.iter().flatten();
        entries.map(|entry| (entry.name.as_str(), entry.client_config.ca_bundle.as_ref())).collect()
    }
}

/// Operations that give every entry the bundle; none when all have it. The tests make the patch fail when
/// the entries have moved since they were read.
fn operations(entries: &[(&str, Option<&ByteString>)], bundle: &ByteString) -> Vec<Value> {
    let wrong = entries.iter().enumerate().filter(|(_, (_, current))| *current != Some(bundle));
    wrong
        .flat_map(|(index, (name, _))| {
            [
                json!({"op": "test", "path": format!("/webhooks/{index}/name"), "value": name}),
                json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": bundle}),
            ]
        })
        .collect()
}

/// Publishes the bundle in both configurations of a name.
///
/// # Errors
///
/// One of them is absent, or a call fails; the other may have been patched.
pub async fn publish(client: &Client, name: &str, bundle: &ByteString) -> Result<(), Error> {
    publish_in::<MutatingWebhookConfiguration>(client, name, bundle).await?;
    publish_in::<ValidatingWebhookConfiguration>(client, name, bundle).await
}

async fn publish_in<K: Configuration>(client: &Client, name: &str, bundle: &ByteString) -> Result<(), Error> {
    let api = Api::<K>::all(client.clone());
    let kind = || K::kind(&()).into_owned();
    let read = |source| Error::ReadConfiguration { kind: kind(), name: name.to_owned(), source };
    let configuration = api.get(name).await.map_err(read)?;
    let operations = operations(&configuration.entries(), bundle);
    if operations.is_empty() {
        return Ok(());
    }
    let failed = |source| Error::Publish { kind: kind(), name: name.to_owned(), source };
    let patch = serde_json::from_value(Value::from(operations))
        .map_err(|source| failed(kube::Error::SerdeError(source)))?;
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::<Value>::Json(patch)).await.map_err(failed)?;
    info!(object = name, kind = kind(), "published the CA bundle");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::operations;
    use k8s_openapi::ByteString;
    use serde_json::json;

    #[test]
    fn entries_that_have_the_bundle_are_not_written() {
        let bundle = ByteString(b"ca".to_vec());
        assert!(operations(&[("a", Some(&bundle))], &bundle).is_empty());
    }

    #[test]
    fn only_entries_that_differ_are_written_and_only_where_they_were_seen() {
        let (bundle, old) = (ByteString(b"ca".to_vec()), ByteString(b"old".to_vec()));
        assert_eq!(
            operations(&[("a", Some(&bundle)), ("b", Some(&old)), ("c", None)], &bundle),
            [
                json!({"op": "test", "path": "/webhooks/1/name", "value": "b"}),
                json!({"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Y2E="}),
                json!({"op": "test", "path": "/webhooks/2/name", "value": "c"}),
                json!({"op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "Y2E="}),
            ]
        );
    }
}
