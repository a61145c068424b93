//! Protocol bugs on purpose, between a service and its API server: what leaves is changed, what comes back is a
//! lie. A simulator that does not find them proves nothing.

use crate::cluster::request::{Answer, Request, Verb};
use crate::cluster::{Deletion, Object, Refusal, Store};
use crate::process::Service;
use crate::wire::Sent;
use crate::world::World;
use api::keys;
use bytes::Bytes;
use serde_json::{Value, json};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The feedback controller takes "no answer" for "not there".
    UnknownIsAbsent,
    /// It takes a PodChaperon that is being deleted for one that is gone.
    TerminatingIsGone,
    /// It takes the parent of what looks orphaned for gone, without looking.
    ParentsAlwaysGone,
    /// It lets a proxy pod go when it deletes the PodChaperon, not when that is gone.
    ReleaseProxyEarly,
    /// Its live reads of PodChaperons come from an old state.
    StaleLiveReads,
    /// The proxy scheduler allows what it asks.
    AllowBeforeElect,
    /// Its binding names neither UID nor version.
    BlindBinding,
    /// It takes a lost race for a won one.
    ConflictIsSuccess,
    /// Its permission brings no finalizer, and the chaperon controller does not see to it.
    NoFinalizerWithPermission,
    /// It deletes PodChaperons by name alone, and takes back the elected one as well.
    LosersAndWinners,
    /// The webhook adds no finalizer.
    NoFinalizerOnProxy,
    /// The chaperon controller creates delegates without finalizer.
    NoFinalizerOnDelegate,
    /// It releases a delegate when it deletes it, not when that has stopped.
    ReleaseBeforeStop,
    /// It writes statuses over whatever is there, and again when it takes a write for lost.
    BlindStatus,
    /// It does not see the ends that it has recorded.
    ForgottenEnds,
    /// It takes every delegate for one that is to run for ever.
    EverythingRunsForEver,
    /// It takes what is on a silent node for stopped.
    SilentNodeIsDead,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 17] = [
        Bug::UnknownIsAbsent,
        Bug::TerminatingIsGone,
        Bug::ParentsAlwaysGone,
        Bug::ReleaseProxyEarly,
        Bug::StaleLiveReads,
        Bug::AllowBeforeElect,
        Bug::BlindBinding,
        Bug::ConflictIsSuccess,
        Bug::NoFinalizerWithPermission,
        Bug::LosersAndWinners,
        Bug::NoFinalizerOnProxy,
        Bug::NoFinalizerOnDelegate,
        Bug::ReleaseBeforeStop,
        Bug::BlindStatus,
        Bug::ForgottenEnds,
        Bug::EverythingRunsForEver,
        Bug::SilentNodeIsDead,
    ];

    /// The bug of a name, as `Debug` prints it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    /// Whether it is a service's.
    #[must_use]
    pub fn is_of(self, service: Service) -> bool {
        service == self.service()
            || self == Bug::NoFinalizerWithPermission && service == Service::ChaperonController
    }

    fn service(self) -> Service {
        match self {
            Bug::UnknownIsAbsent
            | Bug::TerminatingIsGone
            | Bug::ParentsAlwaysGone
            | Bug::ReleaseProxyEarly
            | Bug::StaleLiveReads
            | Bug::NoFinalizerOnProxy => Service::FeedbackController,
            Bug::AllowBeforeElect
            | Bug::BlindBinding
            | Bug::ConflictIsSuccess
            | Bug::NoFinalizerWithPermission
            | Bug::LosersAndWinners => Service::ProxyScheduler,
            Bug::NoFinalizerOnDelegate
            | Bug::ReleaseBeforeStop
            | Bug::BlindStatus
            | Bug::ForgottenEnds
            | Bug::EverythingRunsForEver
            | Bug::SilentNodeIsDead => Service::ChaperonController,
        }
    }

    /// What the service takes an object for: `None` if it is not there for it.
    #[must_use]
    pub fn view(self, kind: &str, object: &Object) -> Option<Value> {
        let mut value = object.value.clone();
        match (self, kind) {
            (Bug::TerminatingIsGone, "podchaperons") if object.is_terminating() => return None,
            (Bug::ForgottenEnds, "podchaperons") => drop_field(&mut value, "/status", "phase"),
            (Bug::EverythingRunsForEver, "podchaperons") => value["spec"]["restartPolicy"] = json!("Always"),
            (Bug::NoFinalizerWithPermission, "podchaperons") if !object.is_terminating() => {
                value["metadata"]["finalizers"] = json!([keys::CHAPERON_FINALIZER]);
            }
            (Bug::SilentNodeIsDead, "pods") if object.is_terminating() => {
                value["status"]["phase"] = json!("Failed");
            }
            _ => {}
        }
        Some(value)
    }

    /// Whether it changes what is seen of a kind.
    #[must_use]
    pub fn distorts(self, kind: &str) -> bool {
        matches!(
            (self, kind),
            (
                Bug::TerminatingIsGone
                    | Bug::ForgottenEnds
                    | Bug::EverythingRunsForEver
                    | Bug::NoFinalizerWithPermission,
                "podchaperons"
            ) | (Bug::SilentNodeIsDead, "pods")
        )
    }
}

fn drop_field(value: &mut Value, path: &str, field: &str) {
    if let Some(fields) = value.pointer_mut(path).and_then(Value::as_object_mut) {
        fields.remove(field);
    }
}

