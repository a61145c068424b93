//! Whether this cluster is a target, or an ordinary one whose pods are all there is to place.

use std::time::Duration;

use api::PodChaperon;
use kube::Resource;
use runtime::{Chain, Runtime};
use tracing::{info, warn};

use crate::args::{Args, Chaperons};

/// Pause before another try to ask what the cluster knows.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Mode<'a> {
    pub(crate) args: &'a Args,
    /// There are profiles besides that of delegates.
    pub(crate) alone: bool,
}

impl Mode<'_> {
    /// Whether PodChaperons are scheduled. None if the process was asked to stop before the cluster had answered.
    pub(crate) async fn is_target(&self, runtime: &Runtime) -> Option<bool> {
        match self.args.chaperons {
            Chaperons::On => return Some(true),
            Chaperons::Off => return Some(false),
            Chaperons::Auto if !self.alone => return Some(true),
            Chaperons::Auto => {}
        }
        loop {
            let known = tokio::select! {
                () = runtime.shutdown.cancelled() => return None,
                known = knows_our_kinds(&runtime.client) => known,
            };
            match known {
                Ok(true) => return Some(true),
                Ok(false) => {
                    info!("PodChaperons are not known here; only pods of the profiles are placed");
                    return Some(false);
                }
                Err(error) => warn!(error = %Chain(&error), "cannot ask whether PodChaperons are known"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn knows_our_kinds(client: &kube::Client) -> Result<bool, kube::Error> {
    match client.list_api_group_resources(&PodChaperon::api_version(&())).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.kind == "PodChaperon")),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
