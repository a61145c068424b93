//! Asks a target every few seconds for its ClusterSummary.

use crate::facts::{Health, Outcome, Reach, Summary};
use crate::progress::{self, Progress, Sign};
use api::{ClusterSummary, PodChaperon, keys};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use runtime::{CancellationToken, Chain, Class, TargetKey, class};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Between two probes of a target that answers.
const CALM: Duration = Duration::from_secs(5);
/// Between two probes of one that does not.
const ANXIOUS: Duration = Duration::from_secs(1);
/// Longest wait for a whole answer, body included.
const DEADLINE: Duration = Duration::from_secs(6);
/// Between two looks at our rights and at the target's version.
const RARELY: Duration = Duration::from_secs(10);

/// The state of a target after a probe.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) key: TargetKey,
    /// Number of the prober; reports of a former one are stale.
    pub(crate) prober: u64,
    pub(crate) health: Health,
}

/// One target, as a prober sees it.
pub(crate) struct Prober {
    pub(crate) key: TargetKey,
    pub(crate) number: u64,
    pub(crate) client: Client,
    /// A self target is used by each component under its own identity, so that ours says nothing.
    pub(crate) is_self: bool,
}

/// Probes until stopped.
pub(crate) async fn probe(target: Prober, reports: UnboundedSender<Report>, stop: CancellationToken) {
    let mut health = Health::default();
    let mut rights_seen: Option<Instant> = None;
    let (signs, seen) = tokio::sync::watch::channel(Sign::begin(Instant::now()));
    // A self target is watched under other identities than ours.
    let follower =
        (!target.is_self).then(|| tokio::spawn(progress::follow(target.client.clone(), signs, stop.clone())));
    let mut progress = Progress::default();
    loop {
        let (mut outcome, version) = ask(&target.client).await;
        if follower.is_some()
            && let Some(version) = version
            && let Some(problem) = progress.judge(version, &seen.borrow(), Instant::now())
        {
            outcome = problem;
        }
        let answered = matches!(outcome, Outcome::Answered(_) | Outcome::NoSummary);
        if answered && rights_seen.is_none_or(|at| at.elapsed() >= RARELY) {
            match (target.is_self, lacking(&target).await) {
                (false, Some(message)) => outcome = Outcome::Refused(message),
                (true, _) | (false, None) => rights_seen = Some(Instant::now()),
            }
            let version = tokio::time::timeout(DEADLINE, target.client.apiserver_version()).await;
            if let Ok(Ok(version)) = version {
                health.version = Some(version.git_version);
            }
        }
        if !answered {
            rights_seen = None;
        }
        // A refusal is an answer: haste would not change it.
        let refused = matches!(outcome, Outcome::Refused(_));
        health = health.after(outcome);
        let calm = refused || health.reach == Reach::Yes && health.failures == 0;
        let report = Report { key: target.key.clone(), prober: target.number, health: health.clone() };
        if reports.send(report).is_err() {
            return;
        }
        let pause = if calm { CALM } else { ANXIOUS };
        tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(pause) => () }
    }
}

/// Also says which version of the ClusterSummary there is.
async fn ask(client: &Client) -> (Outcome, Option<u64>) {
    let summaries = Api::<ClusterSummary>::all(client.clone());
    let answer = match tokio::time::timeout(DEADLINE, summaries.get(keys::SINGLETON)).await {
        Ok(answer) => answer,
        Err(_elapsed) => return (Outcome::Silent("no answer in time".to_owned()), None),
    };
    let version = answer.as_ref().ok().and_then(progress::version);
    (outcome(answer), version)
}

fn outcome(answer: Result<ClusterSummary, kube::Error>) -> Outcome {
    match answer {
        Ok(summary) => Outcome::Answered(Summary::from(summary)),
        Err(error) => match class(&error) {
            Class::NotFound => Outcome::NoSummary,
            Class::Forbidden => Outcome::Refused(Chain(&error).to_string()),
            Class::Conflict | Class::Invalid | Class::Unreachable | Class::Overloaded | Class::Bug => {
                Outcome::Silent(Chain(&error).to_string())
            }
        },
    }
}

/// What we must be able to do in a target and cannot. An unanswered question is no lack.
async fn lacking(target: &Prober) -> Option<String> {
    let namespace = Some(target.key.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let plural = PodChaperon::plural(&()).into_owned();
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(PodChaperon::group(&()).into_owned()),
                resource: Some(plural.clone()),
                verb: Some("watch".to_owned()),
                namespace: namespace.clone(),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews = Api::<SelfSubjectAccessReview>::all(target.client.clone());
    let answer =
        tokio::time::timeout(DEADLINE, reviews.create(&PostParams::default(), &review)).await.ok()?.ok()?;
    let allowed = answer.status.is_none_or(|status| status.allowed);
    let place =
        namespace.map_or_else(|| "all namespaces".to_owned(), |namespace| format!("namespace {namespace}"));
    (!allowed).then(|| {
        format!("cannot watch {plural} in {place} of the target: bind its source ClusterRole to our identity")
    })
}
