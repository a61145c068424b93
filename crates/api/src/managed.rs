//! Who wrote which labels and annotations, as the API server records it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// Keys of labels and of annotations that a field manager wrote last.
#[must_use]
pub fn owned(metadata: &ObjectMeta, manager: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let keys = |list: &str| {
        let mut found = BTreeSet::new();
        let entries = metadata.managed_fields.iter().flatten();
        for entry in entries.filter(|entry| entry.manager.as_deref() == Some(manager)) {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            let fields = fields.and_then(|fields| fields.get("f:metadata")?.get(list)?.as_object());
            found.extend(
                fields.into_iter().flatten().filter_map(|(key, _)| Some(key.strip_prefix("f:")?.to_owned())),
            );
        }
        found
    };
    (keys("f:labels"), keys("f:annotations"))
}
