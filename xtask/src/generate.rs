//! Generated files: the custom resource definitions of the chart and their reference page.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

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
    Ok(files)
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
