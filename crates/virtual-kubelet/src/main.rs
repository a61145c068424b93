//! The process of [`virtual_kubelet`].

use std::process::ExitCode;

fn main() -> ExitCode {
    runtime::run(
        "virtual-kubelet",
        "Shows target clusters as virtual nodes and tells whether they answer",
        virtual_kubelet::serve,
    )
}
