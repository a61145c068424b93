//! One call for each action; its answer goes into the store.

use crate::controller::Context;
use crate::error::Error;
use crate::kinds::{Kind, Object};
use crate::link::{Link, with_uid};
use crate::plan::{Action, Obstacle};
use crate::services;
use crate::shape::{self, Content, Side, Way};
use crate::store::{Evidence, is_ours};
use crate::views::{Copied, Known, Source};
use api::claims::Whereabouts;
use api::keys;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DynamicObject, ListParams, ObjectMeta, Patch, PostParams};
use kube::core::PartialObjectMeta;
use runtime::{Chain, Class, TargetKey, class, patching};
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tracing::{debug, info, warn};

/// How long an object of somebody else is left alone before we look whether it is still there.
const FOREIGN: Duration = Duration::from_secs(60);
/// How long a target that refuses a copy is left alone.
const REFUSED: Duration = Duration::from_secs(15);

impl Action {
    /// The word for the metric.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::ReadOriginal => "read_original",
            Action::Tell(_) => "event",
            Action::Hold => "hold_original",
            Action::Release => "release_original",
            Action::Show(_) => "show_addresses",
            Action::Settle(_) => "settle_original",
            Action::Create(_) => "create_copy",
            Action::LookUp(_) => "look_up",
            Action::Update(_) => "update_copy",
            Action::Confirm(_) => "confirm_unused",
            Action::Delete(_) => "delete_copy",
        }
    }
}

/// What a call showed that is not in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Learned {
    Nothing,
    ReadOriginal,
    Confirmed(TargetKey),
    Looked(TargetKey),
}

impl Learned {
    pub(crate) fn add_to(self, evidence: &mut Evidence) {
        match self {
            Learned::Nothing => {}
            Learned::ReadOriginal => evidence.read = true,
            Learned::Confirmed(target) => drop(evidence.confirmed.insert(target)),
            Learned::Looked(target) => drop(evidence.looked.insert(target)),
        }
    }
}

/// Carries out one action.
pub(crate) async fn apply(context: &Context, object: &Object, action: &Action) -> Result<Learned, Error> {
    let hands = Hands { context, object };
    match action {
        Action::ReadOriginal => hands.read().await.map(|_| Learned::ReadOriginal),
        Action::Tell(why) => {
            context.store().set_told(object);
            hands.tell(&format!("does not follow its pods into target clusters: {why}")).await;
            Ok(Learned::Nothing)
        }
        Action::Hold => hands.mark(true).await,
        Action::Release => hands.mark(false).await,
        Action::Show(addresses) => hands.show(addresses).await,
        Action::Settle(target) => hands.settle(hands.link(target)?.as_ref()).await,
        Action::Create(target) => hands.create(hands.link(target)?.as_ref()).await,
        Action::LookUp(target) => hands.look_up(hands.link(target)?.as_ref()).await,
        Action::Update(target) => hands.update(hands.link(target)?.as_ref()).await,
        Action::Confirm(target) => hands.confirm(target).await,
        Action::Delete(target) => hands.delete(hands.link(target)?.as_ref()).await,
    }
}

struct Hands<'a> {
    context: &'a Context,
    object: &'a Object,
}

/// The fields of an object besides its metadata.
fn whole(object: &DynamicObject) -> &Map<String, Value> {
    static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    object.data.as_object().unwrap_or(&EMPTY)
}

/// The part of a patch that marks every original.
fn marking(source: &Source, held: bool) -> Value {
    json!({"metadata": {
        "uid": source.uid,
        "resourceVersion": source.resource_version,
        "finalizers": source.finalizers(held),
        "labels": {keys::HAS_FINALIZER: held.then_some("true")},
    }})
}

