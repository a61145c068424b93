//! Which versions there are, from all ReleaseCatalogs of the cluster.

use api::provisioning::{AddonName, AddonVersion, Release, ReleaseCatalogSpec, Support, WorkloadClusterSpec};
use std::collections::BTreeSet;

/// All catalogues as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalog {
    releases: Vec<Release>,
    addons: Vec<AddonVersion>,
}

/// Why the catalogue does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No version fits.
    #[error("no catalogue has a version for {wanted}; it has {known}")]
    NoVersion {
        /// What is wanted.
        wanted: String,
        /// What there is.
        known: String,
    },
    /// The version is a preview.
    #[error("{0} is a preview; set kubernetes.allowPreview to use it")]
    Preview(String),
    /// The version is not for new clusters any more.
    #[error("{0} is at its end; only clusters that have it may keep it")]
    Ended(String),
    /// No version of an add-on fits.
    #[error("no catalogue has {addon} in version {version} for Kubernetes {kubernetes}")]
    NoAddon {
        /// Which add-on.
        addon: &'static str,
        /// Which version.
        version: String,
        /// For which version of Kubernetes.
        kubernetes: String,
    },
}

fn numbers(version: &str) -> Vec<u64> {
    let plain = version.trim_start_matches('v');
    let plain = plain.split(['-', '+']).next().unwrap_or_default();
    plain.split('.').map(|part| part.parse().unwrap_or_default()).collect()
}

impl Catalog {
    /// Reads catalogues, in the order of their names, as one.
    #[must_use]
    pub fn of(catalogs: impl IntoIterator<Item = ReleaseCatalogSpec>) -> Self {
        let mut all = Self::default();
        let (mut releases, mut addons) = (BTreeSet::new(), BTreeSet::new());
        for catalog in catalogs {
            all.releases.extend(
                catalog.kubernetes.into_iter().filter(|release| releases.insert(release.version.clone())),
            );
            all.addons.extend(
                catalog.addons.into_iter().filter(|addon| addons.insert((addon.name, addon.version.clone()))),
            );
        }
        all
    }

    /// The entry of a version.
    #[must_use]
    pub fn release(&self, version: &str) -> Option<&Release> {
        self.releases.iter().find(|release| release.version == version)
    }

    /// The version that a spec means. What was decided before stays decided while the spec allows it, so that a
    /// longer catalogue replaces no node.
    ///
    /// # Errors
    ///
    /// No version fits, or the one that fits may not be used.
    pub fn version(&self, spec: &WorkloadClusterSpec, decided: Option<&str>) -> Result<String, Fault> {
        let wanted = &spec.kubernetes.version;
        let Some(minor) = wanted.strip_suffix('x') else {
            // A version that is written out needs no catalogue; one that lists it has a say.
            return match self.release(wanted) {
                Some(release) => usable(release, spec, decided),
                None => Ok(wanted.clone()),
            };
        };
        if let Some(decided) = decided.filter(|decided| decided.starts_with(minor)) {
            return Ok(decided.to_owned());
        }
        let newest = self
            .releases
            .iter()
            .filter(|release| release.version.starts_with(minor) && release.support != Support::End)
            .max_by_key(|release| numbers(&release.version));
        match newest {
            Some(release) => usable(release, spec, decided),
            None => {
                let known: Vec<&str> = self.releases.iter().map(|release| release.version.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Fault::NoVersion { wanted: wanted.clone(), known })
            }
        }
    }

    /// The entry of an add-on for a version of Kubernetes: the one that is named, or the newest.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn addon(&self, name: AddonName, version: &str, kubernetes: &str) -> Result<&AddonVersion, Fault> {
        let minor = |bound: &str| numbers(bound).get(1).copied().unwrap_or_default();
        let own = minor(kubernetes);
        let fits = |addon: &&AddonVersion| {
            addon.name == name
                && addon.from_kubernetes.as_deref().is_none_or(|bound| minor(bound) <= own)
                && addon.to_kubernetes.as_deref().is_none_or(|bound| own <= minor(bound))
                && (version == "auto" || numbers(&addon.version) == numbers(version))
        };
        let newest = self.addons.iter().filter(fits).max_by_key(|addon| numbers(&addon.version));
        newest.ok_or_else(|| Fault::NoAddon {
            addon: name.as_str(),
            version: version.to_owned(),
            kubernetes: kubernetes.to_owned(),
        })
    }
}

