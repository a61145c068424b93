//! Watches, the queue and what happens to one object.

use crate::apply::apply;
use crate::args::FollowArgs;
use crate::kinds::{Claims, ConfigMaps, Ingresses, Kind, Marker, Object, Raw, Secrets, Services};
use crate::link;
use crate::metrics::Metrics;
use crate::plan::plan;
use crate::rules::Rules;
use crate::store::{Evidence, Setting, Store};
use crate::views::Source;
use api::v1alpha1::{ClusterTarget, Target as NamespacedTarget};
use api::{Pod, keys};
use futures::StreamExt;
use futures::future::join_all;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use runtime::queue::{Next, Queue, jitter};
use runtime::{CancellationToken, Chain, Class, Runtime, Seen, Target, Targets, cluster_uid, watch};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Objects worked on at once.
const CONCURRENCY: usize = 256;
/// Plans made in one round of work on an object; more than any needs.
const ROUNDS: usize = 8;
/// Between two looks at everything.
const RESYNC: Duration = Duration::from_mins(10);

/// What all tasks share.
pub(crate) struct Context {
    pub(crate) rt: Runtime,
    pub(crate) own_uid: String,
    pub(crate) cluster_name: String,
    pub(crate) rules: Rules,
    pub(crate) metrics: Metrics,
    pub(crate) queue: Queue<Object>,
    pub(crate) stop: CancellationToken,
    store: Mutex<Store>,
}

impl Context {
    /// Never held across an await.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_all(&self, objects: impl IntoIterator<Item = Object>) {
        for object in objects {
            self.queue.add(&object);
        }
    }

    /// Reads live whether a Target was deleted; one of the same name made anew is another one.
    pub(crate) async fn target_is_gone(&self, target: &Target) -> Result<bool, kube::Error> {
        let found = if target.key.namespace.is_empty() {
            let api = Api::<ClusterTarget>::all(self.rt.client.clone());
            api.get_metadata_opt(&target.key.name).await?.and_then(|object| object.uid())
        } else {
            let api = Api::<NamespacedTarget>::namespaced(self.rt.client.clone(), &target.key.namespace);
            api.get_metadata_opt(&target.key.name).await?.and_then(|object| object.uid())
        };
        Ok(found.as_deref() != Some(&target.uid))
    }
}

/// What a leader begins with.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) rt: Runtime,
    pub(crate) args: FollowArgs,
    pub(crate) metrics: Metrics,
    pub(crate) targets: Targets,
}

/// Runs while this replica leads.
///
/// # Errors
///
/// The flags make no rules.
pub(crate) async fn run(seat: Seat, stop: CancellationToken) -> anyhow::Result<()> {
    let Seat { rt, args, metrics, targets } = seat;
    let rules = Rules::new(&args)?;
    let Some(own_uid) = cluster_uid(&rt.client, &stop).await else { return Ok(()) };
    info!(uid = %own_uid, "identity of the own cluster");
    let context = Arc::new(Context {
        queue: Queue::new("follow", &rt.metrics, CONCURRENCY),
        store: Mutex::new(Store::new(&own_uid, Duration::from_secs(args.linger_seconds))),
        stop: stop.child_token(),
        cluster_name: args.cluster_name,
        rules,
        metrics,
        own_uid,
        rt,
    });
    let follow = |target, token| link::follow(Arc::clone(&context), target, token);
    let work = |object| work(Arc::clone(&context), object);
    tokio::join!(
        registry(&context, targets.clone()),
        pods(&context),
        sources::<ConfigMaps>(&context, ""),
        // The releases of Helm are large, many, and nobody's volume.
        sources::<Secrets>(&context, "type!=helm.sh/release.v1"),
        leaders(&context),
        wholes::<Claims>(&context),
        resync(&context),
        targets.drive(context.stop.clone(), follow),
        context.queue.run(context.stop.clone(), work),
    );
    Ok(())
}

async fn registry(context: &Context, mut targets: Targets) {
    let mut map = targets.synced().await;
    loop {
        let objects = context.store().set_targets(&map);
        context.add_all(objects);
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            changed = targets.changed() => map = changed,
        }
    }
}

async fn pods(context: &Context) {
    let config = watcher::Config::default().fields(&format!("spec.schedulerName={}", keys::PROXY_SCHEDULER));
    let api = Api::<Pod>::all(context.rt.client.clone());
    let mut events = Box::pin(watch(api, config, "local", &context.rt.metrics));
    loop {
        let seen = tokio::select! { () = context.stop.cancelled() => return, seen = events.next() => seen };
        let Some(seen) = seen else { return };
        let objects = context.store().take_pods(seen);
        context.add_all(objects);
    }
}

