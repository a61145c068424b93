//! One pod, from its binding to its last word.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::container::{Board, Policy, Stop, run as run_container};
use super::launch::{Place, volumes as volumes_folder};
use super::status::PodStatus;
use super::volumes::{REFRESH, Trouble, Volumes};
use super::{Host, Seen, known};
use crate::network::Sandbox;

const RETRY: Duration = Duration::from_millis(300);

/// Runs a pod until it is gone.
pub(super) async fn run(host: Arc<Host>, seen: watch::Receiver<Seen>) {
    let pod = Arc::clone(&seen.borrow().pod);
    if finished(&pod) {
        return leave_finished(&host, &pod, seen).await;
    }
    let sandbox = loop {
        match host.network.sandbox().await {
            Ok(sandbox) => break sandbox,
            Err(error) => host.faults.add(format!("the network of pod {}: {error:#}", pod.name_any())),
        }
        sleep(RETRY).await;
    };
    for field in known::unknown(&pod) {
        host.faults.add(format!("{}: {field}", pod.name_any()));
    }
    let board = Board::new(PodStatus::new(&pod, host.address(), Timestamp::now()));
    board.change(|status| status.address = Some(sandbox.address));
    let (stopper, stop) = watch::channel(None);
    let life = async {
        live(&host, &pod, &sandbox, &board, stop).await;
        board.change(|status| status.over = true);
        // A finished pod stays until somebody deletes it.
        let mut seen = seen.clone();
        drop(seen.wait_for(|seen| seen.gone || seen.pod.metadata.deletion_timestamp.is_some()).await);
    };
    tokio::select! {
        () = life => {}
        () = publish(&host, &pod, &board) => {}
        () = obey(seen.clone(), stopper) => {}
    }
    drop(sandbox.remove().await);
    drop(std::fs::remove_dir_all(folder(&host, &pod)));
    if !seen.borrow().gone {
        say(&host, &pod, &board).await;
        remove(&host, &pod, seen).await;
    }
}

fn folder(host: &Host, pod: &Pod) -> std::path::PathBuf {
    host.folder.join(pod.uid().unwrap_or_default())
}

fn finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

async fn leave_finished(host: &Host, pod: &Pod, mut seen: watch::Receiver<Seen>) {
    let deleted = seen.wait_for(|seen| seen.gone || seen.pod.metadata.deletion_timestamp.is_some()).await;
    if deleted.is_ok_and(|seen| !seen.gone) {
        remove(host, pod, seen).await;
    }
}

/// Passes a deletion on to the containers, and never returns.
async fn obey(mut seen: watch::Receiver<Seen>, stopper: watch::Sender<Option<Duration>>) {
    loop {
        let grace = {
            let seen = seen.borrow_and_update();
            let metadata = &seen.pod.metadata;
            let seconds = metadata.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
            let deleted = metadata.deletion_timestamp.is_some();
            if seen.gone {
                Some(Duration::ZERO)
            } else {
                seconds.filter(|_| deleted).map(Duration::from_secs)
            }
        };
        if grace.is_some() {
            stopper.send_replace(grace);
        }
        if seen.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Runs all containers until none will run again.
async fn live(host: &Host, pod: &Pod, sandbox: &Sandbox, board: &Board, stop: Stop) {
    let folder = folder(host, pod);
    let volumes = Volumes { host, pod, address: sandbox.address, folder: volumes_folder(&folder) };
    if !filled(&volumes, pod, &stop).await {
        return;
    }
    let place = Place { host, pod, sandbox, folder };
    tokio::select! {
        () = containers(&place, board, &stop) => {}
        () = refresh(&volumes) => {}
    }
}

async fn containers(place: &Place<'_>, board: &Board, stop: &Stop) {
    let spec = place.pod.spec.clone().unwrap_or_default();
    let policy = Policy::of(spec.restart_policy.as_deref());
    for container in spec.init_containers.iter().flatten() {
        let policy = if policy == Policy::Always { Policy::OnFailure } else { policy };
        if run_container(place, board, container, policy, stop.clone()).await != 0 {
            return;
        }
    }
    let all =
        spec.containers.iter().map(|container| run_container(place, board, container, policy, stop.clone()));
    join_all(all).await;
}

/// Waits until all volumes are there; `false` when the pod stops first.
async fn filled(volumes: &Volumes<'_>, pod: &Pod, stop: &Stop) -> bool {
    while stop.borrow().is_none() {
        match volumes.fill().await {
            Ok(()) => return true,
            Err(Trouble::NotYet(_)) => sleep(RETRY).await,
            Err(Trouble::Never(message)) => {
                volumes.host.faults.add(format!("{}: {message}", pod.name_any()));
                drop(stop.clone().wait_for(Option::is_some).await);
            }
        }
    }
    false
}

async fn refresh(volumes: &Volumes<'_>) {
    loop {
        sleep(REFRESH).await;
        // What cannot be read now stays as it was.
        drop(volumes.fill().await);
    }
}

/// Sends the status whenever it has changed, and never returns.
async fn publish(host: &Host, pod: &Pod, board: &Board) {
    loop {
        board.changed().await;
        say(host, pod, board).await;
    }
}

/// Sends the status, until the API server has it or the pod is gone.
async fn say(host: &Host, pod: &Pod, board: &Board) {
    let pods: Api<Pod> = Api::namespaced(host.client.clone(), &pod.namespace().unwrap_or_default());
    loop {
        let status = board.read(|status| status.value(Timestamp::now()));
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        match pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => return,
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Deletes the object of a pod whose containers have all ended, until it is gone.
async fn remove(host: &Host, pod: &Pod, seen: watch::Receiver<Seen>) {
    let pods: Api<Pod> = Api::namespaced(host.client.clone(), &pod.namespace().unwrap_or_default());
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    let parameters = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    while !seen.borrow().gone {
        match pods.delete(&pod.name_any(), &parameters).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(_) => sleep(RETRY).await,
        }
    }
}
