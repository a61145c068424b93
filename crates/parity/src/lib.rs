//! Compares the decisions of crate `scheduling` with upstream's kube-scheduler.
//!
//! Test-only: no service depends on it. [`generate`] makes random clusters and pods, the referee (a Go program beside
//! the control plane's that links upstream's scheduler unmodified) says what upstream decides about them, `ours`
//! says what this project decides, and [`compare`] finds every difference: the verdict, each plugin's no to each
//! node with its reasons, the weighted sum of scores of each node, the nodes that may be chosen, and the words for
//! users. Nothing that is expected is stored; both sides run in the same command.

pub mod answer;
pub mod compare;
pub mod generate;
mod live;
pub mod mutants;
mod ours;
pub mod random;
pub mod referee;
pub mod run;
pub mod shrink;
pub mod table;
