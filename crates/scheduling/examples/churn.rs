//! `cargo run --release --example churn -- 10000000 50 1`: so many operations, on so many nodes, from this seed.

#[path = "../src/churn.rs"]
mod churn;

use std::io::Write;

use churn::{Churn, Numbers};

/// At how many points what is kept is compared to what is made anew.
const POINTS: u64 = 1000;

fn main() -> Result<(), String> {
    let mut numbers =
        std::env::args().skip(1).map(|text| text.parse::<u64>().map_err(|error| error.to_string()));
    let operations = numbers.next().unwrap_or(Ok(10_000_000))?;
    let nodes = numbers.next().unwrap_or(Ok(50))?;
    let seed = numbers.next().unwrap_or(Ok(1))?;
    let mut churn = Churn::new(seed, nodes)?;
    let mut when = Numbers(seed ^ 0x5eed);
    let every = (operations / POINTS).max(1);
    let mut next = when.below(every);
    for operation in 0..operations {
        churn.step()?;
        if operation == next {
            churn.compare()?;
            next = (operation / every + 1) * every + when.below(every);
        }
    }
    let tally = &churn.tally;
    let line = serde_json::json!({
        "work": "churn", "operations": tally.operations, "nodes": nodes, "placed": tally.placed,
        "refused": tally.refused, "compared": tally.compared, "differences": 0,
    });
    writeln!(std::io::stdout(), "{line}").map_err(|error| error.to_string())
}
