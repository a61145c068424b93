//! The calls to OpenStack that Cluster API does not make: application credentials and server groups.
//!
//! Everything is found again by ID, or by a name that holds the UID of its WorkloadCluster; names alone are not unique
//! in a project. Secrets are never logged and appear in no error.

use reqwest::{Method, StatusCode};
use runtime::Class;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for an answer.
const DEADLINE: Duration = Duration::from_secs(20);
/// The first version of Nova's API in which a server group has one policy and not a list of them.
const ONE_POLICY: &str = "2.64";

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The `clouds.yaml` cannot be used.
    #[error("the clouds.yaml cannot be used: {0}")]
    Config(String),
    /// The cloud said no.
    #[error("cannot {verb}: the cloud answers {status}: {answer}")]
    Refused { verb: &'static str, status: StatusCode, answer: String },
    /// The cloud said nothing.
    #[error("cannot {verb}: the cloud does not answer")]
    Silent { verb: &'static str, source: reqwest::Error },
}

impl Error {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Config(_) => Class::Invalid,
            Self::Silent { .. } => Class::Unreachable,
            Self::Refused { status, .. } => match status.as_u16() {
                401 | 403 => Class::Forbidden,
                404 => Class::NotFound,
                409 => Class::Conflict,
                429 | 500..=599 => Class::Overloaded,
                _other => Class::Invalid,
            },
        }
    }
}

/// What a `clouds.yaml` says of one cloud.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    auth_url: String,
    region: Option<String>,
    interface: String,
    auth: Value,
}

impl Config {
    /// Reads one section.
    pub(crate) fn parse(text: &str, section: &str, region: Option<&str>) -> Result<Self, Error> {
        let bad = |problem: &str| Error::Config(problem.to_owned());
        let all: Value = serde_yaml::from_str(text).map_err(|_secret| bad("it is no YAML"))?;
        let cloud = &all["clouds"][section];
        let auth = &cloud["auth"];
        let word = |field: &str| auth[field].as_str().map(str::to_owned);
        let auth_url =
            word("auth_url").ok_or_else(|| Error::Config(format!("section {section} has no auth_url")))?;
        let auth = if let (Some(id), Some(secret)) =
            (word("application_credential_id"), word("application_credential_secret"))
        {
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"id": id, "secret": secret}}})
        } else {
            let (Some(user), Some(password)) = (word("username"), word("password")) else {
                return Err(bad("it has neither an application credential nor username and password"));
            };
            let domain = |id: &str, name: &str| match (word(id), word(name)) {
                (Some(id), _) => json!({"id": id}),
                (None, Some(name)) => json!({"name": name}),
                (None, None) => json!({"id": "default"}),
            };
            let project = match (word("project_id"), word("project_name")) {
                (Some(id), _) => json!({"id": id}),
                (None, Some(name)) => {
                    json!({"name": name, "domain": domain("project_domain_id", "project_domain_name")})
                }
                (None, None) => return Err(bad("it names no project")),
            };
            let user = json!({"name": user, "password": password,
                "domain": domain("user_domain_id", "user_domain_name")});
            json!({"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": project}})
        };
        Ok(Self {
            auth_url: base(&auth_url),
            region: region.map(str::to_owned).or_else(|| cloud["region_name"].as_str().map(str::to_owned)),
            interface: cloud["interface"].as_str().unwrap_or("public").to_owned(),
            auth,
        })
    }

    /// A `clouds.yaml` of one cloud with an application credential.
    pub(crate) fn clouds_yaml(&self, section: &str, (id, secret): (&str, &str)) -> String {
        let mut cloud = json!({
            "auth_type": "v3applicationcredential",
            "auth": {"auth_url": self.auth_url, "application_credential_id": id, "application_credential_secret": secret},
            "identity_api_version": 3,
            "interface": self.interface,
        });
        if let Some(region) = &self.region {
            cloud["region_name"] = json!(region);
        }
        json!({"clouds": {section: cloud}}).to_string()
    }
}

/// The address of Keystone with its version, which some files leave out.
fn base(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.ends_with("/v3") { url.to_owned() } else { format!("{url}/v3") }
}

/// An application credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// A server group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its ID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its policy, in the words of the cloud.
    pub policy: String,
}

