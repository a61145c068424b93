//! Keeps a certificate in place, beside everything else: nothing waits for it.

use super::make::{self, Request, USAGES};
use super::plan::{Answer, Seen, Step, Validity, plan};
use crate::kubelet::metrics::Metrics;
use crate::kubelet::serving::{Hot, certified};
use api::names;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use runtime::{CancellationToken, Chain, Class, Clock, class};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// Who made a request.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "multicluster-virtual-kubelet");
/// For which pod.
const POD: &str = "multicluster-scheduler.io/pod";
/// A request of a pod that is gone is deleted when it is this old, in seconds.
const OLD: i64 = 3600;
/// After a failed call.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether the API server can be expected to trust what we show it, as a node's condition says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl State {
    fn own(reason: &'static str, why: &str) -> Self {
        let message = format!(
            "logs, exec, attach and port-forward are served with a certificate of our own, which an API server \
             accepts that does not verify kubelets: {why}"
        );
        Self { status: "Unknown", reason, message }
    }

    /// Before the signer was asked.
    pub(crate) fn initial() -> Self {
        Self::own("SelfSigned", "the signer was not asked yet")
    }
}

/// Whom to ask, and for what.
#[derive(Debug, Clone)]
pub(crate) struct Wishes {
    /// Empty: nobody is asked.
    pub(crate) signer: String,
    pub(crate) approve: bool,
    pub(crate) lifetime_seconds: i32,
    pub(crate) pod: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// The cluster's authorities as far as we know, in DER.
    pub(crate) authorities: Vec<Vec<u8>>,
}

struct Asked {
    name: String,
    since: i64,
    request: Request,
}

/// The loop and what it remembers.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) wishes: Wishes,
    pub(crate) hot: Hot,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    pub(crate) state: watch::Sender<State>,
}

#[derive(Default)]
struct Memory {
    held: Option<Validity>,
    asked: Option<Asked>,
    refused: Option<i64>,
    /// Why we cannot approve.
    cannot_approve: Option<String>,
}

