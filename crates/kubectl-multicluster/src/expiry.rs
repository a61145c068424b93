//! When the credentials of a kubeconfig end.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::Value;

/// The end of the first credential that says it: a token's `exp`, or a client certificate's `notAfter`. `None`:
/// they do not end, or do not say so.
#[must_use]
pub(crate) fn expiry(kubeconfig: &str) -> Option<Timestamp> {
    let kubeconfig: Value = serde_yaml::from_str(kubeconfig).ok()?;
    let users = kubeconfig.get("users")?.as_array()?.iter().filter_map(|named| named.get("user"));
    let text = |user: &Value, field| user.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    users
        .filter_map(|user| {
            let token = text(user, "token").and_then(|token| of_token(&token));
            token.or_else(|| of_certificate(&text(user, "client-certificate-data")?))
        })
        .min()
}

/// The `exp` of a JSON Web Token; it is read, not verified.
fn of_token(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

fn of_certificate(data: &str) -> Option<Timestamp> {
    let pem = STANDARD.decode(data).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::expiry;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    #[track_caller]
    fn check(user: &str, want: Option<i64>) {
        let kubeconfig = format!("users:\n- name: u\n  user: {user}\n");
        assert_eq!(expiry(&kubeconfig).map(jiff::Timestamp::as_second), want);
    }

    #[test]
    fn a_token_says_when_it_ends() {
        let claims = URL_SAFE_NO_PAD.encode(br#"{"exp":1900000000}"#);
        check(&format!("{{token: h.{claims}.s}}"), Some(1_900_000_000));
    }

    #[test]
    fn what_is_no_web_token_does_not_say_it() {
        check("{token: abc}", None);
        check("{token: a.b.c}", None);
        check("{}", None);
    }
}