/// Changes a request as the bug would have made it.
pub fn distort(bug: Bug, service: Service, request: &mut Request) {
    if !bug.is_of(service) {
        return;
    }
    let kind = request.kind.as_str();
    let (create, patch) = (request.verb == Verb::Create(false), matches!(request.verb, Verb::Patch(_)));
    match (bug, kind) {
        (Bug::AllowBeforeElect, "podchaperons") if create => {
            request.body["metadata"]["annotations"][keys::IS_ALLOWED] = json!("true");
            request.body["metadata"]["finalizers"] = json!([keys::CHAPERON_FINALIZER]);
        }
        (Bug::BlindBinding, "pods") if request.part == "binding" => {
            drop_field(&mut request.body, "/metadata", "uid");
            drop_field(&mut request.body, "/metadata", "resourceVersion");
        }
        (Bug::NoFinalizerWithPermission, "podchaperons") if patch => {
            drop_field(&mut request.body, "/metadata", "finalizers");
        }
        (Bug::NoFinalizerOnDelegate, "pods") if create => {
            drop_field(&mut request.body, "/metadata", "finalizers");
        }
        (Bug::NoFinalizerOnDelegate, "pods") if patch => request.body = json!([]),
        (Bug::BlindStatus, "podchaperons") if request.part == "status" => {
            if let Some(operations) = request.body.as_array_mut() {
                operations.retain(|operation| operation["op"] != "test");
            }
        }
        _ => {}
    }
}

impl World {
    /// The lie that a service is told instead of an answer, if any.
    pub(crate) fn lies(&mut self, bug: Bug, sent: &Sent) -> Option<Answer> {
        let request = &sent.request;
        let kind = request.kind.as_str();
        let read = matches!(request.verb, Verb::Get | Verb::List(_));
        if read && bug.distorts(kind) {
            return Some(viewed(bug, request, self.seen_store(sent.cluster)));
        }
        match (bug, kind, &request.verb) {
            (Bug::ParentsAlwaysGone, "pods", Verb::Get) => {
                Some(Err(Refusal::not_found("pods", &request.key.1)))
            }
            (Bug::StaleLiveReads, "podchaperons", Verb::Get) => {
                let store = self.seen_store(sent.cluster);
                let found = store.get(kind, &request.key.0, &request.key.1)?;
                let made = found.meta("creationTimestamp").parse().ok();
                let made = made.map_or(0, |time: k8s_openapi::jiff::Timestamp| time.as_second());
                (store.now_seconds - made < 20).then(|| Err(Refusal::not_found(kind, &request.key.1)))
            }
            (Bug::ConflictIsSuccess, "pods", Verb::Create(false)) if request.part == "binding" => {
                let answer = request.serve(self.seen_store(sent.cluster));
                let done = || Bytes::from(json!({"kind": "Status", "status": "Success"}).to_string());
                Some(answer.or_else(|refusal| if refusal.code == 409 { Ok(done()) } else { Err(refusal) }))
            }
            (Bug::LosersAndWinners, "podchaperons", Verb::Delete) => {
                let answer = request.serve(self.seen_store(sent.cluster));
                self.deletes_siblings(request);
                Some(answer)
            }
            (Bug::ReleaseProxyEarly, "podchaperons", Verb::Delete) => {
                let parent = self.parent(sent);
                let answer = request.serve(self.seen_store(sent.cluster));
                self.lets_go(&parent);
                Some(answer)
            }
            (Bug::ReleaseBeforeStop, "pods", Verb::Delete) => {
                let store = self.seen_store(sent.cluster);
                let answer = request.serve(store);
                let (namespace, name) = &request.key;
                store.edit("pods", namespace, name, |pod| {
                    pod["metadata"]["finalizers"] = json!(null);
                    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                });
                Some(answer)
            }
            _ => None,
        }
    }

    /// UID of the proxy pod of the PodChaperon that a request is about.
    fn parent(&mut self, sent: &Sent) -> String {
        let (namespace, name) = &sent.request.key;
        let found = self.seen_store(sent.cluster).get("podchaperons", namespace, name);
        found.map(|chaperon| chaperon.label(keys::PARENT_UID).to_owned()).unwrap_or_default()
    }

    /// Deletes all PodChaperons of the same proxy pod, wherever they are.
    fn deletes_siblings(&mut self, request: &Request) {
        let stem = request.key.1.rsplit_once('-').map_or_else(String::new, |(pod, _hash)| format!("{pod}-"));
        for id in 0..self.cluster_count() {
            let store = self.seen_store(id);
            let siblings: Vec<_> =
                store.all("podchaperons").filter(|found| found.name().starts_with(&stem)).cloned().collect();
            for sibling in siblings {
                let key = (sibling.meta("namespace").to_owned(), sibling.name().to_owned());
                let _left = store.delete("podchaperons", &key, &Deletion::default());
            }
        }
    }

    /// Takes the finalizer off a proxy pod.
    fn lets_go(&mut self, uid: &str) {
        for id in 0..self.cluster_count() {
            let store = self.seen_store(id);
            let Some(pod) = store.pod(uid).filter(|pod| pod.is_terminating()).cloned() else { continue };
            store.edit("pods", pod.meta("namespace"), pod.name(), |pod| {
                pod["metadata"]["finalizers"] = json!(null);
            });
        }
    }
}

/// A read as the bug sees it.
fn viewed(bug: Bug, request: &Request, store: &mut Store) -> Answer {
    if let Verb::List(selector) = &request.verb {
        let items: Vec<Value> = store
            .list(&request.kind, selector)
            .iter()
            .filter_map(|object| bug.view(&request.kind, object))
            .collect();
        let version = store.version().to_string();
        let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items});
        return Ok(Bytes::from(list.to_string()));
    }
    let found = store.get(&request.kind, &request.key.0, &request.key.1);
    let view = found.and_then(|object| bug.view(&request.kind, object));
    view.map(|value| Bytes::from(value.to_string()))
        .ok_or_else(|| Refusal::not_found(&request.kind, &request.key.1))
}
