//! webhook.
