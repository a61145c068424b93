//! Answers on standard output, news on standard error.

use crate::args::Format;
use anyhow::{Context as _, Result};
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal as _, Write as _, stderr, stdout};
use std::time::Duration;

/// Writes a text to standard output.
///
/// # Errors
/// When nobody reads it any more.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).context("cannot write to standard output")
}

/// An answer that can be printed in each format.
pub(crate) trait Answer: Serialize {
    /// For people.
    fn text(&self) -> String;
    /// The objects that it is about, as `kind/name`.
    fn names(&self) -> Vec<String>;
}

/// Prints an answer.
///
/// # Errors
/// When nobody reads it any more.
pub(crate) fn print(answer: &impl Answer, format: Format) -> Result<()> {
    match format {
        Format::Table => say(&answer.text()),
        Format::Json => {
            say(&format!("{}\n", serde_json::to_string_pretty(answer).context("cannot write JSON")?))
        }
        Format::Yaml => say(&serde_yaml::to_string(answer).context("cannot write YAML")?),
        Format::Name => answer.names().iter().try_for_each(|name| say(&format!("{name}\n"))),
    }
}

/// Aligned columns under a line of headings; empty without rows. What is too long for the terminal is wrapped in
/// its column.
#[must_use]
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings).add_rows(rows);
    if stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    let widths = table.column_iter_mut();
    widths.for_each(|column| _ = column.set_padding((0, 2)));
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The steps of a longer piece of work, on standard error.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: Option<ProgressBar>,
}

impl Default for Steps {
    fn default() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar }
    }
}

impl Steps {
    /// What is being done now; shown to a person only.
    pub(crate) fn doing(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// What has been done.
    pub(crate) fn done(&self, what: &str) {
        self.line("✓", what);
    }

    /// What a person should look at.
    pub(crate) fn warn(&self, what: &str) {
        self.line("!", what);
    }

    fn line(&self, mark: &str, what: &str) {
        let line = format!("{mark} {what}");
        match &self.bar {
            Some(bar) => bar.println(line),
            // Nobody reads what a closed standard error would say.
            None => drop(writeln!(stderr().lock(), "{line}")),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_are_aligned_and_lines_end_where_their_text_ends() {
        let rows = vec![vec!["a".to_owned(), "long text".to_owned()], vec!["bcd".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["N", "REASON"], rows), "N    REASON\na    long text\nbcd  x\n");
    }

    #[test]
    fn no_rows_no_headings() {
        assert_eq!(table(&["N"], Vec::new()), "");
    }
}
