//! The envelope of an admission review, version v1: what comes in stays raw, what goes out is small.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The only version that is spoken.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// What the API server sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// [`API_VERSION`].
    pub api_version: String,
    /// What is to be judged.
    #[serde(borrow)]
    pub request: Request<'a>,
}

/// What is to be judged. Objects are the bytes that came in.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Identity of the review, given back in the answer.
    pub uid: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// What kind of object.
    #[serde(default)]
    pub resource: Resource,
    /// Empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// Namespace of the request; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// Name in the request; empty when it is to be generated.
    #[serde(default)]
    pub name: String,
    /// Who asks.
    #[serde(default)]
    pub user_info: User,
    /// The object as it is to become.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it is.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
}

/// Group and plural name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

/// Who asks.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// User name, as authenticated.
    pub username: String,
}

impl Request<'_> {
    /// Whether an object is to be created, and no part of one.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.operation == "CREATE" && self.sub_resource.is_empty()
    }

    /// Whether an object is to be changed, and no subresource of one.
    #[must_use]
    pub fn is_update(&self) -> bool {
        self.operation == "UPDATE" && self.sub_resource.is_empty()
    }
}

/// The answer to one review.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Admitted, after these JSON patch operations; warnings are shown to the user.
    Allowed {
        /// Operations of RFC 6902, in order; none when nothing is to change.
        patch: Vec<Value>,
        /// One line each.
        warnings: Vec<String>,
    },
    /// Refused.
    Denied {
        /// HTTP status, as the user sees it.
        code: u16,
        /// What is wrong and what to do about it.
        message: String,
    },
}

impl Verdict {
    /// Admitted as it is.
    #[must_use]
    pub fn unchanged() -> Self {
        Verdict::Allowed { patch: Vec::new(), warnings: Vec::new() }
    }

    /// Refused because the request is not allowed.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Verdict::Denied { code: 403, message: message.into() }
    }

    /// Refused because a field is invalid.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Verdict::Denied { code: 422, message: message.into() }
    }

    /// The word for a metric label.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Allowed { patch, .. } if patch.is_empty() => "allowed",
            Verdict::Allowed { .. } => "patched",
            Verdict::Denied { .. } => "denied",
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'static str,
    message: &'a str,
}

/// The body of the answer.
///
/// # Errors
///
/// Never for what this crate makes; the caller answers 500.
pub fn answer(uid: &str, verdict: &Verdict) -> serde_json::Result<Vec<u8>> {
    let response = match verdict {
        Verdict::Allowed { patch, warnings } => {
            let encoded =
                if patch.is_empty() { None } else { Some(STANDARD.encode(serde_json::to_vec(patch)?)) };
            let patch_type = encoded.is_some().then_some("JSONPatch");
            Response { uid, allowed: true, status: None, patch_type, patch: encoded, warnings }
        }
        Verdict::Denied { code, message } => {
            let reason = if *code == 422 { "Invalid" } else { "Forbidden" };
            let status = Some(Status { code: *code, reason, message });
            Response { uid, allowed: false, status, patch_type: None, patch: None, warnings: &[] }
        }
    };
    serde_json::to_vec(&Answer { api_version: API_VERSION, kind: "AdmissionReview", response })
}
