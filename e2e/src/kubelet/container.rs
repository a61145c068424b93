//! One container: started, probed, restarted, stopped.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::launch::Place;
use super::probes::Check;
use super::status::{ContainerStatus, Doing, End, PodStatus};
use super::volumes::Trouble;
use crate::process::{Process, Signal};

/// The wait before the second restart; it doubles up to [`LONGEST_PAUSE`]. A kubelet begins with 10 s.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// After so long a run the back-off starts anew.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(300);

/// The status that all containers of a pod write and that is sent to the API server.
pub(super) struct Board {
    status: Mutex<PodStatus>,
    changed: Notify,
}

impl Board {
    pub(super) fn new(status: PodStatus) -> Self {
        Self { status: Mutex::new(status), changed: Notify::new() }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut PodStatus) -> T) -> T {
        let value = change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        value
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&mut PodStatus) -> T) -> T {
        read(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn container(&self, name: &str, change: impl FnOnce(&mut ContainerStatus)) {
        self.change(|status| {
            let mut all = status.init.iter_mut().chain(&mut status.main);
            if let Some(container) = all.find(|container| container.name == name) {
                change(container);
            }
        });
    }
}

/// The grace period of a pod that shall stop; `None` while it shall run.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

/// Whether an ended container is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Always,
    OnFailure,
    Never,
}

