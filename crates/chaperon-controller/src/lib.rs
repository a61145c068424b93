//! chaperon-controller.
