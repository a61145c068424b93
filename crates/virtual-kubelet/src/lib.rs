//! virtual-kubelet.
