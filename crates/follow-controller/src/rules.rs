//! Which objects may follow, and which of their labels and annotations.

use crate::args::{FollowArgs, Services};
use crate::kinds::{ALL, Kind, Object};
use api::keys;
use regex::RegexSet;
use std::collections::{BTreeMap, BTreeSet};

/// Objects that every cluster has by itself.
const OF_EVERY_CLUSTER: [&str; 1] = ["configmaps/*/kube-root-ca.crt"];

/// Keys that tell a tool of the source about an object of the source: in a target the same tool would act on the
/// copy, order certificates for it, publish its names or prune it.
const STRIPPED: [&str; 17] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "acme.cert-manager.io/*",
    "cert-manager.io/*",
    "controller.cert-manager.io/*",
    "external-dns.alpha.kubernetes.io/*",
    "argocd.argoproj.io/*",
    "meta.helm.sh/*",
    "helm.sh/*",
    "helm.toolkit.fluxcd.io/*",
    "kustomize.toolkit.fluxcd.io/*",
    "app.kubernetes.io/managed-by",
    "objectset.rio.cattle.io/*",
    "reflector.v1.k8s.emberstack.com/*",
    "reloader.stakater.com/*",
    "pv.kubernetes.io/*",
    "volume.kubernetes.io/*",
    "volume.beta.kubernetes.io/*",
];

/// Types of Secrets that mean something in the cluster that made them alone.
const BOUND_TYPES: [&str; 3] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"];

/// What may follow.
#[derive(Debug)]
pub(crate) struct Rules {
    allow: Option<RegexSet>,
    deny: RegexSet,
    on_request: BTreeSet<Kind>,
    strip: RegexSet,
    services: Services,
    /// Whether Services are rerouted to delegates.
    pub(crate) reroutes: bool,
}

/// A flag that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRule {
    /// A pattern.
    #[error("{pattern:?} is not of the form kind/namespace/name, with a kind among {kinds}")]
    Pattern {
        /// As given.
        pattern: String,
        /// Those that exist.
        kinds: String,
    },
    /// A kind.
    #[error("{kind:?} is no kind that follows; there are {kinds}")]
    Kind {
        /// As given.
        kind: String,
        /// Those that exist.
        kinds: String,
    },
    /// Too many patterns.
    #[error("the patterns are too large together")]
    Size {
        /// What the compiler says.
        source: regex::Error,
    },
}

impl Rules {
    /// From flags.
    pub(crate) fn new(args: &FollowArgs) -> Result<Self, BadRule> {
        for pattern in args.allow.iter().chain(&args.deny) {
            check(pattern)?;
        }
        let on_request = args.on_request.iter().map(|word| kind(word)).collect::<Result<_, _>>()?;
        let builtin = |list: &[&str], more: &[String]| -> Vec<String> {
            list.iter().map(|&text| text.to_owned()).chain(more.iter().cloned()).collect()
        };
        Ok(Self {
            allow: (!args.allow.is_empty()).then(|| compile(&args.allow)).transpose()?,
            deny: compile(&builtin(&OF_EVERY_CLUSTER, &args.deny))?,
            on_request,
            strip: compile(&builtin(&STRIPPED, &args.strip))?,
            services: args.services,
            reroutes: args.services == Services::Global,
        })
    }

    /// Whether Services follow.
    pub(crate) fn has_services(&self) -> bool {
        self.services != Services::Off
    }

