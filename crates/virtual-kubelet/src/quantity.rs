//! Quantities as far as virtual nodes calculate with them. Pure.

/// A quantity that is not negative, in billionths; `None` when it is none.
pub(crate) fn billionths(text: &str) -> Option<u128> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    let unit: u128 = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "M" => 1_000_000_000_000_000,
        "G" => 1_000_000_000_000_000_000,
        "T" => 1_000_000_000_000_000_000_000,
        "P" => 1_000_000_000_000_000_000_000_000,
        "E" => 1_000_000_000_000_000_000_000_000_000,
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        "Pi" => 1_000_000_000 << 50,
        "Ei" => 1_000_000_000 << 60,
        exponent => power(exponent.strip_prefix(['e', 'E'])?)?,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u128 = whole.parse().ok()?;
    let mut sum = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        sum = sum.checked_add(fraction.parse::<u128>().ok()?.checked_mul(unit)? / scale)?;
    }
    Some(sum)
}

fn power(exponent: &str) -> Option<u128> {
    let nine = 9_i32.checked_add(exponent.parse().ok()?)?;
    10_u128.checked_pow(u32::try_from(nine).ok()?)
}

/// The quantity of so many billionths, in thousandths where it is not whole, rounded down.
pub(crate) fn text(billionths: u128) -> String {
    const WHOLE: u128 = 1_000_000_000;
    if billionths.is_multiple_of(WHOLE) {
        return (billionths / WHOLE).to_string();
    }
    format!("{}m", billionths / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::{billionths, text};

    #[test]
    fn quantities_are_read_in_every_spelling() {
        for (spelling, want) in [
            ("0", 0),
            ("250m", 250_000_000),
            ("1.5", 1_500_000_000),
            ("1e3", 1_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000_000_000_000),
            ("1Ei", 1_152_921_504_606_846_976_000_000_000),
            ("64Mi", 67_108_864_000_000_000),
            ("5E-1", 500_000_000),
        ] {
            assert_eq!(billionths(spelling), Some(want), "{spelling}");
        }
        for wrong in ["", "m", "-1", "1x", "1.x", "one", "1 Gi", "1e99"] {
            assert_eq!(billionths(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_whole_is_told_in_thousandths() {
        assert_eq!(text(2_000_000_000), "2");
        assert_eq!(text(1_500_000_000), "1500m");
        assert_eq!(text(1), "0m");
    }
}
