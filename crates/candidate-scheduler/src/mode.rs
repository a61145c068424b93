//! Whether this cluster is a target, or an ordinary one whose pods are all there is to place.

use std::time::Duration;

use api::PodChaperon;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule};
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
        let known = asked::<PodChaperon>(runtime).await?;
        if !known {
            info!("PodChaperons are not known here; only pods of the profiles are placed");
        }
        Some(known)
    }
}

/// Whether the cluster has DeviceClasses, which older ones do not. None if the process was asked to stop before it had
/// answered.
pub(crate) async fn has_devices(runtime: &Runtime) -> Option<bool> {
    asked::<DeviceClass>(runtime).await
}

/// Whether the cluster has DeviceTaintRules, which came later than DeviceClasses. None if the process was asked to stop
/// before it had answered.
pub(crate) async fn has_rules(runtime: &Runtime) -> Option<bool> {
    asked::<DeviceTaintRule>(runtime).await
}

/// Whether the cluster knows a kind. None if the process was asked to stop before it had answered.
async fn asked<K: Resource<DynamicType = ()>>(runtime: &Runtime) -> Option<bool> {
    loop {
        let known = tokio::select! {
            () = runtime.shutdown.cancelled() => return None,
            known = knows::<K>(&runtime.client) => known,
        };
        match known {
            Ok(known) => return Some(known),
            Err(error) => {
                let kind = K::kind(&());
                warn!(kind = %kind, error = %Chain(&error), "cannot ask whether a kind is known");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn knows<K: Resource<DynamicType = ()>>(client: &kube::Client) -> Result<bool, kube::Error> {
    match client.list_api_group_resources(&K::api_version(&())).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.kind == K::kind(&()))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}
