//! Sessions with containers whose kubelet streams as a real one does: exit codes, terminals, ends of inputs, cut
//! connections, many at once, and more than anybody reads.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::helm;
use e2e::install::RELEASE;
use e2e::process::Process;
use e2e::setup::SOURCE;
use e2e::streams as far;
use e2e::wait::until;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, ListParams, LogParams};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::guest::becomes;
use crate::scene::{LONG, Scene, component_pods, pinned, remove_node};
use crate::streams::{MEGABYTE, PROTOCOLS, Streams, digest, echoed, finish, forward, logged, noise};

const TARGET: &str = "target-1";
/// How soon each side of a stream must hear that the other is gone.
const PROMPT: Duration = Duration::from_secs(10);
/// How soon a session ends whose target is lost.
const LOST: Duration = Duration::from_secs(40);
/// How much more memory streams may take, however much they carry.
const FLAT_BYTES: u64 = 50 * 1024 * 1024;

/// A proxy pod on such a node.
struct Sessions<'a> {
    streams: Streams<'a>,
    server: Process,
    port: u16,
}

impl<'a> Sessions<'a> {
    async fn open(ground: &'a Ground, namespace: &str, port: u16, containers: &[&str]) -> Result<Self> {
        let scene = Scene::open(ground, namespace).await?;
        let target = ground.cluster(TARGET)?;
        let server = far::serve(ground, target, port).await?;
        scene.pod(pinned(far::pod("pod", port, containers), TARGET)?).await?;
        becomes(scene.source, namespace, "pod", "Ready").await?;
        let folder = target.local()?.folder.join(e2e::controlplane::STREAMS);
        Ok(Self { streams: Streams { scene, folder }, server, port })
    }

    async fn close(self) -> Result<()> {
        let ground = self.streams.scene.ground;
        self.streams.scene.close().await?;
        self.server.signal(e2e::process::Signal::Kill).await?;
        remove_node(ground.cluster(TARGET)?, &far::node(self.port)).await
    }

    fn kubectl(&self, web_sockets: &str, arguments: &[&str]) -> Result<Command> {
        self.streams.kubectl(web_sockets, arguments)
    }

