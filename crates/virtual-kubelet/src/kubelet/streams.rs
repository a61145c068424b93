//! Clients for streams, one for each target, made beside those of the registry of targets, and the end of all
//! streams of a target that is lost.

use kube::Client;
use runtime::{CancellationToken, Chain, Connector, Runtime, client};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tracing::warn;

#[derive(Default)]
struct All {
    clients: HashMap<String, Client>,
    ends: HashMap<String, CancellationToken>,
}

/// The newest client of each target. Clones share them.
#[derive(Clone)]
pub(crate) struct Streams {
    all: Arc<RwLock<All>>,
    stop: CancellationToken,
}

impl Streams {
    /// None yet; streams end with the process.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { all: Arc::default(), stop }
    }

    /// A runtime whose registry of targets makes a client for streams with every other client, from the same
    /// credentials.
    pub(crate) fn beside(&self, rt: &Runtime) -> Runtime {
        let (streams, connector) = (self.clone(), rt.connector.clone());
        let connect = move |config: kube::Config, cluster: &str, metrics: &runtime::Metrics| {
            match client::streaming(config.clone(), cluster, metrics) {
                Ok(client) => streams.set(cluster, client),
                Err(error) => warn!(cluster, error = %Chain(&error), "no client for streams"),
            }
            connector.connect(config, cluster, metrics)
        };
        Runtime { connector: Connector::new(connect), ..rt.clone() }
    }

    fn set(&self, cluster: &str, client: Client) {
        self.all.write().unwrap_or_else(PoisonError::into_inner).clients.insert(cluster.to_owned(), client);
    }

    /// The client of a target by its key.
    pub(crate) fn of(&self, cluster: &str) -> Option<Client> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clients.get(cluster).cloned()
    }

    /// Cancelled when streams of a target cannot go on.
    pub(crate) fn end_of(&self, cluster: &str) -> CancellationToken {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.ends.entry(cluster.to_owned()).or_insert_with(|| self.stop.child_token()).clone()
    }

    /// Ends all streams of a target that does not answer any more or is gone: nobody else would notice that the
    /// far end is silent for good.
    pub(crate) fn cut(&self, cluster: &str) {
        let end = self.all.write().unwrap_or_else(PoisonError::into_inner).ends.remove(cluster);
        if let Some(end) = end {
            end.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;
    use runtime::CancellationToken;

    #[test]
    fn streams_of_one_target_end_with_it_and_all_with_the_process() {
        let stop = CancellationToken::new();
        let streams = Streams::new(stop.clone());
        let (one, other) = (streams.end_of("one"), streams.end_of("other"));
        streams.cut("one");
        assert!(one.is_cancelled() && !other.is_cancelled());
        assert!(!streams.end_of("one").is_cancelled());
        stop.cancel();
        assert!(other.is_cancelled() && streams.end_of("one").is_cancelled());
    }
}
