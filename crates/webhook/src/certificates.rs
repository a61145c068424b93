//! The webhook's own certificates: what to renew and when ([`plan`]), how they are made and kept
//! ([`material`]), and how they are served while they change ([`serving`]).

pub mod material;
pub mod plan;
pub mod serving;
