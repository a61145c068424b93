//! Clients for streams, one for each target, made beside those of the registry of targets.

use kube::Client;
use runtime::{Chain, Connector, Runtime, client};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tracing::warn;

/// The newest client of each target. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<RwLock<HashMap<String, Client>>>);

impl Streams {
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
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(cluster.to_owned(), client);
    }

    /// The client of a target by its key.
    pub(crate) fn of(&self, cluster: &str) -> Option<Client> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned()
    }
}
