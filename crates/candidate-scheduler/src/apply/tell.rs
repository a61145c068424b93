//! Events about pods, in upstream's words.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PostParams};
use serde_json::{Value, json};

use super::{Context, call, patching};
use crate::error::Error;
use crate::observe::Name;
use crate::plan::Story;

/// Longest note that the API server takes, and what ends one that was cut.
const NOTE: usize = 1024;
const CUT: &str = " ...";

pub(super) async fn tell(context: &Context, story: &Story) -> Result<Option<String>, Error> {
    let namespace = &story.pod.namespace;
    let event = event(story, context.clock.now(), &context.instance);
    let event = serde_json::from_value(event)
        .map_err(|source| Error::Manifest { namespace: namespace.to_string(), source })?;
    let api: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    let post = PostParams { field_manager: Some(context.manager.clone()), dry_run: false };
    let made = api.create(&post, &event).await;
    made.map(|_made| None).map_err(call("write an event about pod", &story.pod))
}

/// Says on an event how often that has happened, the last time just now.
pub(super) async fn again(
    context: &Context,
    pod: &Name,
    event: &str,
    count: u32,
) -> Result<Option<String>, Error> {
    let api: Api<Event> = Api::namespaced(context.client.clone(), &pod.namespace);
    let patch = series(count, context.clock.now());
    let patched = api.patch(event, &patching(&context.manager), &Patch::Merge(&patch)).await;
    patched.map(|_patched| None).map_err(call("count up an event about pod", pod))
}

fn series(count: u32, now: Timestamp) -> Value {
    json!({"series": {"count": count, "lastObservedTime": format!("{now:.6}")}})
}

fn event(story: &Story, now: Timestamp, instance: &str) -> Value {
    let Story { event, pod, uid, version, scheduler, end } = story;
    let (kind, reason, action, note) = match end {
        Ok(node) => ("Normal", "Scheduled", "Binding", format!("Successfully assigned {pod} to {node}")),
        Err(message) => ("Warning", "FailedScheduling", "Scheduling", cut(message)),
    };
    json!({
        "metadata": {"name": &**event, "namespace": &*pod.namespace},
        "eventTime": format!("{now:.6}"),
        "type": kind, "reason": reason, "action": action, "note": note,
        "reportingController": scheduler,
        "reportingInstance": format!("{scheduler}-{instance}"),
        "regarding": {
            "apiVersion": "v1", "kind": "Pod", "namespace": &*pod.namespace, "name": &*pod.name,
            "uid": &**uid, "resourceVersion": &**version,
        },
    })
}

/// At most as many bytes as a note may have.
fn cut(message: &str) -> String {
    if message.len() <= NOTE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(NOTE - CUT.len());
    let (head, _) = message.split_at(end);
    format!("{head}{CUT}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[track_caller]
    fn check(end: Result<&str, &str>, want: [&str; 4]) {
        let story = Story {
            event: Arc::from("web.1"),
            pod: Name::new("shop", "web"),
            uid: Arc::from("u"),
            version: Arc::from("7"),
            scheduler: "default-scheduler".to_owned(),
            end: end.map(Arc::from).map_err(str::to_owned),
        };
        let made = event(&story, Timestamp::UNIX_EPOCH, "here");
        let got = ["type", "reason", "action", "note"].map(|key| made[key].as_str().unwrap_or_default());
        assert_eq!(got, want);
        assert_eq!(made["reportingController"], "default-scheduler");
        assert_eq!(made["reportingInstance"], "default-scheduler-here");
        let read: Event = serde_json::from_value(made).expect("an event");
        assert_eq!(read.regarding.and_then(|pod| pod.uid).as_deref(), Some("u"));
    }

    #[test]
    fn events_have_upstreams_words() {
        check(Ok("n1"), ["Normal", "Scheduled", "Binding", "Successfully assigned shop/web to n1"]);
        let message = "0/1 nodes are available: 1 Too many pods.";
        check(Err(message), ["Warning", "FailedScheduling", "Scheduling", message]);
    }

    #[test]
    fn a_long_note_is_cut_where_upstream_cuts_it() {
        assert_eq!(cut(&"a".repeat(NOTE)), "a".repeat(NOTE));
        assert_eq!(cut(&"a".repeat(NOTE + 1)), format!("{} ...", "a".repeat(NOTE - 4)));
    }
}
