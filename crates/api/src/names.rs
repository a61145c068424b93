//! Names that several services compute alike.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Longest value of a label.
const LABEL_VALUE: usize = 63;
/// Longest name of an object.
const OBJECT_NAME: usize = 253;
/// A hyphen and ten hexadecimal digits.
const SUFFIX: usize = 11;

/// First ten hexadecimal digits of the SHA-256 of a key.
#[must_use]
pub fn short_hash(key: &str) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(key.as_bytes()).iter().take(5) {
        // Writing into a String cannot fail.
        let _written = write!(digits, "{byte:02x}");
    }
    digits
}

/// One part of a derived name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// The same in every name of this form.
    Constant(&'a str),
    /// Always there.
    Required(&'a str),
    /// May be empty.
    Optional(&'a str),
}

impl<'a> Part<'a> {
    fn text(self) -> &'a str {
        match self {
            Part::Constant(text) | Part::Required(text) | Part::Optional(text) => text,
        }
    }
}

/// Joins parts by hyphens, with a hash where two different lists of parts could give one name or where the
/// name would be longer than `limit` bytes.
///
/// The rule is the wire contract's: other installations compute the same names.
#[must_use]
pub fn derive(limit: usize, parts: &[Part<'_>]) -> String {
    let texts: Vec<&str> = parts.iter().map(|part| part.text()).collect();
    let joined = texts.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("-");
    let variable = parts.iter().filter(|part| !matches!(part, Part::Constant(_))).count();
    let hyphen = parts.iter().any(|part| !matches!(part, Part::Constant(_)) && part.text().contains('-'));
    let optional = parts.iter().filter(|part| matches!(part, Part::Optional(_))).count();
    let empty = texts.iter().any(|text| text.is_empty());
    let ambiguous = (hyphen && variable > 1) || (empty && optional > 1);
    if !ambiguous && joined.len() <= limit {
        return joined;
    }
    format!("{}-{}", shortened(&joined, limit - SUFFIX), short_hash(&texts.join("/")))
}

/// At most `limit` bytes of a text, without a trailing hyphen or dot where it was cut.
fn shortened(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let cut = (0..=limit).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text.get(..cut).unwrap_or_default().trim_end_matches(['-', '.'])
}

/// The virtual node of a Target (`namespace` not empty) or ClusterTarget.
#[must_use]
pub fn virtual_node(namespace: &str, name: &str) -> String {
    derive(OBJECT_NAME, &[Part::Constant("admiralty"), Part::Optional(namespace), Part::Required(name)])
}

/// The finalizer that older releases used for a Target; read in order to free it.
#[must_use]
pub fn legacy_finalizer(namespace: &str, name: &str) -> String {
    let part = derive(LABEL_VALUE, &[Part::Optional(namespace), Part::Required(name)]);
    format!("{}{part}", crate::keys::PREFIX)
}

/// The RoleBinding of a Source, in the Source's namespace.
#[must_use]
pub fn source_role_binding(name: &str) -> String {
    derive(OBJECT_NAME, &[Part::Constant("admiralty-source"), Part::Required(name)])
}

/// The ClusterRoleBinding of a ClusterSource.
#[must_use]
pub fn cluster_source_binding(name: &str) -> String {
    derive(OBJECT_NAME, &[Part::Constant("admiralty-cluster-source"), Part::Required(name)])
}

/// The ClusterRoleBinding by which a Source may read the ClusterSummary.
#[must_use]
pub fn source_summary_binding(namespace: &str, name: &str) -> String {
    derive(
        OBJECT_NAME,
        &[
            Part::Constant("admiralty-source"),
            Part::Required(namespace),
            Part::Required(name),
            Part::Constant("cluster-summary-viewer"),
        ],
    )
}

/// The ClusterRoleBinding by which a ClusterSource may read the ClusterSummary.
#[must_use]
pub fn cluster_source_summary_binding(name: &str) -> String {
    derive(
        OBJECT_NAME,
        &[
            Part::Constant("admiralty-cluster-source"),
            Part::Required(name),
            Part::Constant("cluster-summary-viewer"),
        ],
    )
}

/// The PodChaperon, and so the delegate, of a proxy pod behind a virtual node.
///
/// At most 63 bytes, so that it serves as a label value and a host name. Equal input gives the equal name,
/// so that a repeated create finds its own work.
#[must_use]
pub fn chaperon(pod_name: &str, pod_uid: &str, virtual_node: &str) -> String {
    let hash = short_hash(&format!("{pod_uid}/{virtual_node}"));
    format!("{}-{hash}", shortened(pod_name, LABEL_VALUE - SUFFIX))
}

/// The Lease by which a source shows a target that it is there.
#[must_use]
pub fn fence_lease(source_uid: &str) -> String {
    format!("multicluster-fence-{source_uid}")
}

/// A name as a label value: itself when it is short enough, else cut with a hash.
#[must_use]
pub fn label_value(name: &str) -> String {
    if name.len() <= LABEL_VALUE {
        return name.to_owned();
    }
    format!("{}-{}", shortened(name, LABEL_VALUE - SUFFIX), short_hash(name))
}

#[cfg(test)]
mod tests {
    use super::{
        Part, chaperon, cluster_source_binding, cluster_source_summary_binding, derive, label_value,
        legacy_finalizer, source_role_binding, source_summary_binding, virtual_node,
    };

    #[track_caller]
    fn check(got: &str, want: &str) {
        assert_eq!(got, want);
    }

    #[test]
    fn virtual_nodes_have_the_published_names() {
        check(&virtual_node("default", "c2"), "admiralty-default-c2");
        check(&virtual_node("team-a", "c2"), "admiralty-team-a-c2-d2b2a8a1b2");
        check(&virtual_node("default", "eu-west-3-1"), "admiralty-default-eu-west-3-1-8984c76b96");
        check(&virtual_node("", "foo"), "admiralty-foo");
        check(&virtual_node("", "us-west"), "admiralty-us-west-11cc7aa062");
        check(&virtual_node("", "default-c2"), "admiralty-default-c2-52df96acd6");
        let long = "a".repeat(70);
        check(&virtual_node("default", &long), &format!("admiralty-default-{long}"));
    }

    #[test]
    fn finalizers_of_older_releases_have_the_published_names() {
        let p = crate::keys::PREFIX;
        check(&legacy_finalizer("default", "c2"), &format!("{p}default-c2"));
        check(&legacy_finalizer("team-a", "c2"), &format!("{p}team-a-c2-0ba4508354"));
        check(&legacy_finalizer("default", "eu-west-3-1"), &format!("{p}default-eu-west-3-1-707ea16b4a"));
        check(&legacy_finalizer("", "foo"), &format!("{p}foo"));
        check(&legacy_finalizer("", "us-west"), &format!("{p}us-west-dab4e7b425"));
        check(&legacy_finalizer("", "default-c2"), &format!("{p}default-c2-1c77ffc30f"));
        let cut = "a".repeat(44);
        check(&legacy_finalizer("default", &"a".repeat(70)), &format!("{p}default-{cut}-52ebe1aa34"));
    }

    #[test]
    fn bindings_of_sources_have_the_published_names() {
        check(&source_role_binding("my-src"), "admiralty-source-my-src");
        check(
            &source_summary_binding("default", "cluster1"),
            "admiralty-source-default-cluster1-cluster-summary-viewer",
        );
        check(
            &source_summary_binding("team-a", "cluster1"),
            "admiralty-source-team-a-cluster1-cluster-summary-viewer-0c63aba1e9",
        );
        check(&cluster_source_binding("my-src"), "admiralty-cluster-source-my-src");
        check(
            &cluster_source_summary_binding("my-src"),
            "admiralty-cluster-source-my-src-cluster-summary-viewer",
        );
    }

    #[test]
    fn derived_names_follow_the_published_vectors() {
        let two = |a, b| derive(63, &[Part::Required(a), Part::Required(b)]);
        check(&two("default", "foo"), "default-foo");
        check(&two("default", "foo-bar"), "default-foo-bar-b1f5f88a38");
        check(&two("default-foo", "bar"), "default-foo-bar-ce0b03a405");
        check(&derive(63, &[Part::Constant("prefix"), Part::Required("foo-bar")]), "prefix-foo-bar");
        let optional = |a, b| derive(63, &[Part::Optional(a), Part::Optional(b)]);
        check(&optional("", "foo"), "foo-6f64c6e626");
        check(&optional("foo", ""), "foo-14fe48f0fb");
    }

    #[test]
    fn chaperons_of_one_pod_differ_by_target_and_fit_into_a_label() {
        let long = "x".repeat(253);
        let one = chaperon(&long, "uid", "admiralty-a");
        assert_ne!(one, chaperon(&long, "uid", "admiralty-b"));
        assert_eq!(one, chaperon(&long, "uid", "admiralty-a"));
        assert_eq!(one.len(), 63);
        assert!(chaperon("web-0", "uid", "n").starts_with("web-0-"));
    }

    #[test]
    fn w43_a_long_target_name_still_makes_a_label() {
        assert_eq!(label_value("short"), "short");
        assert_eq!(label_value(&"n".repeat(200)).len(), 63);
    }
}