fn usable(release: &Release, spec: &WorkloadClusterSpec, decided: Option<&str>) -> Result<String, Fault> {
    let version = release.version.clone();
    let has_it = decided == Some(version.as_str());
    match release.support {
        Support::Supported => Ok(version),
        Support::Preview if spec.kubernetes.allow_preview || has_it => Ok(version),
        Support::Preview => Err(Fault::Preview(version)),
        Support::End if has_it => Ok(version),
        Support::End => Err(Fault::Ended(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Catalog, Fault};
    use api::provisioning::{
        AddonName, AddonVersion, Kubernetes, Release, ReleaseCatalogSpec, Support, WorkloadClusterSpec,
    };

    fn release(version: &str, support: Support) -> Release {
        Release { version: version.to_owned(), support, image: None }
    }

    fn addon(version: &str, from: Option<&str>, to: Option<&str>) -> AddonVersion {
        AddonVersion {
            name: AddonName::CinderCsi,
            version: version.to_owned(),
            from_kubernetes: from.map(str::to_owned),
            to_kubernetes: to.map(str::to_owned),
            manifests: Vec::new(),
        }
    }

    fn catalog() -> Catalog {
        let own = ReleaseCatalogSpec {
            kubernetes: vec![
                release("v1.32.9", Support::End),
                release("v1.33.4", Support::Supported),
                release("v1.33.10", Support::Supported),
                release("v1.34.0", Support::Preview),
            ],
            addons: vec![
                addon("v1.33.0", None, Some("1.33")),
                addon("v1.34.0", Some("1.34"), None),
                addon("v1.34.2", Some("1.34"), None),
            ],
        };
        Catalog::of([own])
    }

    #[track_caller]
    fn check(wanted: &str, decided: Option<&str>, want: Result<&str, &str>) {
        let kubernetes = Kubernetes { version: wanted.to_owned(), allow_preview: false };
        let spec = WorkloadClusterSpec { kubernetes, ..WorkloadClusterSpec::default() };
        let got = catalog().version(&spec, decided);
        match want {
            Ok(version) => assert_eq!(got.as_deref(), Ok(version)),
            Err(word) => {
                assert!(got.as_ref().is_err_and(|fault| fault.to_string().contains(word)), "{got:?}");
            }
        }
    }

    #[test]
    fn an_x_is_the_newest_patch_by_number() {
        check("v1.33.x", None, Ok("v1.33.10"));
    }

    #[test]
    fn what_was_decided_stays_although_the_catalogue_has_grown() {
        check("v1.33.x", Some("v1.33.4"), Ok("v1.33.4"));
    }

    #[test]
    fn another_minor_version_is_decided_anew() {
        check("v1.33.x", Some("v1.32.9"), Ok("v1.33.10"));
    }

    #[test]
    fn an_unknown_minor_version_is_refused_with_the_known_ones() {
        check("v1.40.x", None, Err("v1.33.10"));
    }

    #[test]
    fn a_version_that_is_written_out_needs_no_catalogue() {
        check("v1.35.1", None, Ok("v1.35.1"));
    }

    #[test]
    fn a_preview_is_taken_only_by_those_who_say_so() {
        check("v1.34.x", None, Err("preview"));
        check("v1.34.0", None, Err("preview"));
        check("v1.34.0", Some("v1.34.0"), Ok("v1.34.0"));
    }

    #[test]
    fn a_version_at_its_end_is_kept_and_not_begun() {
        check("v1.32.9", None, Err("at its end"));
        check("v1.32.9", Some("v1.32.9"), Ok("v1.32.9"));
    }

    #[test]
    fn the_first_of_two_catalogues_counts() {
        let first =
            ReleaseCatalogSpec { kubernetes: vec![release("v1.33.4", Support::End)], ..Default::default() };
        let second = ReleaseCatalogSpec {
            kubernetes: vec![release("v1.33.4", Support::Supported)],
            ..Default::default()
        };
        let both = Catalog::of([first, second]);
        assert_eq!(both.release("v1.33.4").map(|found| found.support), Some(Support::End));
    }

    #[test]
    fn an_add_on_follows_the_version_of_kubernetes() {
        let catalog = catalog();
        let of = |version, kubernetes| {
            catalog.addon(AddonName::CinderCsi, version, kubernetes).map(|found| found.version.as_str())
        };
        assert_eq!(of("auto", "v1.33.4"), Ok("v1.33.0"));
        assert_eq!(of("auto", "v1.34.0"), Ok("v1.34.2"));
        assert_eq!(of("1.34.0", "v1.34.0"), Ok("v1.34.0"));
        assert!(matches!(of("v9.9.9", "v1.34.0"), Err(Fault::NoAddon { .. })));
    }
}
