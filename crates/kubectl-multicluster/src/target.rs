//! `target add`, `remove` and `rotate`: both sides of a connection.

mod add;
mod kubeconfig;
mod remove;
mod rotate;

use crate::access::Cluster;
use crate::args::{Access, TargetCommand};
use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Field manager of what a person makes with this tool.
const MANAGER: &str = "kubectl-multicluster";
/// Pause between two looks at what others have to do.
const PAUSE: Duration = Duration::from_millis(500);

/// Does it.
///
/// # Errors
/// When one of the clusters refuses or does not answer: with what is missing.
pub(crate) async fn run(access: &Access, command: &TargetCommand) -> Result<()> {
    match command {
        TargetCommand::Add(add) => add::run(access, add).await,
        TargetCommand::Remove(remove) => remove::run(access, remove).await,
        TargetCommand::Rotate(rotate) => rotate::run(access, rotate).await,
    }
}

/// A token of a ServiceAccount.
async fn token(cluster: &Cluster, namespace: &str, account: &str, holds: Duration) -> Result<String> {
    let seconds = i64::try_from(holds.as_secs()).context("the duration is too long")?;
    let spec = TokenRequestSpec { expiration_seconds: Some(seconds), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let answer =
        accounts.create_token_request(account, &PostParams::default(), &request).await.with_context(
            || format!("cannot create a token of ServiceAccount {namespace}/{account} in the target"),
        )?;
    answer.status.and_then(|status| status.token).context("a token request was answered without a token")
}

/// Looks again until there is a value; at the end of the time the last reason is the error.
async fn until<T, F>(timeout: Duration, what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Result<T, String>>>,
{
    let end = Instant::now() + timeout;
    loop {
        match look().await? {
            Ok(value) => return Ok(value),
            Err(reason) if Instant::now() > end => {
                anyhow::bail!("{what} has not come about within {timeout:?}: {reason}")
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