impl Policy {
    pub(super) fn of(name: Option<&str>) -> Self {
        match name {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Runs a container until it shall not be started again, and returns its last exit code.
pub(super) async fn run(
    place: &Place<'_>,
    board: &Board,
    container: &Container,
    policy: Policy,
    mut stop: Stop,
) -> i32 {
    let mut pause = None;
    loop {
        let Some(process) = start(place, board, container, &mut stop).await else {
            return give_up(board, container);
        };
        let since = Timestamp::now();
        board.container(&container.name, |status| {
            status.doing = Doing::Running { since };
            status.started = container.startup_probe.is_none();
            status.ready = container.readiness_probe.is_none() && status.started;
        });
        let key = key(place, container);
        place.host.running().insert(key.clone(), process.clone());
        let code = live(place, board, container, &process, &mut stop).await;
        place.host.running().remove(&key);
        let end = End { code, since, at: Timestamp::now() };
        let again = stop.borrow().is_none() && policy.restarts(code);
        board.container(&container.name, |status| {
            status.ready = false;
            status.started = false;
            status.doing = Doing::Ended(end.clone());
        });
        if !again {
            return code;
        }
        if end.at.duration_since(since).as_secs() >= HEALTHY_AFTER.as_secs().cast_signed() {
            pause = None;
        }
        wait(board, container, &end, pause, &mut stop).await;
        pause = Some(pause.map_or(FIRST_PAUSE, |pause: Duration| pause.saturating_mul(2).min(LONGEST_PAUSE)));
    }
}

fn key(place: &Place<'_>, container: &Container) -> String {
    let metadata = &place.pod.metadata;
    let name = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}/{}", name(&metadata.namespace), name(&metadata.name), container.name)
}

fn give_up(board: &Board, container: &Container) -> i32 {
    let now = Timestamp::now();
    let mut code = 137;
    board.container(&container.name, |status| match &status.doing {
        Doing::Ended(end) => code = end.code,
        Doing::Waiting { .. } | Doing::Running { .. } => {
            status.doing = Doing::Ended(status.last.clone().unwrap_or(End { code, since: now, at: now }));
        }
    });
    code
}

/// Waits out the back-off before a restart.
async fn wait(board: &Board, container: &Container, end: &End, pause: Option<Duration>, stop: &mut Stop) {
    board.container(&container.name, |status| {
        status.restarts = status.restarts.saturating_add(1);
        status.last = Some(end.clone());
        if pause.is_some() {
            let message = format!("back-off restarting failed container {}", container.name);
            status.doing = Doing::Waiting { reason: "CrashLoopBackOff", message };
        }
    });
    tokio::select! {
        () = sleep(pause.unwrap_or_default()) => {}
        _ = stop.wait_for(Option::is_some) => {}
    }
}

/// Starts the process, as soon as everything that it needs is there; `None` when the pod stops first.
async fn start(place: &Place<'_>, board: &Board, container: &Container, stop: &mut Stop) -> Option<Process> {
    loop {
        if stop.borrow().is_some() {
            return None;
        }
        let trouble = match place.command(container).await {
            Ok((command, log)) => match Process::spawn(&container.name, command, &log) {
                Ok(process) => return Some(process),
                Err(error) => Trouble::NotYet(format!("{error:#}")),
            },
            Err(trouble) => trouble,
        };
        let (message, pause) = match trouble {
            Trouble::NotYet(message) => (message, RETRY),
            Trouble::Never(message) => {
                place.host.faults.add(format!("{}: {message}", key(place, container)));
                (message, Duration::MAX)
            }
        };
        board.container(&container.name, |status| {
            status.doing = Doing::Waiting { reason: "CreateContainerConfigError", message };
        });
        tokio::select! {
            () = sleep(pause) => {}
            _ = stop.wait_for(Option::is_some) => {}
        }
    }
}

/// Watches over a running process until it has ended, and returns its exit code.
async fn live(
    place: &Place<'_>,
    board: &Board,
    container: &Container,
    process: &Process,
    stop: &mut Stop,
) -> i32 {
    let grace = place.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let grace = Duration::from_secs(grace.and_then(|grace| u64::try_from(grace).ok()).unwrap_or(30));
    let grace = tokio::select! {
        status = process.wait() => return code(status),
        asked = stop.wait_for(Option::is_some) => asked.ok().and_then(|grace| *grace).unwrap_or(grace),
        // A probe says that the container must be restarted.
        () = probe(place, board, container) => grace,
    };
    end(process, pre_stop(container), grace).await
}

/// How long a container wants to go on before it is asked to end.
fn pre_stop(container: &Container) -> Duration {
    let lifecycle = container.lifecycle.as_ref();
    let sleep = lifecycle.and_then(|cycle| cycle.pre_stop.as_ref()).and_then(|stop| stop.sleep.as_ref());
    sleep.and_then(|sleep| u64::try_from(sleep.seconds).ok()).map_or(Duration::ZERO, Duration::from_secs)
}

/// Asks the process to end and ends it when its grace period is over.
async fn end(process: &Process, first: Duration, grace: Duration) -> i32 {
    let first = first.min(grace);
    if let Ok(status) = timeout(first, process.wait()).await {
        return code(status);
    }
    drop(process.signal(Signal::Term).await);
    match timeout(grace.saturating_sub(first), process.wait()).await {
        Ok(status) => code(status),
        Err(_) => {
            drop(process.signal(Signal::Kill).await);
            code(process.wait().await)
        }
    }
}

fn code(status: Option<ExitStatus>) -> i32 {
    let by_signal = |status: ExitStatus| status.signal().map(|signal| signal.saturating_add(128));
    status.and_then(|status| status.code().or_else(|| by_signal(status))).unwrap_or(255)
}

/// Runs all probes of a container; ends when the startup or the liveness probe has failed.
async fn probe(place: &Place<'_>, board: &Board, container: &Container) {
    let check = |probe: Option<&_>| {
        let probe = probe?;
        match Check::new(container, probe, place.sandbox.address) {
            Ok(check) => Some(check),
            Err(Trouble::Never(message) | Trouble::NotYet(message)) => {
                place.host.faults.add(format!("{}: {message}", key(place, container)));
                None
            }
        }
    };
    if container.startup_probe.is_some() && !passes(check(container.startup_probe.as_ref())).await {
        return;
    }
    board.container(&container.name, |status| {
        status.started = true;
        status.ready = container.readiness_probe.is_none();
    });
    let readiness = async {
        if let Some(check) = check(container.readiness_probe.as_ref()) {
            check.watch(|ready| board.container(&container.name, |status| status.ready = ready)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = readiness => {}
        () = fails(check(container.liveness_probe.as_ref())) => {}
    }
}

/// Waits for the first verdict of a probe; without one it is never given.
async fn passes(check: Option<Check>) -> bool {
    let Some(check) = check else { return std::future::pending().await };
    let (sender, mut verdict) = watch::channel(None);
    tokio::select! {
        () = check.watch(|is| {
            sender.send_replace(Some(is));
        }) => false,
        is = verdict.wait_for(Option::is_some) => is.is_ok_and(|is| *is == Some(true)),
    }
}

/// Waits until a probe fails; without one it never does.
async fn fails(check: Option<Check>) {
    let Some(check) = check else { return std::future::pending().await };
    let (sender, mut verdict) = watch::channel(true);
    tokio::select! {
        () = check.watch(|is| {
            sender.send_replace(is);
        }) => {}
        _ = verdict.wait_for(|alive| !alive) => {}
    }
}