/// A project that has let us in.
pub(crate) struct Session {
    http: reqwest::Client,
    config: Config,
    token: String,
    user: String,
    pub(crate) project: String,
    endpoints: BTreeMap<String, String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Session {
    /// Logs in.
    pub(crate) async fn open(config: Config, authority: Option<&str>) -> Result<Self, Error> {
        let mut builder = reqwest::Client::builder().timeout(DEADLINE);
        if let Some(pem) = authority.filter(|pem| !pem.is_empty()) {
            let certificate = reqwest::Certificate::from_pem(pem.as_bytes())
                .map_err(|_not_pem| Error::Config("the CA certificate is no PEM".to_owned()))?;
            builder = builder.add_root_certificate(certificate);
        }
        let verb = "log in";
        let http = builder.build().map_err(|source| Error::Silent { verb, source })?;
        let url = format!("{}/auth/tokens", config.auth_url);
        let answer = http.post(url).json(&json!({"auth": config.auth})).send().await;
        let answer = answer.map_err(|source| Error::Silent { verb, source })?;
        let header = answer.headers().get("x-subject-token").and_then(|token| token.to_str().ok());
        let token = header.unwrap_or_default().to_owned();
        let body = body(verb, answer).await?;
        let token_body = &body["token"];
        let mut endpoints = BTreeMap::new();
        for service in token_body["catalog"].as_array().into_iter().flatten() {
            let fits = |endpoint: &&Value| {
                endpoint["interface"] == config.interface.as_str()
                    && config.region.as_ref().is_none_or(|region| endpoint["region"] == region.as_str())
            };
            if let Some(endpoint) = service["endpoints"].as_array().into_iter().flatten().find(fits) {
                endpoints
                    .insert(text(&service["type"]), text(&endpoint["url"]).trim_end_matches('/').to_owned());
            }
        }
        Ok(Self {
            http,
            token,
            user: text(&token_body["user"]["id"]),
            project: text(&token_body["project"]["id"]),
            endpoints,
            config,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    async fn call(
        &self,
        verb: &'static str,
        (method, url): (Method, String),
        content: Option<Value>,
    ) -> Result<Value, Error> {
        let mut request = self
            .http
            .request(method, url)
            .header("x-auth-token", &self.token)
            .header("openstack-api-version", format!("compute {ONE_POLICY}"));
        if let Some(content) = content {
            request = request.json(&content);
        }
        let answer = request.send().await.map_err(|source| Error::Silent { verb, source })?;
        body(verb, answer).await
    }

    fn credentials_url(&self) -> String {
        format!("{}/users/{}/application_credentials", self.config.auth_url, self.user)
    }

    /// All application credentials of the user.
    pub(crate) async fn credentials(&self) -> Result<Vec<Credential>, Error> {
        let answer =
            self.call("list application credentials", (Method::GET, self.credentials_url()), None).await?;
        let all = answer["application_credentials"].as_array();
        Ok(all
            .into_iter()
            .flatten()
            .map(|one| Credential { id: text(&one["id"]), name: text(&one["name"]) })
            .collect())
    }

    /// Makes a restricted one; the secret is told this once. A credential that may not delegate is refused.
    pub(crate) async fn create_credential(
        &self,
        name: &str,
        expires: Option<&str>,
    ) -> Result<(String, String), Error> {
        let mut of = json!({"name": name, "unrestricted": false,
            "description": "made by multicluster-scheduler for one cluster"});
        if let Some(expires) = expires {
            of["expires_at"] = json!(expires);
        }
        let content = json!({"application_credential": of});
        let verb = "create an application credential";
        let answer = self.call(verb, (Method::POST, self.credentials_url()), Some(content)).await?;
        let made = &answer["application_credential"];
        Ok((text(&made["id"]), text(&made["secret"])))
    }

    /// Deletes one; one that is gone is good.
    pub(crate) async fn delete_credential(&self, id: &str) -> Result<(), Error> {
        let url = format!("{}/{id}", self.credentials_url());
        gone_is_good(self.call("delete an application credential", (Method::DELETE, url), None).await)
    }

    fn groups_url(&self) -> Result<String, Error> {
        let compute = self.endpoints.get("compute");
        let compute = compute.ok_or_else(|| Error::Config("the cloud has no compute service".to_owned()))?;
        Ok(format!("{compute}/os-server-groups"))
    }

    /// All server groups of the project.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>, Error> {
        let answer = self.call("list server groups", (Method::GET, self.groups_url()?), None).await?;
        let all = answer["server_groups"].as_array();
        Ok(all.into_iter().flatten().map(group).collect())
    }

    /// Makes one.
    pub(crate) async fn create_group(&self, name: &str, policy: &str) -> Result<Group, Error> {
        let content = json!({"server_group": {"name": name, "policy": policy}});
        let answer =
            self.call("create a server group", (Method::POST, self.groups_url()?), Some(content)).await?;
        Ok(group(&answer["server_group"]))
    }

    /// Deletes one; one that is gone is good.
    pub(crate) async fn delete_group(&self, id: &str) -> Result<(), Error> {
        let url = format!("{}/{id}", self.groups_url()?);
        gone_is_good(self.call("delete a server group", (Method::DELETE, url), None).await)
    }
}

/// An older Nova answers with a list.
fn group(value: &Value) -> Group {
    let policy = value["policy"].as_str().or_else(|| value["policies"][0].as_str());
    Group {
        id: text(&value["id"]),
        name: text(&value["name"]),
        policy: policy.unwrap_or_default().to_owned(),
    }
}

fn gone_is_good(outcome: Result<Value, Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.class() == Class::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// The answer, or what the cloud says went wrong.
async fn body(verb: &'static str, answer: reqwest::Response) -> Result<Value, Error> {
    let status = answer.status();
    let text = answer.text().await.map_err(|source| Error::Silent { verb, source })?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    // Each service wraps its words in another word.
    let said =
        value.as_object().and_then(|fields| fields.values().find_map(|inner| inner["message"].as_str()));
    let answer = said.map_or_else(|| text.chars().take(300).collect(), str::to_owned);
    Err(Error::Refused { verb, status, answer })
}

#[cfg(test)]
mod tests;