impl Hands<'_> {
    fn link(&self, target: &TargetKey) -> Result<Arc<Link>, Error> {
        let link = self.context.store().link(target).filter(|link| link.is_in_step(self.object.kind));
        link.ok_or_else(|| Error::Stale { object: self.object.clone() })
    }

    fn local(&self, verb: &'static str) -> impl FnOnce(kube::Error) -> Error + use<'_> {
        move |source| Error::Local { verb, object: self.object.clone(), source: Box::new(source) }
    }

    /// What a failed call to a target means; silence is remembered.
    fn remote(&self, verb: &'static str, link: &Link) -> impl FnOnce(kube::Error) -> Error + use<'_> {
        let cluster = link.key.clone();
        move |source| Error::Remote { verb, object: self.object.clone(), cluster, source: Box::new(source) }
    }

    fn sources(&self) -> Api<DynamicObject> {
        let (client, kind) = (self.context.rt.client.clone(), self.object.kind);
        Api::namespaced_with(client, &self.object.namespace, &kind.resource())
    }

    /// Reads the original and what its copies are to look like.
    async fn read(&self) -> Result<Option<DynamicObject>, Error> {
        let found = self.sources().get_opt(&self.object.name).await.map_err(self.local("read"))?;
        let mut store = self.context.store();
        let Some(original) = found else {
            store.lose_source(self.object, None);
            return Ok(None);
        };
        let source = self.source(&original);
        let content =
            Content::new(self.object.kind, &original.metadata, whole(&original), &self.context.rules);
        store.set_known(self.object, Known { version: source.version, content });
        store.put_source(self.object, source);
        Ok(Some(original))
    }

    /// The copy that a target is to have, of the original as it is now.
    async fn wanted(&self, link: &Link) -> Result<(Value, String), Error> {
        let stale = || Error::Stale { object: self.object.clone() };
        let original = self.read().await?.ok_or_else(stale)?;
        if original.metadata.deletion_timestamp.is_some() {
            return Err(stale());
        }
        let uid = original.metadata.uid.clone().unwrap_or_default();
        let kind = self.object.kind;
        let content = Content::new(kind, &original.metadata, whole(&original), &self.context.rules);
        let view = self.context.store().view(&link.key);
        let body = shape::body(kind, &original.metadata, whole(&original), Side::Original(&view));
        let way = Way {
            cluster_name: &self.context.cluster_name,
            own_uid: &self.context.own_uid,
            target_uid: &link.cluster_uid,
            virtual_node: &link.key.virtual_node(),
        };
        let metadata = shape::metadata(self.object, &uid, way, (&content.labels, &content.annotations));
        Ok((shape::copy(self.object, metadata, body), uid))
    }

    fn source(&self, original: &DynamicObject) -> Source {
        let setting = (self.context.rt.manager(), self.context.rules.reroutes);
        Source::whole(self.object.kind, &original.metadata, whole(original), (&setting.0, setting.1))
    }

    fn copied(&self, found: &DynamicObject) -> Copied {
        Copied::new(self.object.kind, &found.metadata, whole(found), &self.context.rt.manager())
    }

    async fn create(&self, link: &Link) -> Result<Learned, Error> {
        let (wanted, _) = self.wanted(link).await?;
        if self.context.store().copy(&link.key, self.object).is_some() {
            return Ok(Learned::Nothing);
        }
        let body: DynamicObject = serde_json::from_value(wanted)
            .unwrap_or_else(|_shape| DynamicObject::new(&self.object.name, &self.object.kind.resource()));
        let params = PostParams { field_manager: Some(self.context.rt.manager()), ..PostParams::default() };
        match link.objects(self.object).create(&params, &body).await {
            Ok(made) => {
                info!(object = %self.object, cluster = %link.key, "made a copy");
                self.put(link, &made);
                Ok(Learned::Nothing)
            }
            Err(error) => self.refused(link, error).await,
        }
    }

    fn put(&self, link: &Link, found: &DynamicObject) {
        let copy = self.copied(found);
        self.context.store().put_copy(&link.key, self.object, copy);
    }

    /// A write in a target failed.
    async fn refused(&self, link: &Link, error: kube::Error) -> Result<Learned, Error> {
        match (class(&error), &error) {
            (Class::Conflict, kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                self.look_up(link).await
            }
            (Class::Forbidden | Class::Invalid | Class::NotFound, kube::Error::Api(status)) => {
                self.obstacle(
                    link,
                    (Obstacle::Refused, REFUSED),
                    &format!("refuses a copy: {}", status.message),
                )
                .await;
                Ok(Learned::Nothing)
            }
            (Class::Unreachable, _) => {
                link.suspect();
                Err(self.remote("write", link)(error))
            }
            _ => Err(self.remote("write", link)(error)),
        }
    }

    async fn obstacle(&self, link: &Link, block: (Obstacle, Duration), what: &str) {
        let reason = match block.0 {
            Obstacle::Foreign => "foreign",
            Obstacle::Refused => "refused",
        };
        if self.context.store().block(self.object, &link.key, Some(block)) {
            self.context.metrics.obstacles.with_label_values(&[&link.key.to_string(), reason]).inc();
            warn!(object = %self.object, cluster = %link.key, reason, "an object does not follow");
            self.tell(&format!("does not follow its pods: target {} {what}", link.key)).await;
        }
    }

    /// Looks what a target has under the name: a copy of ours or of an older release, or somebody else's.
    async fn look_up(&self, link: &Link) -> Result<Learned, Error> {
        let found = link.objects(self.object).get_opt(&self.object.name).await;
        if found.as_ref().is_err_and(|error| class(error) == Class::Unreachable) {
            link.suspect();
        }
        let looked = Learned::Looked(link.key.clone());
        let Some(found) = found.map_err(self.remote("read", link))? else {
            self.context.store().block(self.object, &link.key, None);
            return Ok(looked);
        };
        let copy = self.copied(&found);
        let uid = self.context.store().source(self.object).map(|source| source.uid).unwrap_or_default();
        if is_ours(&copy, &self.context.own_uid, &uid) {
            self.context.store().put_copy(&link.key, self.object, copy);
            return Ok(looked);
        }
        let what = if self.object.kind.holds_data() {
            "has one of this name that is no copy of it; no pod of this one starts there"
        } else {
            "has one of this name that is no copy of it; pods there use that one"
        };
        self.obstacle(link, (Obstacle::Foreign, FOREIGN), what).await;
        Ok(looked)
    }

    async fn update(&self, link: &Link) -> Result<Learned, Error> {
        let api = link.objects(self.object);
        let live = api.get_opt(&self.object.name).await.map_err(self.remote("read", link))?;
        let Some(live) = live else {
            if let Some(copy) = self.context.store().copy(&link.key, self.object) {
                self.context.store().lose_copy(&link.key, self.object, &copy.uid);
            }
            return Ok(Learned::Nothing);
        };
        let (wanted, uid) = self.wanted(link).await?;
        let copy = self.copied(&live);
        if !is_ours(&copy, &self.context.own_uid, &uid) {
            self.context.store().lose_copy(&link.key, self.object, &copy.uid);
            return Err(Error::Stale { object: self.object.clone() });
        }
        let now = serde_json::to_value(&live).unwrap_or_default();
        let patch =
            shape::patch(self.object.kind, (&now, &live.metadata), &wanted, &self.context.rt.manager());
        match api.patch(&self.object.name, &patching(&self.context.rt.manager()), &Patch::Merge(&patch)).await
        {
            Ok(made) => {
                info!(object = %self.object, cluster = %link.key, "changed a copy");
                self.put(link, &made);
                Ok(Learned::Nothing)
            }
            Err(error) => self.refused(link, error).await,
        }
    }

    async fn delete(&self, link: &Link) -> Result<Learned, Error> {
        let Some(copy) = self.context.store().copy(&link.key, self.object) else {
            return Ok(Learned::Nothing);
        };
        match link.objects(self.object).delete(&self.object.name, &with_uid(&copy.uid)).await {
            Ok(answer) => {
                info!(object = %self.object, cluster = %link.key, "deleted a copy");
                match answer.left() {
                    Some(left) if left.metadata.deletion_timestamp.is_some() => self.put(link, &left),
                    _ => self.context.store().lose_copy(&link.key, self.object, &copy.uid),
                }
            }
            Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => {
                self.context.store().lose_copy(&link.key, self.object, &copy.uid);
            }
            Err(error) => {
                if class(&error) == Class::Unreachable {
                    link.suspect();
                }
                return Err(self.remote("delete", link)(error));
            }
        }
        Ok(Learned::Nothing)
    }

    /// Adds our finalizer and its label to the original, or takes them off; a Service is rerouted by the same
    /// write, or as its user wrote it.
    async fn mark(&self, held: bool) -> Result<Learned, Error> {
        let (seen, patch) = if self.object.kind == Kind::Service {
            let Some(original) = self.read().await? else { return Ok(Learned::Nothing) };
            let source = self.source(&original);
            let reroutes = held && self.context.rules.reroutes && self.context.store().has_users(self.object);
            let spec = whole(&original).get("spec").unwrap_or(&Value::Null);
            let manager = self.context.rt.manager();
            let (annotations, spec) = services::mark(&original.metadata, spec, &manager, reroutes);
            let mut patch = marking(&source, held);
            patch["metadata"]["annotations"] = annotations;
            patch["spec"] = spec;
            (source, patch)
        } else {
            let Some(source) = self.context.store().source(self.object) else { return Ok(Learned::Nothing) };
            let mut patch = marking(&source, held);
            if self.object.kind == Kind::Ingress {
                patch["metadata"]["annotations"] = json!({keys::GLOBAL: held.then_some("true")});
            }
            (source, patch)
        };
        let params = patching(&self.context.rt.manager());
        match self.sources().patch(&self.object.name, &params, &Patch::Merge(&patch)).await {
            Ok(written) => {
                self.context.store().renew(self.object, seen.version, self.source(&written));
                debug!(object = %self.object, held, "marked an original");
                Ok(Learned::Nothing)
            }
            Err(error) if class(&error) == Class::NotFound => {
                self.context.store().lose_source(self.object, Some(&seen.uid));
                Ok(Learned::Nothing)
            }
            Err(error) => Err(self.local("mark")(error)),
        }
    }

    /// Writes into the status of the original where its copies are reached, and which addresses those are: what a
    /// controller of the source writes there is its own.
    async fn show(&self, addresses: &[Value]) -> Result<Learned, Error> {
        let Some(source) = self.context.store().source(self.object) else { return Ok(Learned::Nothing) };
        let ours = (!addresses.is_empty()).then(|| json!(addresses).to_string());
        let patch = json!({
            "metadata": {"uid": source.uid, "resourceVersion": source.resource_version,
                "annotations": {keys::INGRESS_ADDRESSES: ours}},
            "status": {"loadBalancer": {"ingress": addresses}},
        });
        let params = patching(&self.context.rt.manager());
        let written = self.sources().patch_status(&self.object.name, &params, &Patch::Merge(&patch)).await;
        let written = written.map_err(self.local("write the status of"))?;
        self.context.store().renew(self.object, source.version, self.source(&written));
        Ok(Learned::Nothing)
    }

    /// Makes a target the home of the original's data, unless it has one by now.
    async fn settle(&self, link: &Link) -> Result<Learned, Error> {
        let Some(original) = self.read().await? else { return Ok(Learned::Nothing) };
        let source = self.source(&original);
        if source.claim != Some(Whereabouts::Anywhere) || source.deleting {
            return Ok(Learned::Nothing);
        }
        let mut patch = marking(&source, true);
        patch["metadata"]["annotations"] = json!({keys::CLAIM_HOME: link.cluster_uid});
        let params = patching(&self.context.rt.manager());
        let written = self.sources().patch(&self.object.name, &params, &Patch::Merge(&patch)).await;
        let written = written.map_err(self.local("settle"))?;
        self.context.store().renew(self.object, source.version, self.source(&written));
        info!(object = %self.object, cluster = %link.key, "the data of a claim is there from now on");
        Ok(Learned::Nothing)
    }

    /// Asks which pods run behind the virtual node: a view that lacks one of them is behind, and says nothing
    /// about who uses what.
    async fn confirm(&self, target: &TargetKey) -> Result<Learned, Error> {
        let pods: Api<PartialObjectMeta<api::Pod>> =
            Api::namespaced(self.context.rt.client.clone(), &self.object.namespace);
        let behind = ListParams::default().fields(&format!("spec.nodeName={}", target.virtual_node()));
        let found = pods.list(&behind).await.map_err(self.local("list the pods that may use"))?;
        let uids: Vec<String> = found.items.into_iter().filter_map(|pod| pod.metadata.uid).collect();
        if self.context.store().knows_pods(&uids) {
            return Ok(Learned::Confirmed(target.clone()));
        }
        Err(Error::Stale { object: self.object.clone() })
    }

    /// An event is worth no retry.
    async fn tell(&self, message: &str) {
        let Some(source) = self.context.store().source(self.object) else { return };
        let now = Time(self.context.rt.clock.now());
        let object = self.object;
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}.", object.name)),
                namespace: Some(object.namespace.to_string()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(object.kind.resource().api_version),
                kind: Some(object.kind.as_str().to_owned()),
                namespace: Some(object.namespace.to_string()),
                name: Some(object.name.to_string()),
                uid: Some(source.uid),
                ..ObjectReference::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some("NotFollowed".to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource { component: Some(self.context.rt.manager()), host: None }),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Event::default()
        };
        let events = Api::<Event>::namespaced(self.context.rt.client.clone(), &object.namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            warn!(%object, error = %Chain(&error), "cannot write an event");
        }
    }
}
