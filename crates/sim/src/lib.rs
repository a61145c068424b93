//! The whole placement protocol in one process: all services as shipped, in one in-memory world of clusters.
//!
//! The services run unchanged, each over a client whose network is this crate: requests, answers and watch events
//! wait in the world until it lets them arrive, late, never, or after the process that sent them is dead. API
//! servers, kubelets, owners and the controllers of Kubernetes are modelled. Time is virtual: a world of minutes
//! takes milliseconds. Everything follows from one seed.

pub mod bugs;
pub mod cluster;
pub mod hunt;
pub mod plan;
pub mod process;
pub mod recorder;
pub mod shrink;
pub mod wire;
pub mod world;

#[cfg(test)]
mod tests;
