use super::{agreed, pass};
use http::{HeaderMap, HeaderValue};
use runtime::CancellationToken;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);

/// A caller, a container, and what passes between them.
fn passing(stop: &CancellationToken) -> (DuplexStream, DuplexStream, JoinHandle<()>) {
    let (caller, here) = duplex(1024);
    let (there, container) = duplex(1024);
    (caller, container, tokio::spawn(pass(here, there, stop.clone())))
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(count)
    .collect()
}

#[tokio::test]
async fn case_070_no_byte_is_lost_when_the_reader_is_slow() {
    let stop = CancellationToken::new();
    let (mut caller, mut container, task) = passing(&stop);
    let sent = bytes(1_000_000, 1);
    let want = sent.clone();
    let writer = tokio::spawn(async move {
        caller.write_all(&sent).await.unwrap();
        caller.shutdown().await.unwrap();
        let mut answer = Vec::new();
        caller.read_to_end(&mut answer).await.unwrap();
        answer
    });
    let mut got = Vec::new();
    let mut part = vec![0; 3000];
    loop {
        let count = container.read(&mut part).await.unwrap();
        if count == 0 {
            break;
        }
        got.extend_from_slice(&part[..count]);
        tokio::task::yield_now().await;
    }
    assert!(got == want, "{} of {} bytes", got.len(), want.len());
    container.write_all(b"done").await.unwrap();
    drop(container);
    assert_eq!(writer.await.unwrap(), b"done");
    timeout(SOON, task).await.unwrap().unwrap();
}

#[tokio::test]
async fn when_one_end_is_gone_the_other_is_closed_soon() {
    for container_first in [true, false] {
        let (caller, container, task) = passing(&CancellationToken::new());
        let (gone, mut stays) = if container_first { (container, caller) } else { (caller, container) };
        drop(gone);
        let mut rest = Vec::new();
        timeout(SOON, stays.read_to_end(&mut rest)).await.unwrap().unwrap();
        timeout(SOON, task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_the_container_said_last_arrives_before_the_end() {
    let (mut caller, mut container, _task) = passing(&CancellationToken::new());
    container.write_all(b"exit 137").await.unwrap();
    drop(container);
    let mut said = Vec::new();
    timeout(SOON, caller.read_to_end(&mut said)).await.unwrap().unwrap();
    assert_eq!(said, b"exit 137");
}

#[tokio::test]
async fn an_idle_stream_lives_and_a_cancelled_one_ends() {
    let stop = CancellationToken::new();
    let (mut caller, mut container, task) = passing(&stop);
    tokio::time::sleep(Duration::from_millis(300)).await;
    caller.write_all(b"still here").await.unwrap();
    let mut got = [0; 10];
    container.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"still here");
    stop.cancel();
    timeout(SOON, task).await.unwrap().unwrap();
}

#[test]
fn credentials_and_addresses_stay_here() {
    let mut headers = HeaderMap::new();
    for name in ["authorization", "host", "cookie", "x-forwarded-for", "impersonate-user", "x-remote-user"] {
        headers.insert(name, HeaderValue::from_static("x"));
    }
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
        headers.append("x-stream-protocol-version", HeaderValue::from_static(protocol));
    }
    headers.insert("upgrade", HeaderValue::from_static("SPDY/3.1"));
    let kept = agreed(&headers);
    assert_eq!(kept.len(), 3);
    assert_eq!(kept.get_all("x-stream-protocol-version").iter().count(), 2);
}
