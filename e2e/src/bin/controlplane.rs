//! Builds the control plane's programs, or finds them in the cache. With a name it prints that program's path.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use e2e::binaries::Binaries;

fn main() -> ExitCode {
    match Binaries::ensure() {
        Ok(binaries) => {
            for program in std::env::args().skip(1) {
                println!("{}", binaries.path(&program).display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
