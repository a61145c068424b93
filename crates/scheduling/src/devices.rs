//! Devices that drivers have, and the claims by which pods get them (dynamic resource allocation).
//!
//! [`Devices`] holds all of it. [`allocate`] finds, for claims and one node, the devices that upstream's allocator
//! would choose, in the same order.

mod access;
mod allocation;
mod allocator;
mod capacity;
mod claim;
mod class;
mod common;
mod event;
mod plan;
mod pool;
mod result;
mod selector;
mod slice;
mod store;
#[cfg(test)]
mod tests;
mod values;

pub use allocation::{Allocated, Allocation, Given};
pub(crate) use allocator::{Failed, allocate};
pub use claim::{FINALIZER, ResourceClaim};
pub(crate) use claim::{Request, Wish};
pub use class::{DeviceClass, DeviceClasses};
pub use event::DeviceEvent;
pub use plan::{ClaimPlan, ClaimWork, Step, deallocation};
pub use slice::{DeviceId, PoolId, ResourceSlice};
pub use store::{DeviceTaintRule, Devices};
