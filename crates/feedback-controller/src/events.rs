//! Events: what stands in a status too, or concerns what will be gone.

use crate::controller::Context;
use crate::views::Proxy;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::PostParams;
use runtime::Chain;
use tracing::warn;

/// Namespace of events about objects that have none.
const DEFAULT: &str = "default";

/// A pod, as an event names it.
pub(crate) fn of_pod(proxy: &Proxy) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(proxy.namespace.clone()),
        name: Some(proxy.name.clone()),
        uid: Some(proxy.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Writes a warning with a reason and a message. It is worth no retry.
pub(crate) async fn warn_about(context: &Context, object: ObjectReference, (reason, message): (&str, &str)) {
    let now = Time(context.rt.clock.now());
    let namespace = object.namespace.clone().unwrap_or_else(|| DEFAULT.to_owned());
    let name = object.name.clone().unwrap_or_default();
    let event = Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: object,
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        source: Some(EventSource { component: Some(context.rt.manager()), host: None }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    };
    let events = Api::<Event>::namespaced(context.rt.client.clone(), &namespace);
    if let Err(error) = events.create(&PostParams::default(), &event).await {
        warn!(object = %format!("{namespace}/{name}"), error = %Chain(&error), "cannot write an event");
    }
}
