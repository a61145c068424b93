//! Values with a rule of their own, and schemas that no attribute can say.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $longest:literal, $rule:literal, $message:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "maxLength": $longest,
                    "x-kubernetes-validations": [{"rule": $rule, "message": $message}],
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

text!(
    /// A range of addresses, as `192.0.2.0/24`.
    Cidr, 43, "isCIDR(self)", "must be a CIDR"
);
text!(
    /// An address.
    Ip, 45, "isIP(self)", "must be an IP address"
);

/// One key of a Secret, or of a ConfigMap where the field says so, beside the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Whatever the user writes.
pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// An object of whatever fields the user writes.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Labels of nodes.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63}})
}

/// Metadata of servers and images, and names by pool.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 255}})
}

/// A set of ranges.
pub(crate) fn cidrs(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 64, "x-kubernetes-list-type": "set",
        "items": Cidr::json_schema(generator)})
}

/// A set of short names.
pub(crate) fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 253}})
}

/// A list of shell commands.
pub(crate) fn commands(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 64,
        "items": {"type": "string", "maxLength": 10240}})
}

/// The schema of a version of an add-on.
pub(crate) const VERSION: &str = r"^(auto|v?\d+\.\d+\.\d+([-+][0-9A-Za-z.-]+)?)$";
