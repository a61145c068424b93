//! Log lines.

use crate::args::{CommonArgs, LogFormat};
use tracing_subscriber::EnvFilter;

/// Installs the subscriber of this process.
///
/// # Errors
///
/// The filter cannot be parsed, or a subscriber is installed already.
pub fn install(args: &CommonArgs) -> anyhow::Result<()> {
    let mut filter = EnvFilter::try_new(&args.log_filter)?;
    // The client logs each failed connection as an error; whoever called it logs what that means.
    if !args.log_filter.contains("kube_client") {
        filter = filter.add_directive("kube_client=off".parse()?);
    }
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
        LogFormat::Text => builder.compact().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("cannot install the log subscriber: {error}"))
}
