//! What a caller may do with a node: a SubjectAccessReview for each subresource that would be enough.

use super::callers::Caller;
use super::route::Attributes;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use runtime::Chain;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a yes holds.
const ALLOWED: Duration = Duration::from_secs(30);
/// How long a no holds: somebody may be waiting for a role.
const DENIED: Duration = Duration::from_secs(3);
/// Most answers that are remembered.
const MOST: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    caller: Caller,
    verb: &'static str,
    subresource: &'static str,
    node: String,
}

/// Asks, and remembers the answers for a while.
pub(crate) struct Rights {
    client: Client,
    known: Mutex<HashMap<Question, (Instant, bool)>>,
}

impl Rights {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Whether a caller may do this with a node.
    ///
    /// # Errors
    ///
    /// The API server could not be asked: why not.
    pub(crate) async fn allows(
        &self,
        caller: &Caller,
        attributes: &Attributes,
        node: &str,
    ) -> Result<bool, String> {
        for subresource in attributes.subresources {
            let question = Question {
                caller: caller.clone(),
                verb: attributes.verb,
                subresource,
                node: node.to_owned(),
            };
            let known = self.known(&question);
            let allowed = match known {
                Some(allowed) => allowed,
                None => self.ask(&question).await?,
            };
            if allowed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn known(&self, question: &Question) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, allowed) = known.get(question)?;
        let holds = if *allowed { ALLOWED } else { DENIED };
        (since.elapsed() < holds).then_some(*allowed)
    }

    async fn ask(&self, question: &Question) -> Result<bool, String> {
        let caller = &question.caller;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.user.clone()),
                uid: caller.uid.clone(),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(question.subresource.to_owned()),
                    name: Some(question.node.clone()),
                    verb: Some(question.verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Chain(&error).to_string())?;
        let allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(question.clone(), (Instant::now(), allowed));
        Ok(allowed)
    }
}
