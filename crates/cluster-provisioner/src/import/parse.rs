//! The settings file as the older scripts read it: flat lines of `KEY: value`.

use super::draft::{Finding, Level};
use std::collections::BTreeMap;

/// Why a value cannot be used.
pub type Fault = String;

/// Settings by name, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

/// Words that an older YAML takes for true or false and a newer one for text.
const AMBIGUOUS: &[&str] = &["y", "n", "yes", "no", "on", "off"];

impl Settings {
    /// Parses `KEY: value` lines.
    pub fn parse(text: &str, findings: &mut Vec<Finding>) -> Self {
        let mut settings = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line == "---" {
                continue;
            }
            let Some((key, value)) = line.split_once(':').filter(|(key, _)| is_key(key.trim())) else {
                let text = format!("line {} is no setting: {line}", number + 1);
                findings.push(Finding { level: Level::Error, setting: String::new(), text });
                continue;
            };
            let (key, value) = (key.trim(), bare(value));
            if AMBIGUOUS.contains(&value.to_lowercase().as_str()) {
                let text = format!("{value:?} is text here; the scripts may have taken it for true or false");
                findings.push(Finding { level: Level::Warning, setting: key.to_owned(), text });
            }
            settings.set(key, &value);
        }
        settings
    }

    /// Parses `KEY=value` lines of a file that a shell reads.
    #[must_use]
    pub fn parse_shell(text: &str) -> Self {
        let mut settings = Self::default();
        for line in text.lines() {
            let line = line.trim().trim_start_matches("export ");
            if let Some((key, value)) = line.split_once('=').filter(|(key, _)| is_key(key)) {
                settings.set(key, &bare(value));
            }
        }
        settings
    }

    /// One setting.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn rename(&mut self, old: &str, new: &str) {
        if let Some(value) = self.0.remove(old) {
            self.0.entry(new.to_owned()).or_insert(value);
        }
    }
}

fn is_key(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A value without quotes and without a comment behind it.
fn bare(value: &str) -> String {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some((inner, _)) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.to_owned();
        }
    }
    let end = value.find(" #").unwrap_or(value.len());
    value.get(..end).unwrap_or(value).trim().to_owned()
}

/// `true` or `false`.
pub(super) fn boolean(value: &str) -> Result<bool, Fault> {
    match value.to_lowercase().as_str() {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        _ => Err(format!("{value:?} is neither true nor false")),
    }
}

/// A whole number.
pub(super) fn number(value: &str) -> Result<i32, Fault> {
    value.parse().map_err(|_not_a_number| format!("{value:?} is no number"))
}

/// A flow sequence such as `[ a, "b" ]`, or one bare value.
pub(super) fn list(value: &str) -> Vec<String> {
    let inner = value.trim().trim_start_matches('[').trim_end_matches(']');
    inner
        .split(',')
        .map(|item| item.trim().trim_matches(['"', '\'']).to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

/// A flow mapping such as `{ a: b, "c": "d" }`.
pub(super) fn map(value: &str) -> Result<BTreeMap<String, String>, Fault> {
    let inner = value.trim().trim_start_matches('{').trim_end_matches('}');
    let clean = |word: &str| word.trim().trim_matches(['"', '\'']).to_owned();
    inner
        .split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| {
            let (key, value) =
                pair.split_once([':', '=']).ok_or_else(|| format!("{pair:?} is no `key: value`"))?;
            Ok((clean(key), clean(value)))
        })
        .collect()
}

/// The three-way switch of an add-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Switch {
    On,
    Off,
    /// Whatever the development branch held that day.
    Master,
    Version(String),
}

pub(super) fn switch(value: &str) -> Result<Switch, Fault> {
    match value.to_lowercase().as_str() {
        "true" => Ok(Switch::On),
        "false" | "" => Ok(Switch::Off),
        "master" | "main" => Ok(Switch::Master),
        version => {
            let plain = version.trim_start_matches('v');
            let parts = plain.split(['-', '+']).next().unwrap_or_default().split('.');
            let numbers = parts.map(|part| part.parse::<u32>().is_ok()).collect::<Vec<_>>();
            if numbers == [true, true, true] {
                Ok(Switch::Version(version.to_owned()))
            } else {
                Err(format!("{value:?} is neither true, false nor a version such as v1.2.3"))
            }
        }
    }
}

/// Whether a text has the form of a UUID.
pub(super) fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}
