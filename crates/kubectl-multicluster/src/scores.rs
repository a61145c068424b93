//! What is published about targets.

use crate::access::Cluster;
use crate::fleet::Member;
use api::TargetScore;
use api::scores::TargetKind;
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

/// One published score of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Score {
    /// In which respect.
    pub(crate) score: String,
    /// 0 (worst) … 100 (best).
    pub(crate) value: i32,
    /// It is too old to count.
    pub(crate) expired: bool,
}

/// All that is published; nothing where the kind is not served, or this person may not read it.
pub(crate) async fn published(source: &Cluster) -> Vec<TargetScore> {
    let api: Api<TargetScore> = Api::all(source.client.clone());
    api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
}

/// What counts of it for one target, in the order of the names: of two about the same the newer one.
pub(crate) fn of(published: &[TargetScore], member: &Member, now: Timestamp) -> Vec<Score> {
    let kind = if member.namespace.is_some() { TargetKind::Target } else { TargetKind::ClusterTarget };
    let about = |score: &&TargetScore| {
        let target = &score.spec.target_ref;
        target.kind == kind && target.namespace == member.namespace && target.name == member.name
    };
    let mut own: Vec<&TargetScore> = published.iter().filter(about).collect();
    let newest = |score: &TargetScore| std::cmp::Reverse(score.observed_at());
    own.sort_by(|a, b| {
        let age = newest(a).cmp(&newest(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name));
        a.spec.score.cmp(&b.spec.score).then(age)
    });
    own.dedup_by(|later, earlier| later.spec.score == earlier.spec.score);
    own.into_iter()
        .map(|score| Score {
            score: score.spec.score.clone(),
            value: score.spec.value,
            expired: score.left(now).is_zero(),
        })
        .collect()
}

/// In words: `carbon 20, cost 80 (too old)`.
pub(crate) fn words(scores: &[Score]) -> String {
    let word = |score: &Score| {
        let old = if score.expired { " (too old)" } else { "" };
        format!("{} {}{old}", score.score, score.value)
    };
    scores.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{of, words};
    use crate::fleet::Member;
    use api::scores::{TargetKind, TargetReference};
    use api::v1alpha1::TargetStatus;
    use api::{TargetScore, TargetScoreSpec};

    fn member(namespace: Option<&str>) -> Member {
        Member {
            namespace: namespace.map(ToOwned::to_owned),
            name: "c1".to_owned(),
            is_self: false,
            secret: None,
            status: TargetStatus::default(),
            terminating: false,
        }
    }

    fn score(score: &str, value: i32, minute: u32, namespace: Option<&str>) -> TargetScore {
        let kind = if namespace.is_some() { TargetKind::Target } else { TargetKind::ClusterTarget };
        let namespace = namespace.map(ToOwned::to_owned);
        TargetScore::new(
            &format!("{score}-{value}"),
            TargetScoreSpec {
                target_ref: TargetReference { kind, namespace, name: "c1".to_owned() },
                score: score.to_owned(),
                value,
                observed_at: format!("2026-01-01T00:{minute:02}:00Z"),
                max_age: "5m".to_owned(),
            },
        )
    }

    #[track_caller]
    fn check(published: &[TargetScore], namespace: Option<&str>, want: &str) {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(words(&of(published, &member(namespace), now)), want);
    }

    #[test]
    fn a_target_has_the_newest_of_each_score() {
        let published = [
            score("cost", 10, 8, None),
            score("cost", 80, 9, None),
            score("carbon", 20, 1, None),
            score("latency", 1, 9, Some("ns")),
        ];
        check(&published, None, "carbon 20 (too old), cost 80");
        check(&published, Some("ns"), "latency 1");
        check(&published, Some("other"), "");
    }
}
