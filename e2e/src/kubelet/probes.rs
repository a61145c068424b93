//! Probes of containers.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::volumes::Trouble;

/// A probe that is ready to be asked.
#[derive(Debug, Clone)]
pub(super) struct Check {
    request: Option<String>,
    address: (Ipv4Addr, u16),
    delay: Duration,
    pub(super) period: Duration,
    patience: Duration,
    successes: i32,
    failures: i32,
}

impl Check {
    /// Reads a probe of a container.
    pub(super) fn new(container: &Container, probe: &Probe, pod: Ipv4Addr) -> Result<Self, Trouble> {
        let seconds = |value: Option<i32>, default: u64| {
            let given = value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
            Duration::from_secs(given.unwrap_or(default))
        };
        let (request, address) = if let Some(get) = &probe.http_get {
            if get.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
                return Err(Trouble::Never(format!("an HTTPS probe of {}", container.name)));
            }
            let host = match &get.host {
                Some(host) => {
                    host.parse().map_err(|error| Trouble::Never(format!("probe host {host}: {error}")))?
                }
                None => pod,
            };
            let path = get.path.as_deref().unwrap_or("/");
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-probe/harness\r\nConnection: close\r\n\r\n"
            );
            (Some(request), (host, port(container, &get.port)?))
        } else if let Some(socket) = &probe.tcp_socket {
            (None, (pod, port(container, &socket.port)?))
        } else {
            return Err(Trouble::Never(format!("the kind of a probe of {}", container.name)));
        };
        Ok(Self {
            request,
            address,
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            patience: seconds(probe.timeout_seconds, 1),
            successes: probe.success_threshold.unwrap_or(1).max(1),
            failures: probe.failure_threshold.unwrap_or(3).max(1),
        })
    }

    async fn ask(&self) -> bool {
        timeout(self.patience, self.exchange()).await.is_ok_and(|answer| answer.unwrap_or(false))
    }

    async fn exchange(&self) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(self.address).await?;
        let Some(request) = &self.request else { return Ok(true) };
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0_u8; 12];
        stream.read_exact(&mut head).await?;
        let code =
            std::str::from_utf8(&head).ok().and_then(|head| head.strip_prefix("HTTP/1.1 ")?.parse().ok());
        Ok(code.is_some_and(|code: u16| (200..400).contains(&code)))
    }

    /// Tells each change of the verdict, beginning with the first one, for ever.
    ///
    /// Until the first success it asks every half second, where a kubelet would let its period pass: this
    /// changes when a container is found ready, not whether.
    pub(super) async fn watch(&self, mut tell: impl FnMut(bool)) {
        sleep(self.delay).await;
        let (mut verdict, mut streak) = (None, 0_i32);
        let mut since_failure = Duration::ZERO;
        loop {
            let answer = self.ask().await;
            let pause = if verdict.is_none() && !answer { self.period.min(HURRY) } else { self.period };
            since_failure = if answer { Duration::ZERO } else { since_failure.saturating_add(pause) };
            streak = if verdict == Some(answer) { 0 } else { streak.saturating_add(1) };
            let enough = match (answer, verdict) {
                (true, _) => streak >= self.successes,
                (false, None) => since_failure >= self.period.saturating_mul(self.failures.unsigned_abs()),
                (false, Some(_)) => streak >= self.failures,
            };
            if enough && verdict != Some(answer) {
                verdict = Some(answer);
                streak = 0;
                tell(answer);
            }
            sleep(pause).await;
        }
    }
}

const HURRY: Duration = Duration::from_millis(500);

fn port(container: &Container, port: &IntOrString) -> Result<u16, Trouble> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            ports.filter(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port).next()
        }
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| Trouble::Never(format!("probe port {port:?} of container {}", container.name)))
}
