//! Turns elected pods into proxy pods, and judges Targets, Sources and what users write with our keys.
//!
//! # Watches
//!
//! Its own Secret and the two webhook configurations of its name. Reviews come from the API server.
//!
//! # Writes
//!
//! | object | what | how |
//! |---|---|---|
//! | pods, at admission | manifest and proof, finalizer, label, scheduler, constraints, grace period | JSON patch in the answer ([`mutate`]) |
//! | its Secret | authorities, serving certificate, keys | POST; merge patch with resourceVersion ([`keeper`]) |
//! | webhook configurations | `caBundle` | JSON patch where it differs ([`publish`]) |
//!
//! # Never
//!
//! Changes an object that exists, reads pods or Secrets of others, decodes a pod into types, elects a pod of
//! a DaemonSet, with a node, of a kubelet's file or controlled by a PodChaperon, lets pass a manifest that it
//! did not write for the very request, or serves a certificate whose authority is not published.
//!
//! # Rights
//!
//! | scope | group | resource | verbs | names | why |
//! |---|---|---|---|---|---|
//! | release namespace | core | secrets | create | – | makes its Secret |
//! | release namespace | core | secrets | get, list, watch, patch | `--secret-name` | follows and rotates it |
//! | cluster | admissionregistration.k8s.io | mutatingwebhookconfigurations | get, list, watch, patch | `--configuration-name` | publishes its authorities |
//! | cluster | admissionregistration.k8s.io | validatingwebhookconfigurations | get, list, watch, patch | `--configuration-name` | the same |
//!
//! With `--certificate-dir` the cluster-wide rights are not used.
//!
//! # Replicas
//!
//! Any number; all serve, none leads. They share the Secret: certificates, and the key by which one knows a
//! manifest that another has written earlier in the same request.

pub mod args;
pub mod certificates;
pub mod constraints;
pub mod controller;
pub mod election;
pub mod error;
pub mod keeper;
pub mod mac;
pub mod metrics;
pub mod mutate;
pub mod patch;
pub mod publish;
pub mod review;
pub mod server;
pub mod validate;
