//! Generated files: the custom resource definitions of the chart, their reference page, and one page for each
//! component from its own documentation and flags.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Components with a page of their own.
const COMPONENTS: &[&str] = &[
    "candidate-scheduler",
    "chaperon-controller",
    "cluster-provisioner",
    "feedback-controller",
    "follow-controller",
    "proxy-scheduler",
    "source-controller",
    "virtual-kubelet",
    "webhook",
];

/// Writes the files, or with `check` only compares.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for (path, text) in files(root)? {
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            stale.push(path.display().to_string());
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("stale: {}; run `make gen`", stale.join(", "))
}

fn files(root: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut reference = String::from("# Custom resources\n\nGenerated from the `api` crate by `make gen`.\n");
    for mut definition in api::crds::all() {
        // Users' objects survive an uninstall.
        definition["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        let plural =
            definition["spec"]["names"]["plural"].as_str().context("a definition has no plural")?.to_owned();
        let yaml = serde_yaml::to_string(&definition).context("cannot print a definition")?;
        files.push((root.join(format!("charts/crds/templates/{plural}.yaml")), end(&yaml)));
        describe(&definition, &mut reference)?;
    }
    files.push((root.join("docs/reference/custom-resources.md"), reference));
    for component in COMPONENTS {
        files.push((root.join(format!("docs/components/{component}.md")), component_page(root, component)?));
    }
    Ok(files)
}

/// What the crate says of itself, and its own flags.
fn component_page(root: &Path, component: &str) -> anyhow::Result<String> {
    let source = root.join("crates").join(component).join("src");
    let read =
        |file: &str| fs::read_to_string(source.join(file)).with_context(|| format!("{component}: no {file}"));
    let mut page =
        format!("# {component}\n\nGenerated from the crate's own documentation by `make gen`.\n\n");
    for line in read("lib.rs")?.lines().take_while(|line| line.starts_with("//!")) {
        let text = line.trim_start_matches("//!");
        let text = text.strip_prefix(' ').unwrap_or(text).replace("[`", "`").replace("`]", "`");
        let heading = if text.starts_with("# ") { "#" } else { "" };
        writeln!(page, "{heading}{text}")?;
    }
    let flags =
        source.join("args.rs").exists().then(|| read("args.rs")).transpose()?.map(|text| flags(&text));
    if let Some(flags) = flags.filter(|flags| !flags.is_empty()) {
        write!(
            page,
            "\n## Flags\n\nBesides those that all components have (`--help` lists them):\n\n| flag | meaning |\n|---|---|\n{flags}"
        )?;
    }
    Ok(page)
}

/// Rows of a table: each documented field of an argument struct is a flag.
fn flags(source: &str) -> String {
    let mut rows = String::new();
    let mut meaning = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            meaning = format!("{meaning}{text}");
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|rest| rest.split_once(": ")) {
            let row = format!("| `--{}` | {} |\n", name.replace('_', "-"), meaning.trim());
            rows.push_str(&row);
            meaning.clear();
        } else if line.is_empty() || line.starts_with("pub struct") {
            meaning.clear();
        }
    }
    rows
}

fn end(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

fn describe(definition: &Value, page: &mut String) -> anyhow::Result<()> {
    let names = &definition["spec"]["names"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    writeln!(
        page,
        "\n## {}\n\n`{}` (`{}`), {}\n\n| field | type | meaning |\n|---|---|---|",
        word(&names["kind"]),
        word(&names["plural"]),
        word(&names["shortNames"][0]),
        word(&definition["spec"]["scope"]).to_lowercase(),
    )?;
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    fields("", schema, page)
}

fn fields(path: &str, schema: &Value, page: &mut String) -> anyhow::Result<()> {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let kind = field["type"].as_str().unwrap_or("any");
        let meaning =
            field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        writeln!(page, "| `{path}` | {kind} | {meaning} |")?;
        fields(&path, field, page)?;
    }
    Ok(())
}