/// Follows the metadata of all objects of one kind; their content is read when it is needed.
async fn sources<M: Marker>(context: &Context, fields: &str) {
    let mut config = watcher::Config::default();
    if !fields.is_empty() {
        config = config.fields(fields);
    }
    let api = Api::<PartialObjectMeta<Raw<M>>>::all(context.rt.client.clone());
    let mut events = Box::pin(watch(api, config, "local", &context.rt.metrics));
    let parts =
        |seen: &PartialObjectMeta<Raw<M>>| (Object::of(M::KIND, &seen.metadata), Source::new(&seen.metadata));
    loop {
        let seen = tokio::select! { () = context.stop.cancelled() => return, seen = events.next() => seen };
        let mut store = context.store();
        let objects: BTreeSet<Object> = match seen {
            None => return,
            Some(Seen::Replaced(all)) => store.replace_sources(M::KIND, all.iter().map(parts).collect()),
            Some(Seen::Applied(one)) => {
                let (object, source) = parts(&one);
                store.put_source(&object, source).then_some(object).into_iter().collect()
            }
            Some(Seen::Deleted(one)) => {
                let (object, source) = parts(&one);
                store.lose_source(&object, Some(&source.uid)).then_some(object).into_iter().collect()
            }
            Some(Seen::Failed(_)) => BTreeSet::new(),
        };
        drop(store);
        context.add_all(objects);
    }
}

/// Where Services do not follow, nothing leads anywhere else.
async fn leaders(context: &Context) {
    if context.rules.has_services() {
        tokio::join!(wholes::<Services>(context), wholes::<Ingresses>(context));
    }
}

/// Follows Services and Ingresses, since whom they lead to matters before anybody uses them, and claims, since their
/// spec says where their data is.
async fn wholes<M: Marker>(context: &Context) {
    let api = Api::<Raw<M>>::all(context.rt.client.clone());
    let mut events = Box::pin(watch(api, watcher::Config::default(), "local", &context.rt.metrics));
    let manager = context.rt.manager();
    let parts = |raw: &Raw<M>| {
        let setting = (manager.as_str(), context.rules.reroutes);
        let source = Source::whole(M::KIND, &raw.metadata, &raw.body, setting);
        (Object::of(M::KIND, &raw.metadata), source)
    };
    loop {
        let seen = tokio::select! { () = context.stop.cancelled() => return, seen = events.next() => seen };
        let mut store = context.store();
        let objects: BTreeSet<Object> = match seen {
            None => return,
            Some(Seen::Replaced(all)) => store.replace_sources(M::KIND, all.iter().map(parts).collect()),
            Some(Seen::Applied(one)) => {
                let (object, source) = parts(&one);
                let mut changed = store.put_leader(&object, &source);
                changed.extend(store.put_source(&object, source).then_some(object));
                changed
            }
            Some(Seen::Deleted(one)) => {
                let (object, source) = parts(&one);
                let mut changed = store.drop_leader(&object);
                changed.extend(store.lose_source(&object, Some(&source.uid)).then_some(object));
                changed
            }
            Some(Seen::Failed(_)) => BTreeSet::new(),
        };
        drop(store);
        context.add_all(objects);
    }
}

/// Looks at everything again now and then, should an event ever have been lost.
async fn resync(context: &Context) {
    loop {
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(jitter(RESYNC, &RESYNC)) => {}
        }
        let objects = context.store().all();
        context.add_all(objects);
    }
}

async fn work(context: Arc<Context>, object: Object) -> Next {
    let mut evidence = Evidence::default();
    for _ in 0..ROUNDS {
        let setting = Setting { rules: &context.rules, cluster_name: &context.cluster_name };
        let seen = context.store().observe(&object, &evidence, setting);
        let Some(seen) = seen else { return Next::Done };
        let plan = plan(&seen);
        if plan.actions.is_empty() {
            context.store().forget(&object);
            return plan.again.map_or(Next::Done, Next::After);
        }
        let calls = plan.actions.iter().map(|action| apply(&context, &object, action));
        let mut failure = None;
        for (outcome, action) in join_all(calls).await.into_iter().zip(&plan.actions) {
            match outcome {
                Ok(learned) => {
                    context.rt.metrics.actions.with_label_values(&["follow", action.name()]).inc();
                    learned.add_to(&mut evidence);
                }
                Err(error) => {
                    let class = error.class();
                    let expected = matches!(class, Class::Conflict | Class::NotFound);
                    if expected || context.queue.failures(&object) > 0 {
                        debug!(%object, error = %Chain(&error), "cannot act; trying again");
                    } else {
                        warn!(%object, error = %Chain(&error), "cannot act; trying again");
                    }
                    failure = Some(class);
                }
            }
        }
        if let Some(class) = failure {
            return Next::Retry(class);
        }
    }
    Next::Retry(Class::Conflict)
}

/// Which kinds are followed, for `/readyz` and logs.
pub(crate) fn kinds() -> String {
    crate::kinds::ALL.map(Kind::as_str).join(", ")
}
