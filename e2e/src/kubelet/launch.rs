//! The command that becomes a container.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use tokio::process::Command;

use super::env::{environment, expand};
use super::volumes::Trouble;
use super::{Host, logs};
use crate::images::Image;
use crate::namespaces;
use crate::network::Sandbox;
use crate::tools::find;

/// The user of images without one, as in the project's own: neither root nor a known one.
const NOBODY: i64 = 65_532;

const SCRIPT: &str = include_str!("launch.sh");

/// Where a pod's containers live.
pub(super) struct Place<'a> {
    pub(super) host: &'a Host,
    pub(super) pod: &'a Pod,
    pub(super) sandbox: &'a Sandbox,
    /// The pod's own folder.
    pub(super) folder: PathBuf,
}

impl Place<'_> {
    /// The command for one container, and the file for its output.
    pub(super) async fn command(&self, container: &Container) -> Result<(Command, PathBuf), Trouble> {
        let image = container.image.as_deref().unwrap_or_default();
        let image = self.host.images.find(image).map_err(|error| Trouble::Never(format!("{error:#}")))?;
        let env = environment(self.host, self.pod, container, self.sandbox.address).await?;
        let root = self.folder.join(format!("root-{}", container.name));
        std::fs::create_dir_all(&root).map_err(|error| Trouble::NotYet(error.to_string()))?;

        let tool = |name: &str| find(name).map_err(|error| Trouble::Never(error.to_string()));
        let mut command =
            self.sandbox.command(&tool("unshare")?).map_err(|error| Trouble::Never(error.to_string()))?;
        command.args(["--mount", "--propagation", "private", "--"]).arg(tool("sh")?);
        command.args(["-c", SCRIPT, "launch"]).arg(&root);
        command.arg(self.user(container)?).arg(has_read_only_root(container).to_string());
        command.arg(&image.file).args([&image.entry, "ro"]);
        for mount in container.volume_mounts.iter().flatten() {
            command.arg(self.source(mount)?).arg(&mount.mount_path);
            command.arg(if mount.read_only == Some(true) { "ro" } else { "rw" });
        }
        command.arg("--");
        command.args(program(container, &image).iter().map(|argument| expand(argument, &env)));
        command.env_clear().envs(&env).current_dir("/");
        let name = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &self.pod.metadata;
        let log = format!("{}_{}_{}.log", name(&metadata.namespace), name(&metadata.name), container.name);
        Ok((command, logs(self.host).join(log)))
    }

    fn source(&self, mount: &VolumeMount) -> Result<PathBuf, Trouble> {
        if mount.sub_path_expr.is_some() || mount.mount_propagation.is_some() {
            return Err(Trouble::Never(format!("how volume {} is mounted", mount.name)));
        }
        let folder = self.folder.join("volumes").join(&mount.name);
        let source = match mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => folder.join(path),
            None => folder,
        };
        if source.exists() { Ok(source) } else { Err(Trouble::NotYet(format!("no {}", source.display()))) }
    }

    /// `user:group` for the container's process, or `root`.
    fn user(&self, container: &Container) -> Result<String, Trouble> {
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let own = container.security_context.as_ref();
        let user = own.and_then(|own| own.run_as_user).or(of_pod.and_then(|pod| pod.run_as_user));
        let group = own.and_then(|own| own.run_as_group).or(of_pod.and_then(|pod| pod.run_as_group));
        let not_root = own.and_then(|own| own.run_as_non_root).or(of_pod.and_then(|pod| pod.run_as_non_root));
        let user = user.unwrap_or(NOBODY);
        if user == 0 && not_root == Some(true) {
            return Err(Trouble::Never("runAsNonRoot with user 0".into()));
        }
        // Without all user IDs of the machine there is no other user to become.
        let is_root = user == 0 || !namespaces::is_root();
        Ok(if is_root { "root".into() } else { format!("{user}:{}", group.unwrap_or(user)) })
    }
}

fn has_read_only_root(container: &Container) -> bool {
    let context = container.security_context.as_ref();
    context.and_then(|context| context.read_only_root_filesystem).unwrap_or(false)
}

fn program(container: &Container, image: &Image) -> Vec<String> {
    let command = container.command.clone().filter(|command| !command.is_empty());
    let mut program = command.unwrap_or_else(|| vec![image.entry.clone()]);
    program.extend(container.args.iter().flatten().cloned());
    program
}

/// Fills the pod's folder for volumes; the same place that [`Place::command`] mounts from.
pub(super) fn volumes(folder: &Path) -> PathBuf {
    folder.join("volumes")
}
