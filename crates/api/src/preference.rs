//! What users say about where their pods go first: annotations of pods, read at admission and by the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

/// Largest weight of a target.
pub const MAX_WEIGHT: u32 = 1000;
/// Largest weight of a score.
pub const MAX_SCORE_WEIGHT: u32 = 100;
/// How long a delegate may take to start when nobody says otherwise.
pub const START_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// Most targets that one annotation names.
const MAX_NAMES: usize = 100;

/// Reads `name,name,…`: names of targets, the first to be filled first.
///
/// # Errors
///
/// A name is none, or stands there twice; the sentence says how to write it.
pub fn parse_order(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    for (index, name) in names.iter().enumerate() {
        check_name(name)?;
        if names.iter().take(index).any(|earlier| earlier == name) {
            return Err(format!("{name:?} stands there twice; name each target once"));
        }
    }
    check_count(names.len())?;
    Ok(names)
}

/// Reads `name=int,…`: names of targets with their weights.
///
/// # Errors
///
/// A name is none, stands there twice, or has no weight from 0 to 1000; the sentence says how to write it.
pub fn parse_weights(text: &str) -> Result<BTreeMap<String, u32>, String> {
    weights(text, MAX_WEIGHT, "target", check_name)
}

/// Reads `score=int,…`: names of scores with how much they count.
///
/// # Errors
///
/// A name is none, stands there twice, or has no weight from 0 to 100; the sentence says how to write it.
pub fn parse_score_weights(text: &str) -> Result<BTreeMap<String, u32>, String> {
    weights(text, MAX_SCORE_WEIGHT, "score", |name| {
        if name.len() <= 63 && is_label(name) {
            return Ok(());
        }
        Err(format!("{name:?} is no name of a score; use letters in lower case, digits and hyphens"))
    })
}

fn weights(
    text: &str,
    most: u32,
    what: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<BTreeMap<String, u32>, String> {
    let mut weights = BTreeMap::new();
    for part in text.split(',') {
        let Some((name, weight)) = part.split_once('=') else {
            return Err(format!("{:?} has no weight; write name=weight,name=weight", part.trim()));
        };
        let (name, weight) = (name.trim(), weight.trim());
        check(name)?;
        let number = weight.parse().ok().filter(|number| *number <= most);
        let Some(number) = number else {
            return Err(format!("{weight:?} is no weight; write a whole number from 0 to {most}"));
        };
        if weights.insert(name.to_owned(), number).is_some() {
            return Err(format!("{name:?} stands there twice; name each {what} once"));
        }
    }
    check_count(weights.len())?;
    Ok(weights)
}

/// Reads a duration like `90s`, `5m` or `1h30m`.
///
/// # Errors
///
/// It is none, or it is not longer than nothing; the sentence says how to write it.
pub fn parse_deadline(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>().ok().filter(|duration| !duration.is_negative());
    let duration = parsed.map(Duration::from).filter(|duration| *duration >= Duration::from_secs(1));
    duration.ok_or_else(|| format!("{text:?} is no duration of a second or more; write 90s, 5m or 1h30m"))
}

fn check_count(count: usize) -> Result<(), String> {
    if count > MAX_NAMES {
        return Err(format!(
            "{count} names stand there, at most {MAX_NAMES} can be; leave the last ones out"
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(());
    }
    Err(format!("{name:?} is no name of a target; use its metadata.name, in lower case"))
}

fn is_label(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::{parse_deadline, parse_order, parse_score_weights, parse_weights};
    use std::time::Duration;

    #[test]
    fn an_order_lists_names_once_each() {
        assert_eq!(parse_order("a, b.c,d-1").unwrap(), ["a", "b.c", "d-1"]);
        for wrong in ["", "a,,b", "a,a", "A", "a b", "-a", "a=1"] {
            assert!(parse_order(wrong).is_err(), "{wrong}");
        }
        assert!(parse_order("a,b,a").unwrap_err().contains("\"a\" stands there twice"));
    }

    #[test]
    fn weights_are_whole_numbers_by_name() {
        let weights = parse_weights("a=3, b=0").unwrap();
        assert_eq!((weights["a"], weights["b"]), (3, 0));
        for wrong in ["", "a", "a=", "a=-1", "a=1.5", "a=1001", "a=1,a=2", "=1", "a=1,"] {
            assert!(parse_weights(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scores_count_by_name_up_to_a_hundred() {
        let weights = parse_score_weights("cost=5, carbon=0").unwrap();
        assert_eq!((weights["cost"], weights["carbon"]), (5, 0));
        for wrong in ["", "cost", "cost=101", "cost=-1", "a.b=1", "Cost=1", "cost=1,cost=2"] {
            assert!(parse_score_weights(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_deadline_is_a_duration_as_kubernetes_writes_it() {
        assert_eq!(parse_deadline("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_deadline("90s").unwrap(), Duration::from_secs(90));
        for wrong in ["", "5", "-5m", "0s", "10ms", "soon"] {
            assert!(parse_deadline(wrong).is_err(), "{wrong}");
        }
    }
}
