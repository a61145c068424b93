//! What is read from a `clouds.yaml`, and what is written into one.

use super::{Config, base, group};
use serde_json::json;

#[test]
fn an_application_credential_wins_over_a_password() {
    let text = "clouds: {gx: {auth: {auth_url: 'https://k:5000', application_credential_id: i, application_credential_secret: s, username: u}, region_name: R, interface: internal}}";
    let config = Config::parse(text, "gx", None).unwrap();
    assert_eq!(config.auth["identity"]["application_credential"], json!({"id": "i", "secret": "s"}));
    assert_eq!((config.region.as_deref(), config.interface.as_str()), (Some("R"), "internal"));
    assert_eq!(Config::parse(text, "gx", Some("Q")).unwrap().region.as_deref(), Some("Q"));
}

#[test]
fn a_password_is_scoped_to_its_project() {
    let text = "clouds: {gx: {auth: {auth_url: 'https://k/v3/', username: u, password: p, project_name: q, user_domain_name: d}}}";
    let config = Config::parse(text, "gx", None).unwrap();
    assert_eq!(config.auth["scope"]["project"], json!({"name": "q", "domain": {"id": "default"}}));
    assert_eq!(config.auth["identity"]["password"]["user"]["domain"], json!({"name": "d"}));
}

#[test]
fn what_cannot_be_used_is_said_without_its_secrets() {
    for text in
        ["clouds: {}", "clouds: {gx: {auth: {auth_url: 'https://k', password: verysecret}}}", "verysecret: ["]
    {
        let error = Config::parse(text, "gx", None).unwrap_err().to_string();
        assert!(!error.contains("verysecret"), "{error}");
    }
}

#[test]
fn the_address_of_keystone_has_its_version_once() {
    assert_eq!(base("https://k:5000"), "https://k:5000/v3");
    assert_eq!(base("https://k:5000/v3/"), "https://k:5000/v3");
}

#[test]
fn what_is_written_for_a_cluster_is_read_as_it_was_meant() {
    let text = "clouds: {gx: {auth: {auth_url: 'https://k:5000', application_credential_id: i, application_credential_secret: s}, region_name: R}}";
    let config = Config::parse(text, "gx", None).unwrap();
    let written = config.clouds_yaml("openstack", ("new", "secret"));
    let read = Config::parse(&written, "openstack", None).unwrap();
    assert_eq!(read.auth["identity"]["application_credential"], json!({"id": "new", "secret": "secret"}));
    assert_eq!(read.region.as_deref(), Some("R"));
}

#[test]
fn an_older_nova_has_a_list_of_policies() {
    assert_eq!(group(&json!({"id": "i", "name": "n", "policies": ["affinity"]})).policy, "affinity");
    assert_eq!(group(&json!({"id": "i", "name": "n", "policy": "anti-affinity"})).policy, "anti-affinity");
}