    /// Why an object may not follow, by its name and its annotation; `None` when it may.
    pub(crate) fn forbids(&self, object: &Object, annotation: Option<&str>) -> Option<&'static str> {
        let name = format!("{}/{}/{}", object.kind.plural(), object.namespace, object.name);
        if matches!(object.kind, Kind::Service | Kind::Ingress) && !self.has_services() {
            return Some("Services do not follow in this installation");
        }
        if annotation == Some(keys::NEVER) {
            return Some("its annotation says never");
        }
        if self.deny.is_match(&name) {
            return Some("it is on the list of those that do not");
        }
        if self.allow.as_ref().is_some_and(|allow| !allow.is_match(&name)) {
            return Some("it is not on the list of those that may");
        }
        let asked = annotation == Some(keys::FOLLOW_ALLOWED);
        (self.on_request.contains(&object.kind) && !asked)
            .then_some("objects of its kind follow only with annotation follow: allowed")
    }

    /// Labels or annotations that a copy gets.
    pub(crate) fn kept(&self, map: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let stays = |key: &&String| !keys::is_ours(key) && !self.strip.is_match(key);
        map.iter().filter(|(key, _)| stays(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Why a Secret of a type may not follow.
pub(crate) fn forbidden_type(kind: &str) -> Option<&'static str> {
    BOUND_TYPES.contains(&kind).then_some("a Secret of its type means something in its own cluster alone")
}

fn kinds() -> String {
    ALL.map(Kind::plural).join(", ")
}

fn kind(word: &str) -> Result<Kind, BadRule> {
    let found = ALL.into_iter().find(|kind| kind.plural() == word);
    found.ok_or_else(|| BadRule::Kind { kind: word.to_owned(), kinds: kinds() })
}

fn check(pattern: &str) -> Result<(), BadRule> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let kind = parts.first().copied().unwrap_or_default();
    let is_known = kind == "*" || ALL.iter().any(|known| known.plural() == kind);
    if parts.len() == 3 && is_known && parts.iter().all(|part| !part.is_empty()) {
        return Ok(());
    }
    Err(BadRule::Pattern { pattern: pattern.to_owned(), kinds: kinds() })
}

/// Patterns in which `*` stands for any text without a slash at the end of what it can reach.
fn compile(patterns: &[String]) -> Result<RegexSet, BadRule> {
    let expressions =
        patterns.iter().map(|pattern| format!("^{}$", regex::escape(pattern).replace("\\*", "[^/]*")));
    RegexSet::new(expressions).map_err(|source| BadRule::Size { source })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{BadRule, Rules, forbidden_type};
    use crate::args::{FollowArgs, Services};
    use crate::kinds::{Kind, Object};
    use std::collections::BTreeMap;

    pub(crate) fn args() -> FollowArgs {
        FollowArgs {
            cluster_name: String::new(),
            allow: Vec::new(),
            deny: Vec::new(),
            on_request: Vec::new(),
            strip: Vec::new(),
            services: Services::Global,
            linger_seconds: 10,
        }
    }

    fn secret(name: &str) -> Object {
        Object { kind: Kind::Secret, namespace: "team-a".into(), name: name.into() }
    }

    #[track_caller]
    fn check(args: &FollowArgs, object: &Object, annotation: Option<&str>, may: bool) {
        assert_eq!(Rules::new(args).unwrap().forbids(object, annotation).is_none(), may);
    }

    #[test]
    fn everything_follows_but_what_every_cluster_has() {
        check(&args(), &secret("a"), None, true);
        let root =
            Object { kind: Kind::ConfigMap, namespace: "team-a".into(), name: "kube-root-ca.crt".into() };
        check(&args(), &root, None, false);
    }

    #[test]
    fn an_object_can_refuse() {
        check(&args(), &secret("a"), Some("never"), false);
        check(&args(), &secret("a"), Some("allowed"), true);
    }

    #[test]
    fn lists_name_kind_namespace_and_name() {
        let listed = FollowArgs {
            allow: vec!["secrets/team-*/*".into()],
            deny: vec!["*/*/private-*".into()],
            ..args()
        };
        check(&listed, &secret("a"), None, true);
        check(&listed, &secret("private-key"), None, false);
        let other = Object { namespace: "other".into(), ..secret("a") };
        check(&listed, &other, None, false);
    }

    #[test]
    fn a_kind_can_follow_on_request_alone() {
        let asked = FollowArgs { on_request: vec!["secrets".into()], ..args() };
        check(&asked, &secret("a"), None, false);
        check(&asked, &secret("a"), Some("allowed"), true);
    }

    #[test]
    fn a_pattern_that_can_match_nothing_is_refused() {
        for bad in ["secrets", "pods/a/b", "secrets//x"] {
            let bad = FollowArgs { deny: vec![bad.to_owned()], ..args() };
            assert!(matches!(Rules::new(&bad), Err(BadRule::Pattern { .. })));
        }
        assert!(Rules::new(&FollowArgs { on_request: vec!["pods".into()], ..args() }).is_err());
    }

    #[test]
    fn case_131_what_tools_of_the_source_say_about_their_object_stays_there() {
        let rules = Rules::new(&FollowArgs { strip: vec!["example.com/*".into()], ..args() }).unwrap();
        let map: BTreeMap<String, String> = [
            "cert-manager.io/cluster-issuer",
            "external-dns.alpha.kubernetes.io/hostname",
            "argocd.argoproj.io/tracking-id",
            "kubectl.kubernetes.io/last-applied-configuration",
            "meta.helm.sh/release-name",
            "multicluster.admiralty.io/follow",
            "example.com/x",
            "team",
        ]
        .map(|key| (key.to_owned(), "1".to_owned()))
        .into();
        assert_eq!(rules.kept(&map).into_keys().collect::<Vec<_>>(), ["team"]);
    }

    #[test]
    fn case_076_tokens_of_the_source_do_not_follow() {
        assert!(forbidden_type("kubernetes.io/service-account-token").is_some());
        assert!(forbidden_type("kubernetes.io/tls").is_none());
    }
}
