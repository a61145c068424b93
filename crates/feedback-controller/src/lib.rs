//! feedback-controller.
