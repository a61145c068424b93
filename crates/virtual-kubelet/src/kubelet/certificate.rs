//! The serving certificate: asked of the cluster's signer, approved, renewed before it expires, and one of our
//! own as long as there is none.

pub(crate) mod keeper;
mod make;
mod plan;
