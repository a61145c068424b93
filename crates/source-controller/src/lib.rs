//! source-controller.