impl Keeper {
    /// Shows a certificate of our own at once, then one of the signer's as soon as there is one.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        self.show_own();
        if self.wishes.signer.is_empty() {
            self.state.send_replace(State::own("NoSigner", "no signer is configured"));
            return;
        }
        let mut memory = Memory::default();
        loop {
            let pause = match self.round(&mut memory).await {
                Ok(pause) => pause,
                Err(error) => {
                    debug!(error = %Chain(&error), "cannot see to the serving certificate; trying again");
                    if memory.held.is_none() {
                        let why = format!("{}", Chain(&error));
                        self.tell(State::own("SignerUnreachable", &why));
                    }
                    AGAIN
                }
            };
            tokio::select! { () = stop.cancelled() => return, () = tokio::time::sleep(pause) => () }
        }
    }

    fn tell(&self, state: State) {
        self.state.send_if_modified(|old| {
            let changed = *old != state;
            if changed {
                warn_or_info(&state);
                *old = state;
            }
            changed
        });
    }

    fn show_own(&self) {
        let made = make::own(&self.wishes.addresses).map_err(|error| error.to_string());
        let shown = made.and_then(|(key, chain)| certified(chain.as_bytes(), key.as_bytes()));
        match shown {
            Ok(shown) => self.hot.set(shown),
            Err(error) => warn!(error, "cannot make a certificate of our own"),
        }
    }

    fn requests(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.client.clone())
    }

    /// One look and one step.
    async fn round(&self, memory: &mut Memory) -> Result<Duration, kube::Error> {
        let now = self.clock.now().as_second();
        let current = match &memory.asked {
            Some(asked) => self.requests().get_opt(&asked.name).await?,
            None => None,
        };
        let asked = memory.asked.as_ref().map(|asked| (asked.since, answer(current.as_ref())));
        let approves = self.wishes.approve && memory.cannot_approve.is_none();
        let seen = Seen { now, held: memory.held, asked, refused: memory.refused, approves };
        let (step, pause) = plan(&seen);
        match step {
            Step::Nothing => self.explain(memory, seen),
            Step::Ask => self.ask(memory, now).await?,
            Step::Approve => self.approve(memory).await,
            Step::Take => self.take(memory, current).await,
            Step::Withdraw => {
                let why = current.map(|request| words(&request)).unwrap_or_default();
                self.forget(memory).await;
                memory.refused = Some(now);
                if memory.held.is_none() {
                    self.tell(State::own("SignerRefuses", &why));
                }
            }
        }
        Ok(Duration::from_secs(u64::try_from(pause).unwrap_or_default()).max(Duration::from_millis(200)))
    }

    fn explain(&self, memory: &Memory, seen: Seen) {
        let (None, Some((since, _))) = (memory.held, seen.asked) else { return };
        if seen.now < since + 5 {
            return;
        }
        let signer = &self.wishes.signer;
        let why = match &memory.cannot_approve {
            Some(error) => {
                format!("the request to {signer} waits for its approval, which we may not give: {error}")
            }
            None => format!("the signer {signer} has not answered yet"),
        };
        self.tell(State::own("SignerSilent", &why));
    }

    /// Deletes what is left of earlier requests, of this pod or of pods that are long gone, and asks.
    async fn ask(&self, memory: &mut Memory, now: i64) -> Result<(), kube::Error> {
        let pod = names::label_value(&self.wishes.pod);
        let requests = self.requests();
        let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
        for old in requests.list_metadata(&ours).await?.items {
            let made = old.creation_timestamp().map_or(now, |time| time.0.as_second());
            if old.labels().get(POD) == Some(&pod) || made + OLD < now {
                delete(&requests, &old.name_any()).await;
            }
        }
        let request = match make::request(&self.wishes.addresses) {
            Ok(request) => request,
            Err(error) => {
                warn!(%error, "cannot make a request for a certificate");
                memory.refused = Some(now);
                return Ok(());
            }
        };
        let object = CertificateSigningRequest {
            metadata: ObjectMeta {
                generate_name: Some("multicluster-virtual-kubelet-".to_owned()),
                labels: Some(
                    [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned()), (POD.to_owned(), pod)].into(),
                ),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.pem.clone().into_bytes()),
                signer_name: self.wishes.signer.clone(),
                usages: Some(USAGES.iter().map(|usage| (*usage).to_owned()).collect()),
                expiration_seconds: Some(self.wishes.lifetime_seconds),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let made = requests.create(&PostParams::default(), &object).await?;
        memory.asked = Some(Asked { name: made.name_any(), since: now, request });
        memory.cannot_approve = None;
        info!(object = made.name_any(), signer = self.wishes.signer, "asked for a serving certificate");
        Ok(())
    }

    async fn approve(&self, memory: &mut Memory) {
        let Some(asked) = &memory.asked else { return };
        let condition = json!({"type": "Approved", "status": "True", "reason": "VirtualKubelet",
            "message": "the virtual kubelet approves its own request"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let patched = self.requests().patch_approval(&asked.name, &PatchParams::default(), &patch).await;
        if let Err(error) = patched {
            match class(&error) {
                Class::NotFound | Class::Conflict | Class::Unreachable | Class::Overloaded => {
                    debug!(error = %Chain(&error), "cannot approve our request now");
                }
                Class::Forbidden | Class::Invalid | Class::Bug => {
                    memory.cannot_approve = Some(Chain(&error).to_string());
                }
            }
        }
    }

    async fn take(&self, memory: &mut Memory, current: Option<CertificateSigningRequest>) {
        let Some(asked) = &memory.asked else { return };
        let chain = current.and_then(|request| request.status?.certificate).unwrap_or_default().0;
        let (validity, shown) = (make::validity(&chain), certified(&chain, asked.request.key.as_bytes()));
        match (validity, shown) {
            (Some(validity), Ok(shown)) => {
                self.hot.set(shown);
                memory.held = Some(validity);
                memory.refused = None;
                #[expect(clippy::cast_precision_loss, reason = "seconds of this age of the world are exact")]
                self.metrics.expires.set(validity.not_after as f64);
                self.metrics.issued.set(1);
                self.tell(self.judge(&chain, validity));
            }
            (_, shown) => {
                let why = shown.err().unwrap_or_else(|| "what it issued is no certificate".to_owned());
                memory.refused = Some(self.clock.now().as_second());
                if memory.held.is_none() {
                    self.tell(State::own("SignerRefuses", &why));
                }
            }
        }
        self.forget(memory).await;
    }

    fn judge(&self, chain: &[u8], validity: Validity) -> State {
        let now = self.clock.now().as_second().max(validity.not_before);
        let signer = &self.wishes.signer;
        let address = self.wishes.addresses.first().copied();
        let known = address.is_some_and(|at| make::trusted(chain, at, &self.wishes.authorities, now));
        if known {
            let message = format!("{signer} issued the certificate for logs, exec, attach and port-forward");
            return State { status: "True", reason: "CertificateIssued", message };
        }
        let message = format!(
            "{signer} issued the certificate for logs, exec, attach and port-forward, but by another authority than \
             the cluster's; if they fail with an unknown authority, give the API server that one as \
             --kubelet-certificate-authority, or configure another signer"
        );
        State { status: "Unknown", reason: "CAUnknown", message }
    }

    async fn forget(&self, memory: &mut Memory) {
        if let Some(asked) = memory.asked.take() {
            delete(&self.requests(), &asked.name).await;
        }
    }
}

fn warn_or_info(state: &State) {
    let State { status, reason, message } = state;
    if *status == "True" {
        info!(reason, why = message, "the serving certificate has changed");
    } else {
        warn!(reason, why = message, "the serving certificate may not be trusted");
    }
}

fn answer(request: Option<&CertificateSigningRequest>) -> Answer {
    let Some(request) = request else { return Answer::Gone };
    let status = request.status.clone().unwrap_or_default();
    let has = |kind: &str| {
        status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    if status.certificate.is_some() {
        Answer::Issued
    } else if has("Denied") || has("Failed") {
        Answer::Refused
    } else {
        Answer::Waiting { approved: has("Approved") }
    }
}

/// Why a request was refused.
fn words(request: &CertificateSigningRequest) -> String {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let said: Vec<String> = conditions
        .filter(|condition| condition.type_ != "Approved")
        .map(|condition| format!("{}: {}", condition.type_, condition.message.as_deref().unwrap_or_default()))
        .collect();
    format!("the signer {} refused the request: {}", request.spec.signer_name, said.join(", "))
}

async fn delete(requests: &Api<CertificateSigningRequest>, name: &str) {
    match requests.delete(name, &DeleteParams::default()).await {
        Ok(_) => debug!(object = name, "deleted a request for a certificate"),
        Err(error) if class(&error) == Class::NotFound => {}
        Err(error) => {
            debug!(object = name, error = %Chain(&error), "cannot delete a request for a certificate");
        }
    }
}
