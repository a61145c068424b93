//! The program of test pods: it answers over HTTP and tells what its container and its account can do.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// What the guest does.
#[derive(Debug, Clone, Parser)]
struct Args {
    /// Where it listens.
    #[arg(long, env = "GUEST_LISTEN", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// Ends by itself after so many milliseconds.
    #[arg(long)]
    exit_after_ms: Option<u64>,
    /// The exit code with which it ends by itself.
    #[arg(long, default_value_t = 0)]
    exit_code: u8,
    /// How many milliseconds it needs to stop after SIGTERM.
    #[arg(long, default_value_t = 0)]
    stop_after_ms: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut term = signal(SignalKind::terminate()).context("cannot listen to SIGTERM")?;
    let own_end = async {
        match args.exit_after_ms {
            Some(after) => tokio::time::sleep(Duration::from_millis(after)).await,
            None => std::future::pending().await,
        }
    };
    let listener = tokio::net::TcpListener::bind(args.listen).await.context("cannot listen")?;
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/api", get(api))
        .route("/connect", get(connect))
        .route("/describe", get(describe))
        .with_state(args.clone());
    tokio::select! {
        served = axum::serve(listener, router) => served.context("cannot serve").map(|()| ExitCode::FAILURE),
        () = own_end => Ok(ExitCode::from(args.exit_code)),
        _ = term.recv() => {
            tokio::time::sleep(Duration::from_millis(args.stop_after_ms)).await;
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[derive(Debug, Deserialize)]
struct Path {
    path: String,
}

/// The status code of a GET of the cluster's API server with the pod's own ServiceAccount token.
async fn api(Query(Path { path }): Query<Path>) -> Result<String, (StatusCode, String)> {
    let failed = |error: String| (StatusCode::BAD_GATEWAY, error);
    drop(rustls::crypto::ring::default_provider().install_default());
    let config = Config::incluster().map_err(|error| failed(error.to_string()))?;
    let client = Client::try_from(config).map_err(|error| failed(error.to_string()))?;
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    match client.request_text(request).await {
        Ok(_) => Ok("200".into()),
        Err(kube::Error::Api(status)) => Ok(status.code.to_string()),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[derive(Debug, Deserialize)]
struct Address {
    address: SocketAddr,
}

/// Whether the pod reaches an address.
async fn connect(Query(Address { address }): Query<Address>) -> &'static str {
    let connection = tokio::net::TcpStream::connect(address);
    match tokio::time::timeout(Duration::from_secs(1), connection).await {
        Ok(Ok(_)) => "reached",
        Ok(Err(_)) => "refused",
        Err(_) => "silent",
    }
}

#[derive(Debug, Deserialize)]
struct File {
    file: Option<String>,
}

/// What the container looks like from the inside.
async fn describe(State(args): State<Args>, Query(File { file }): Query<File>) -> Json<Value> {
    let env: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    let status = tokio::fs::read_to_string("/proc/self/status").await.unwrap_or_default();
    let user =
        status.lines().find_map(|line| line.strip_prefix("Uid:\t")?.split('\t').next().map(str::to_owned));
    let content = match file {
        Some(file) => tokio::fs::read_to_string(file).await.ok(),
        None => None,
    };
    let can_write = tokio::fs::write("/written", "x").await.is_ok();
    let has_tools = ["/bin/sh", "/usr/bin/env"].iter().any(|tool| std::path::Path::new(tool).exists());
    Json(
        json!({"env": env, "user": user, "content": content, "canWriteRoot": can_write, "hasTools": has_tools,
        "listen": args.listen.to_string()}),
    )
}
