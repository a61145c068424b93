//! That a seed tells one story, whoever runs it.

use std::process::Command;

fn report(seed: u64, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(["--report", "--seed", &seed.to_string()])
        .args(more)
        .output()
        .expect("the simulator runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a report is text")
}

#[test]
fn a_seed_gives_the_same_world_twice() {
    for seed in [1, 2, 3] {
        let one = report(seed, &[]);
        assert!(one.contains("\"fingerprint\":"), "{one}");
        assert_eq!(one, report(seed, &[]));
    }
}

#[test]
fn worlds_that_once_broke_a_rule_keep_all_of_them() {
    let long = [165, 212, 265, 297, 303, 391, 434, 472, 483];
    let short = [39, 67, 102, 114, 117, 120, 202, 518, 586, 676];
    for seed in long {
        let told = report(seed, &[]);
        assert!(told.contains("\"violations\":[]"), "seed {seed}: {told}");
    }
    for seed in short {
        let told = report(seed, &["--short"]);
        assert!(told.contains("\"violations\":[]"), "short seed {seed}: {told}");
    }
}