    /// Whether a command hears soon that its user was killed.
    async fn hears(&self, cluster: &Cluster, web_sockets: &str, pod: &str) -> Result<bool> {
        let file = self.streams.folder.join(format!("heard-{}-{web_sockets}", cluster.name));
        let script = format!("echo on; cat > /dev/null; echo over > {}", file.display());
        let (mut user, _open) = begin(self.exec(cluster, web_sockets, pod, &script)?).await?;
        user.kill().await?;
        let start = Instant::now();
        while start.elapsed() < PROMPT {
            if std::fs::exists(&file)? {
                return Ok(true);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(false)
    }

    /// A command that says that it is there and then does nothing, in the pod of this name in a cluster.
    fn command(&self, cluster: &Cluster, web_sockets: &str, pod: &str) -> Result<Command> {
        self.exec(cluster, web_sockets, pod, "echo on; sleep 600")
    }

    fn exec(&self, cluster: &Cluster, web_sockets: &str, pod: &str, script: &str) -> Result<Command> {
        let namespace = self.streams.scene.namespace.as_str();
        let exec = ["-n", namespace, "exec", "-i", pod, "--", "sh", "-c", script];
        let mut command = helm::command(self.streams.scene.ground, cluster, "kubectl", &exec)?;
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", web_sockets);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// The delegate's name.
    async fn delegate(&self) -> Result<String> {
        let there: Api<Pod> = self.streams.scene.ground.cluster(TARGET)?.api(&self.streams.scene.namespace);
        let pods = there.list(&ListParams::default()).await?.items;
        pods.into_iter().next().and_then(|pod| pod.metadata.name).context("no delegate")
    }

    fn pods(&self) -> Api<Pod> {
        self.streams.scene.pods()
    }
}

pub(crate) async fn case_070_exit_codes_and_ends_of_inputs_pass_as_they_are(ground: &Ground) -> Result<()> {
    let sessions = Sessions::open(ground, "sessions-codes", 10_301, &["main"]).await?;
    for web_sockets in PROTOCOLS {
        for code in [0, 1, 3, 137] {
            let script = format!("echo out; echo err >&2; exit {code}");
            let done =
                finish(sessions.kubectl(web_sockets, &["exec", "pod", "--", "sh", "-c", &script])?, &[]);
            let done = done.await?;
            ensure!(done.code == Some(code), "{web_sockets}: {:?}, not {code}: {}", done.code, done.errors);
            ensure!(done.output == b"out\n" && done.errors.starts_with("err\n"), "{:?}", done.errors);
        }
        let killed = ["exec", "pod", "--", "sh", "-c", "kill -9 $$"];
        let done = finish(sessions.kubectl(web_sockets, &killed)?, &[]).await?;
        ensure!(done.code == Some(137), "{:?} {}", done.code, done.errors);
        // Nobody reads at first, so that the way there fills up; then everything is read to its end.
        let sent = noise(10 * MEGABYTE, 11);
        let slow = ["exec", "-i", "pod", "--", "sh", "-c", "sleep 2; sha256sum; exit 3"];
        let done = finish(sessions.kubectl(web_sockets, &slow)?, &sent).await?;
        let got = String::from_utf8_lossy(&done.output).into_owned();
        ensure!(got.starts_with(&digest(&sent)), "{web_sockets}: {got:?} {}", done.errors);
        ensure!(done.code == Some(3), "{:?} {}", done.code, done.errors);
    }
    sessions.close().await
}

pub(crate) async fn w38_files_are_copied_into_a_container_and_out_of_it(ground: &Ground) -> Result<()> {
    let sessions = Sessions::open(ground, "sessions-cp", 10_302, &["main"]).await?;
    let here = sessions.streams.folder.with_file_name("sessions-cp");
    std::fs::create_dir_all(&here)?;
    let (up, back) = (here.join("up"), here.join("back"));
    std::fs::write(&up, noise(5 * MEGABYTE, 13))?;
    let there = format!("pod:{}", sessions.streams.folder.join("copied-in").display());
    for web_sockets in PROTOCOLS {
        for (from, to) in
            [(up.display().to_string(), there.clone()), (there.clone(), back.display().to_string())]
        {
            let done = finish(sessions.kubectl(web_sockets, &["cp", &from, &to])?, &[]).await?;
            ensure!(done.code == Some(0), "kubectl cp {from} {to}: {}", done.errors);
        }
        ensure!(digest(&std::fs::read(&up)?) == digest(&std::fs::read(&back)?), "another file came back");
        std::fs::remove_file(&back)?;
        std::fs::remove_file(sessions.streams.folder.join("copied-in"))?;
    }
    sessions.close().await
}

pub(crate) async fn case_130_attach_is_the_main_process_until_its_input_ends(ground: &Ground) -> Result<()> {
    let sessions = Sessions::open(ground, "sessions-attach", 10_303, &["talker"]).await?;
    let script = "while read -r line; do echo \"got $line\"; done; echo the end\n";
    std::fs::write(sessions.streams.folder.join("talker.sh"), script)?;
    for web_sockets in PROTOCOLS {
        let attach = sessions.kubectl(web_sockets, &["attach", "-i", "pod", "-c", "talker"])?;
        let done = finish(attach, b"one\ntwo\nthree\n").await?;
        let got = String::from_utf8_lossy(&done.output).into_owned();
        ensure!(done.code == Some(0), "{:?} {}", done.code, done.errors);
        ensure!(got == "got one\ngot two\ngot three\nthe end\n", "{web_sockets}: {got:?} {}", done.errors);
    }
    sessions.close().await
}

pub(crate) async fn w22_case_070_a_terminal_has_the_size_of_its_user_at_once_and_later(
    ground: &Ground,
) -> Result<()> {
    let sessions = Sessions::open(ground, "sessions-terminal", 10_304, &["main"]).await?;
    for web_sockets in PROTOCOLS {
        let until = |size: &str, word: &str| {
            format!("until [ \"$(stty size)\" = \"{size}\" ]; do sleep 0.1; done; echo {word}; ")
        };
        let there = until("41 123", "first") + &until("50 99", "second") + "exit 7";
        let exec = sessions.kubectl(web_sockets, &["exec", "-it", "pod", "--", "sh", "-c", &there])?;
        let words: Vec<String> = std::iter::once(exec.as_std().get_program())
            .chain(exec.as_std().get_args())
            .map(|word| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''")))
            .collect();
        // The user's terminal is resized while the session goes on.
        let line = format!(
            "stty rows 41 cols 123; (sleep 3; stty rows 50 cols 99 < /dev/tty) & exec {}",
            words.join(" ")
        );
        let mut terminal = Command::new("/usr/bin/script");
        terminal.args(["-qec", &line, "/dev/null"]).env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh");
        for (name, value) in exec.as_std().get_envs() {
            if let Some(value) = value {
                terminal.env(name, value);
            }
        }
        terminal.env("PATH", "/usr/bin:/bin").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running =
            terminal.stderr(Stdio::piped()).kill_on_drop(true).spawn().context("cannot start script")?;
        // An input that ends would end the terminal's.
        let _open = running.stdin.take();
        let done = tokio::time::timeout(LONG, running.wait_with_output()).await;
        let done = done.context("the session does not end")??;
        let got = String::from_utf8_lossy(&done.stdout).into_owned();
        ensure!(done.status.code() == Some(7), "{web_sockets}: {:?} {got:?}", done.status);
        ensure!(got.contains("first") && got.contains("second"), "{web_sockets}: {got:?}");
    }
    sessions.close().await
}

/// One session whose command sends everything back: what came, and when its first byte did.
async fn session(pods: &Api<Pod>, sent: &[u8]) -> Result<(Vec<u8>, Duration)> {
    let start = Instant::now();
    let wanted = AttachParams::default().stdin(true).stdout(true).stderr(false).container("main");
    let mut session = pods.exec("pod", ["cat"], &wanted).await.context("cannot start a session")?;
    let (mut to, mut from) = (session.stdin().context("no input")?, session.stdout().context("no output")?);
    let write = async {
        to.write_all(sent).await?;
        to.shutdown().await
    };
    let read = async {
        let mut got = vec![0];
        from.read_exact(&mut got).await?;
        let first = start.elapsed();
        from.read_to_end(&mut got).await?;
        std::io::Result::Ok((got, first))
    };
    let (written, read) = tokio::join!(write, read);
    written.context("cannot send")?;
    let read = read.context("the answer breaks off")?;
    let status = session.take_status().context("no status")?.await.context("no status came")?;
    ensure!(status.status.as_deref() == Some("Success"), "{status:?}");
    Ok(read)
}

pub(crate) async fn w38_a_hundred_sessions_and_logs_at_once_lose_no_byte(ground: &Ground) -> Result<()> {
    const MANY: u64 = 100;
    let sessions = Sessions::open(ground, "sessions-many", 10_305, &["main", "follow"]).await?;
    let pods = sessions.pods();
    let sent: Vec<Vec<u8>> = (0..MANY).map(|seed| noise(64 * 1024, seed)).collect();
    let all = sent.iter().map(|bytes| session(&pods, bytes));
    for (number, ((got, _), sent)) in try_join_all(all).await?.iter().zip(&sent).enumerate() {
        ensure!(digest(got) == digest(sent), "session {number}: {} bytes came back", got.len());
    }
    let file = sessions.streams.folder.join("follow.log");
    std::fs::write(&file, logged(&["first"]))?;
    let wanted = LogParams { container: Some("follow".into()), follow: true, ..LogParams::default() };
    let opened = try_join_all((0..MANY).map(|_| pods.log_stream("pod", &wanted))).await?;
    let mut logs: Vec<_> = opened.into_iter().map(futures::AsyncBufReadExt::lines).collect();
    for line in ["first", "second"] {
        let next = logs.iter_mut().map(|lines| async {
            let next = tokio::time::timeout(LONG, futures::StreamExt::next(lines)).await;
            let next = next.context("no line comes")?.context("no line is left")??;
            ensure!(next == line, "{next:?}, not {line:?}");
            Ok(())
        });
        try_join_all(next).await?;
        let mut more = std::fs::OpenOptions::new().append(true).open(&file)?;
        std::io::Write::write_all(&mut more, logged(&["second"]).as_bytes())?;
    }
    drop(logs);
    nothing_is_open(ground).await?;
    sessions.close().await
}

/// Waits until no replica of virtual-kubelet carries a stream.
async fn nothing_is_open(ground: &Ground) -> Result<()> {
    let source = ground.cluster(SOURCE)?;
    let replicas = component_pods(source, "virtual-kubelet").await?;
    for replica in &replicas {
        let name = replica.metadata.name.as_deref().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{RELEASE}/pods/{name}:8080/proxy/metrics");
        until(LONG, "no stream is left", async || {
            let text = source.raw(&path).await?;
            let open = text.lines().filter(|line| line.starts_with("multicluster_virtual_kubelet_streams{"));
            let open: Vec<&str> = open.filter(|line| !line.ends_with(" 0")).collect();
            ensure!(open.is_empty(), "{open:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// Starts a session and waits until its command runs. Its input stays open with the second part.
async fn begin(mut command: Command) -> Result<(Child, Option<ChildStdin>)> {
    let mut user = command.spawn().context("cannot start kubectl")?;
    let open = user.stdin.take();
    let mut lines = BufReader::new(user.stdout.take().context("no output")?).lines();
    let line =
        tokio::time::timeout(LONG, lines.next_line()).await.context("the command does not start")??;
    ensure!(line.as_deref() == Some("on"), "the command does not start: {line:?}");
    tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
    Ok((user, open))
}

pub(crate) async fn w22_sessions_of_a_target_that_is_cut_off_end(ground: &Ground) -> Result<()> {
    let sessions = Sessions::open(ground, "sessions-lost", 10_308, &["main"]).await?;
    let (source, target) = (sessions.streams.scene.source, ground.cluster(TARGET)?);
    let mut open = Vec::new();
    for web_sockets in PROTOCOLS {
        open.push((web_sockets, begin(sessions.command(source, web_sockets, "pod")?).await?));
    }
    target.cut().await?;
    let ended = async {
        for (web_sockets, (user, _)) in &mut open {
            // The target counts as lost after three probes without an answer.
            let ended = tokio::time::timeout(LOST, user.wait()).await;
            let ended = ended.context("kubectl does not hear that the target is lost")??;
            // Over SPDY kubectl takes any end without a word for a good one.
            ensure!(*web_sockets == "false" || !ended.success(), "a lost session ended with {ended}");
        }
        Ok(())
    }
    .await;
    target.heal().await?;
    ended?;
    e2e::setup::targets_ready(ground).await?;
    nothing_is_open(ground).await?;
    sessions.close().await
}

pub(crate) async fn w22_a_cut_session_ends_promptly_on_both_sides(ground: &Ground) -> Result<()> {
    let mut sessions = Sessions::open(ground, "sessions-cut", 10_306, &["main"]).await?;
    for web_sockets in PROTOCOLS {
        let (source, target) = (sessions.streams.scene.source, ground.cluster(TARGET)?);
        // The user's side goes: the command's input ends as soon as for a user in the target.
        let heard = (
            sessions.hears(source, web_sockets, "pod").await?,
            sessions.hears(target, web_sockets, &sessions.delegate().await?).await?,
        );
        ensure!(
            heard.0 == heard.1,
            "{web_sockets}: that the user is gone was heard here and in the target: {heard:?}"
        );
        ensure!(
            web_sockets == "false" || heard.0,
            "a command over WebSocket does not hear that its user is gone"
        );
        // The far side goes: the user's command ends, as it does for somebody who is in the target.
        let mut here = begin(sessions.command(source, web_sockets, "pod")?).await?;
        let mut there = begin(sessions.command(target, web_sockets, &sessions.delegate().await?)?).await?;
        sessions.server.signal(e2e::process::Signal::Kill).await?;
        let (here, there) = tokio::join!(
            tokio::time::timeout(PROMPT, here.0.wait()),
            tokio::time::timeout(PROMPT, there.0.wait())
        );
        let here = here.context("kubectl does not hear that the far side is gone")??;
        let there = there.context("kubectl in the target does not hear that the far side is gone")??;
        ensure!(here.success() == there.success(), "{web_sockets}: {here}, but {there} in the target");
        sessions.server = far::answer(ground, target, sessions.port).await?;
    }
    nothing_is_open(ground).await?;
    sessions.close().await
}

/// What all replicas of virtual-kubelet have resident.
fn resident(ground: &Ground) -> Result<u64> {
    let used = ground.cluster(SOURCE)?.local()?.kubelet.usage();
    let ours = used.into_iter().filter(|(key, _)| key.contains("virtual-kubelet"));
    Ok(ours.map(|(_, usage)| usage.resident_bytes).sum())
}

pub(crate) async fn w38_memory_stays_flat_whatever_streams_carry(ground: &Ground) -> Result<()> {
    const BYTES: usize = 200 * MEGABYTE;
    let sessions = Sessions::open(ground, "sessions-memory", 10_307, &["main"]).await?;
    let count = BYTES.to_string();
    for web_sockets in PROTOCOLS {
        let exec = ["exec", "pod", "--", "head", "-c", count.as_str(), "/dev/zero"];
        let mut user = sessions.kubectl(web_sockets, &exec)?.spawn().context("cannot start kubectl")?;
        let mut output = user.stdout.take().context("no output")?;
        let mut first = vec![0; 1024];
        output.read_exact(&mut first).await?;
        let before = resident(ground)?;
        let mut most = before;
        // Nobody reads for a while: everything on the way must wait.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            most = most.max(resident(ground)?);
        }
        let mut got = first.len();
        let mut chunk = vec![0; 256 * 1024];
        loop {
            let read = output.read(&mut chunk).await?;
            if read == 0 {
                break;
            }
            ensure!(chunk[..read].iter().all(|byte| *byte == 0), "a byte is another one");
            got += read;
            most = most.max(resident(ground)?);
        }
        ensure!(got == BYTES && user.wait().await?.success(), "{web_sockets}: {got} bytes of {BYTES}");
        ensure!(most - before < FLAT_BYTES, "{web_sockets}: {before} bytes grew to {most}");
        let (mut child, port) = forward(&sessions.streams, web_sockets, far::ECHO).await?;
        let before = resident(ground)?;
        let sent = noise(64 * MEGABYTE, 17);
        let got = echoed(port, sent.clone()).await?;
        let after = resident(ground)?;
        ensure!(digest(&got) == digest(&sent), "{web_sockets}: {} bytes came back", got.len());
        ensure!(after.saturating_sub(before) < FLAT_BYTES, "{web_sockets}: {before} bytes grew to {after}");
        child.kill().await?;
    }
    sessions.close().await
}
