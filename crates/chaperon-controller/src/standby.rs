//! What a replica must be able to list and watch before it is ready.

use api::{Pod, PodChaperon};
use kube::Client;
use runtime::admin::Readiness;
use runtime::standby::{self, check_kind};
use std::convert::Infallible;

/// What is watched, as `/readyz` names it.
const PODS: &str = "pods";
/// See [`PODS`].
const CHAPERONS: &str = "podchaperons";

/// Nothing was listed yet.
pub(crate) fn begin(readiness: &Readiness) {
    for kind in [PODS, CHAPERONS] {
        readiness.set(kind, false);
    }
}

/// Checks until all can be listed and watched, then waits for ever.
pub(crate) async fn stand_by(client: &Client, readiness: &Readiness) -> Infallible {
    standby::stand_by(readiness, async || check(client, readiness).await).await
}

async fn check(client: &Client, readiness: &Readiness) {
    check_kind::<Pod>(client, readiness, PODS).await;
    check_kind::<PodChaperon>(client, readiness, CHAPERONS).await;
}

#[cfg(test)]
mod tests {
    use super::{CHAPERONS, begin, check};
    use kube::Client;
    use kube::client::Body;
    use runtime::admin::Readiness;
    use serde_json::json;

    /// A cluster that refuses requests with one of these words in their path and query.
    fn refusing(words: &'static [&'static str]) -> Client {
        let answer = move |request: http::Request<Body>| async move {
            let uri = request.uri().to_string();
            let refused = words.iter().all(|word| uri.contains(word));
            let (code, body) = if refused {
                (403, json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}))
            } else {
                (200, json!({"metadata": {"resourceVersion": "7"}, "items": []}))
            };
            http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[track_caller]
    fn missing(words: &'static [&'static str]) -> Vec<&'static str> {
        let readiness = Readiness::default();
        begin(&readiness);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { check(&refusing(words), &readiness).await });
        readiness.missing()
    }

    #[test]
    fn a_replica_is_ready_when_it_could_list_and_watch_everything() {
        assert!(missing(&["nothing"]).is_empty());
        assert_eq!(missing(&["podchaperons"]), [CHAPERONS]);
        assert_eq!(missing(&["podchaperons", "watch="]), [CHAPERONS], "a right to list alone is too little");
    }
}
