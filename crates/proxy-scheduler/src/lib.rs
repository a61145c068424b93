//! proxy-scheduler.
