//! From an HTTP request to the store and back.

use super::patch::Form;
use super::select::Selector;
use super::{Deletion, Key, Refusal, Store};
use bytes::Bytes;
use serde_json::{Value, json};

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// One object.
    Get,
    /// All objects that a selector wants.
    List(Selector),
    /// What changes of them after a version.
    Watch(Selector, u64),
    /// A new object; `true`: dry run.
    Create(bool),
    /// A change.
    Patch(Form),
    /// The end of an object.
    Delete,
}

/// A request, taken apart.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked.
    pub verb: Verb,
    /// Plural name of the kind; empty for the version of the API server.
    pub kind: String,
    /// API group with version, as objects carry it.
    pub group_version: String,
    /// Namespace and name, each empty where there is none.
    pub key: Key,
    /// `status`, `binding` or empty.
    pub part: String,
    /// The body; null when there is none.
    pub body: Value,
}

/// An answer but for that of a watch.
pub type Answer = Result<Bytes, Refusal>;

fn parameter(query: &str, name: &str) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default();
    decoded(value)
}

/// Undoes the encoding of a query.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Request {
    /// Takes a request apart; `None` for one that no API server knows.
    #[must_use]
    pub fn parse(parts: &http::request::Parts, body: &[u8]) -> Option<Self> {
        let query = parts.uri.query().unwrap_or_default();
        let mut path = parts.uri.path().split('/').filter(|part| !part.is_empty());
        let group_version = match path.next()? {
            "api" => path.next()?.to_owned(),
            "apis" => format!("{}/{}", path.next()?, path.next()?),
            _ => String::new(),
        };
        let mut rest: Vec<&str> = path.collect();
        let namespaced = rest.len() >= 3 && rest.first() == Some(&"namespaces");
        let namespace =
            if namespaced { rest.get(1).copied().unwrap_or_default().to_owned() } else { String::new() };
        if namespaced {
            rest.drain(..2);
        }
        let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let (kind, name, part) = (at(0), at(1), at(2));
        let content = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let selector = || {
            Selector::new(&namespace, &parameter(query, "labelSelector"), &parameter(query, "fieldSelector"))
        };
        let verb = match parts.method.as_str() {
            "GET" if query.contains("watch=true") => {
                Verb::Watch(selector(), parameter(query, "resourceVersion").parse().unwrap_or_default())
            }
            "GET" if name.is_empty() => Verb::List(selector()),
            "GET" => Verb::Get,
            "POST" => Verb::Create(query.contains("dryRun=All")),
            "PATCH" => Verb::Patch(Form::of(content.unwrap_or_default())?),
            "DELETE" => Verb::Delete,
            _ => return None,
        };
        let body = serde_json::from_slice(body).unwrap_or_default();
        Some(Self { verb, kind, group_version, key: (namespace, name), part, body })
    }

    /// Whether it changes anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match &self.verb {
            Verb::Get | Verb::List(_) | Verb::Watch(..) | Verb::Create(true) => false,
            Verb::Create(false) => self.kind != "selfsubjectaccessreviews",
            Verb::Patch(_) | Verb::Delete => true,
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let (namespace, name) = (&self.key.0, &self.key.1);
        let verb = match &self.verb {
            Verb::Get => "get",
            Verb::List(_) => "list",
            Verb::Watch(..) => "watch",
            Verb::Create(true) => "dry-run",
            Verb::Create(false) => "create",
            Verb::Patch(_) => "patch",
            Verb::Delete => "delete",
        };
        let made = self.body["metadata"]["name"].as_str().filter(|_| name.is_empty()).unwrap_or(name);
        let slash = if self.part.is_empty() { "" } else { "/" };
        let body = match &self.verb {
            Verb::Patch(_) | Verb::Delete if !self.body.is_null() => format!(" {}", self.body),
            Verb::Create(_) if self.part == "binding" => format!(" {}", self.body),
            _ => String::new(),
        };
        format!("{verb} {}{slash}{} {namespace}/{made}{body}", self.kind, self.part)
    }

    /// Carries out anything but a watch.
    ///
    /// # Errors
    ///
    /// As API servers refuse.
    pub fn serve(&self, store: &mut Store) -> Answer {
        match &self.verb {
            Verb::Get if self.kind.is_empty() => Ok(version()),
            Verb::Get => {
                let found = store.get(&self.kind, &self.key.0, &self.key.1);
                found.map(|object| object.text()).ok_or_else(|| Refusal::not_found(&self.kind, &self.key.1))
            }
            Verb::List(_) if self.kind.is_empty() => Ok(version()),
            Verb::List(selector) => Ok(self.list(store, selector)),
            Verb::Watch(..) => Err(Refusal::invalid("a watch is served elsewhere")),
            Verb::Create(_) if self.kind == "selfsubjectaccessreviews" => {
                let mut review = self.body.clone();
                review["status"] = json!({"allowed": true});
                Ok(Bytes::from(review.to_string()))
            }
            Verb::Create(_) if self.part == "binding" => {
                store.bind(&self.key, &self.body)?;
                let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
                Ok(Bytes::from(done.to_string()))
            }
            Verb::Create(dry_run) => {
                let mut value = self.body.clone();
                if !self.key.0.is_empty() {
                    value["metadata"]["namespace"] = json!(self.key.0);
                }
                Ok(store.create(&self.kind, value, *dry_run)?.text())
            }
            Verb::Patch(form) => {
                let patched =
                    store.patch(&self.kind, &self.key, (&self.body, *form), self.part == "status")?;
                Ok(patched.text())
            }
            Verb::Delete => {
                let options = &self.body;
                let text = |field: &str| options["preconditions"][field].as_str().map(str::to_owned);
                let options = Deletion {
                    grace: options["gracePeriodSeconds"].as_i64(),
                    uid: text("uid"),
                    version: text("resourceVersion"),
                };
                let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
                let left = store.delete(&self.kind, &self.key, &options)?;
                Ok(left.map_or_else(|| Bytes::from(gone.to_string()), |object| object.text()))
            }
        }
    }

    fn list(&self, store: &Store, selector: &Selector) -> Bytes {
        let mut text = Vec::with_capacity(1024);
        let head = json!({"resourceVersion": store.version().to_string()});
        text.extend_from_slice(
            format!("{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{head},\"items\":[").as_bytes(),
        );
        for (index, object) in store.list(&self.kind, selector).iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&object.text());
        }
        text.extend_from_slice(b"]}");
        Bytes::from(text)
    }
}

fn version() -> Bytes {
    let version = json!({"major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    Bytes::from(version.to_string())
}
