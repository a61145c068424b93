//! That a seed tells one story, whoever runs it.

use std::process::Command;

fn report(seed: u64) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["--report", "--seed", &seed.to_string()])
        .output()
        .expect("the simulator runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a report is text")
}

#[test]
fn a_seed_gives_the_same_world_twice() {
    for seed in [1, 2, 3] {
        let one = report(seed);
        assert!(one.contains("\"fingerprint\":"), "{one}");
        assert_eq!(one, report(seed));
    }
}
