//! Kubernetes quantities, exact down to one billionth.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde_json::Value;

const NANOS: i128 = 1_000_000_000;
/// Quantities with a binary suffix are capped here, as Kubernetes does.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', not {0:?}"
    )]
    Format(String),
    #[error("unable to parse the suffix of the quantity {0:?}")]
    Suffix(String),
    #[error("a quantity must be a string or a number")]
    Type,
}

/// The family of suffixes in which a quantity was written, and is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Format {
    /// `m`, `k`, `M`, …
    #[default]
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`, …
    Exponent,
}

/// An amount of a resource: a whole number of billionths of its unit.
///
/// Equality and order look at the amount alone; `1Ki` equals `1024`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing at all.
    pub const fn zero() -> Self {
        Self { nanos: 0, format: Format::Decimal }
    }

    /// `units` whole units, in decimal notation.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS, format: Format::Decimal }
    }

    /// `milli` thousandths of the unit, in decimal notation.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * (NANOS / 1000), format: Format::Decimal }
    }

    /// Reads a quantity as Kubernetes does: amounts below one billionth are rounded up to it, amounts with a
    /// binary suffix are capped at 2^63-1 units.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = split(text).ok_or_else(|| QuantityError::Format(text.to_owned()))?;
        let (base, exponent, format) =
            suffix(parts.suffix).ok_or_else(|| QuantityError::Suffix(text.to_owned()))?;
        let nanos = match base {
            Base::Ten => decimal(&parts, exponent),
            Base::Two => binary(&parts, exponent).min(BINARY_CAP),
        };
        let format = match format {
            Format::Binary if nanos > 0 && nanos < NANOS => Format::Decimal,
            other => other,
        };
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, format })
    }

    /// Reads a quantity from a manifest, where it may be a string or a number.
    pub fn from_json(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(QuantityError::Type),
        }
    }

    /// The amount in whole units, rounded away from zero.
    pub fn value(&self) -> i64 {
        saturate(divide_up(self.nanos, NANOS))
    }

    /// The amount in thousandths of the unit, rounded away from zero.
    pub fn milli(&self) -> i64 {
        saturate(divide_up(self.nanos, NANOS / 1000))
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// True if both are written in the same family of suffixes.
    pub(crate) fn is_written_like(&self, other: &Self) -> bool {
        self.format == other.format
    }

    /// The same amount, written as `other` is.
    pub(crate) fn written_like(self, other: &Self) -> Self {
        Self { format: other.format, ..self }
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// `self`, or nothing if it is negative.
    pub fn at_least_zero(self) -> Self {
        if self.is_negative() { Self { nanos: 0, ..self } } else { self }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl AddAssign<&Self> for Quantity {
    fn add_assign(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }
}

impl SubAssign<&Self> for Quantity {
    fn sub_assign(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_sub(other.nanos);
    }
}

impl Add for &Quantity {
    type Output = Quantity;

    fn add(self, other: Self) -> Quantity {
        let mut sum = *self;
        sum += other;
        sum
    }
}

impl Sub for &Quantity {
    type Output = Quantity;

    fn sub(self, other: Self) -> Quantity {
        let mut rest = *self;
        rest -= other;
        rest
    }
}

/// The canonical form: the largest suffix that needs no fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let units = self.nanos / NANOS;
        let whole = self.nanos % NANOS == 0;
        if self.format == Format::Binary && whole && units.abs() >= 1024 {
            let (number, power) = reduce(units, 1024, 6);
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power).copied().unwrap_or_default();
            return write!(f, "{number}{suffix}");
        }
        let (number, power) = reduce(self.nanos, 1000, if self.format == Format::Exponent { 99 } else { 9 });
        if self.format != Format::Exponent {
            let suffix =
                ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power).copied().unwrap_or_default();
            return write!(f, "{number}{suffix}");
        }
        match 3 * i64::try_from(power).unwrap_or_default() - 9 {
            0 => write!(f, "{number}"),
            exponent => write!(f, "{number}e{exponent}"),
        }
    }
}

/// Takes the factor `base` out of `number` as often as possible, at most `limit` times.
fn reduce(mut number: i128, base: i128, limit: usize) -> (i128, usize) {
    let mut power = 0;
    while power < limit && number % base == 0 {
        number /= base;
        power += 1;
    }
    (number, power)
}

/// Divides and rounds away from zero; `divisor` is positive.
fn divide_up(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 { quotient } else { quotient + number.signum() }
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

/// A quantity's text, taken apart.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Option<Parts<'_>> {
    if text.is_empty() {
        return None;
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = digits(rest);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let letters = rest.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let signless = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    let (_, left) = digits(signless);
    left.is_empty().then_some(Parts { negative, whole, fraction, suffix: rest })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[derive(Clone, Copy)]
enum Base {
    Two,
    Ten,
}

fn suffix(text: &str) -> Option<(Base, i32, Format)> {
    let decimal = |exponent| Some((Base::Ten, exponent, Format::Decimal));
    let binary = |exponent| Some((Base::Two, exponent, Format::Binary));
    match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
            // Beyond these bounds every amount is nothing more than "too large" or "one billionth".
            let exponent = i32::try_from(exponent.clamp(-200, 200)).ok()?;
            Some((Base::Ten, exponent, Format::Exponent))
        }
    }
}

/// The first `limit` digits as one number, how many of them stand after the point, and whether a digit other
/// than zero was left out. None if the digits before the point are already more than `limit`.
fn mantissa(parts: &Parts<'_>, limit: usize) -> Option<(i128, usize, bool)> {
    let kept = parts.fraction.len().min(limit.checked_sub(parts.whole.len())?);
    let (fraction, rest) = parts.fraction.split_at(kept);
    let number = parts
        .whole
        .bytes()
        .chain(fraction.bytes())
        .fold(0i128, |number, digit| number * 10 + i128::from(digit - b'0'));
    Some((number, kept, rest.bytes().any(|digit| digit != b'0')))
}

fn decimal(parts: &Parts<'_>, exponent: i32) -> i128 {
    let Some((number, places, more)) = mantissa(parts, 36) else { return i128::MAX };
    shift(number, exponent + 9 - i32::try_from(places).unwrap_or_default(), more)
}

fn binary(parts: &Parts<'_>, exponent: i32) -> i128 {
    let Some((number, places, more)) = mantissa(parts, 20) else { return i128::MAX };
    let number = number.saturating_mul(1i128 << exponent);
    shift(number, 9 - i32::try_from(places).unwrap_or_default(), more)
}

/// `number * 10^power`, rounded up; `more` says that `number` itself was cut off.
fn shift(number: i128, power: i32, more: bool) -> i128 {
    if number == 0 {
        return i128::from(more);
    }
    let factor = 10i128.checked_pow(power.unsigned_abs());
    match (factor, power >= 0) {
        (Some(factor), true) => number.saturating_mul(factor).saturating_add(i128::from(more)),
        (None, true) => i128::MAX,
        (Some(factor), false) => number / factor + i128::from(more || number % factor != 0),
        (None, false) => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, milli: i64, value: i64, canonical: &str) {
        let quantity = Quantity::parse(text).expect("a quantity");
        assert_eq!(
            (quantity.milli(), quantity.value(), quantity.to_string().as_str()),
            (milli, value, canonical),
            "{text}"
        );
    }

    #[test]
    fn suffixes_and_canonical_forms_are_those_of_kubernetes() {
        check("0", 0, 0, "0");
        check("1500m", 1500, 2, "1500m");
        check("1.5", 1500, 2, "1500m");
        check("0.001", 1, 1, "1m");
        check("0.0001", 1, 1, "100u");
        check("12e6", 12_000_000_000, 12_000_000, "12e6");
        check("1000", 1_000_000, 1000, "1k");
        check("1024", 1_024_000, 1024, "1024");
        check("1Ki", 1_024_000, 1024, "1Ki");
        check("0.5Ki", 512_000, 512, "512");
        check("1536Mi", 1_610_612_736_000, 1_610_612_736, "1536Mi");
        check("2048Mi", 2_147_483_648_000, 2_147_483_648, "2Gi");
        check("1.5Gi", 1_610_612_736_000, 1_610_612_736, "1536Mi");
        check("100k", 100_000_000, 100_000, "100k");
        check("-1.5", -1500, -2, "-1500m");
        check("+3", 3000, 3, "3");
        check("005", 5000, 5, "5");
        check("1E", i64::MAX, 1_000_000_000_000_000_000, "1E");
        check("1e3", 1_000_000, 1000, "1e3");
        check("8Ei", i64::MAX, i64::MAX, "9223372036854775807");
        check(
            "1e100",
            i64::MAX,
            i64::MAX,
            &Quantity { nanos: i128::MAX, format: Format::Exponent }.to_string(),
        );
    }

    #[test]
    fn less_than_a_billionth_is_rounded_up_to_one() {
        check("0.1n", 1, 1, "1n");
        check("1e-300", 1, 1, "1e-9");
        check("1.0000000001", 1001, 2, "1000000001n");
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", " 1", "1i", ".5i", "1.1.M", "0.1mi", "aoeu", "1 ", "1ee3", "1Kib", "--1"] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_sum_keeps_the_notation_of_its_first_operand() {
        let sum = |a: &str, b: &str| {
            (&Quantity::parse(a).expect("left") + &Quantity::parse(b).expect("right")).to_string()
        };
        assert_eq!(sum("1Gi", "1024Mi"), "2Gi");
        assert_eq!(sum("0", "1Gi"), "1Gi");
        assert_eq!(sum("500m", "1500m"), "2");
    }

    proptest! {
        #[test]
        fn the_canonical_form_reads_back_as_the_same_amount(
            number in 0u64..=u64::MAX / 4, places in 0usize..9, suffix in prop::sample::select(vec![
                "", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3",
            ]),
        ) {
            let digits = format!("{number:012}");
            let (whole, fraction) = digits.split_at(digits.len() - places);
            let quantity = Quantity::parse(&format!("{whole}.{fraction}{suffix}")).expect("a quantity");
            let again = Quantity::parse(&quantity.to_string()).expect("its canonical form");
            prop_assert_eq!(quantity, again);
            prop_assert_eq!(quantity.to_string(), again.to_string());
        }

        #[test]
        fn milli_and_value_are_rounded_up_and_no_further(nanos in 0i128..=1_000_000_000_000_000_000) {
            let quantity = Quantity { nanos, format: Format::Decimal };
            let (milli, value) = (i128::from(quantity.milli()), i128::from(quantity.value()));
            prop_assert!(milli * 1_000_000 >= nanos && (milli - 1) * 1_000_000 < nanos || nanos == 0 && milli == 0);
            prop_assert!(value * NANOS >= nanos && (value - 1) * NANOS < nanos || nanos == 0 && value == 0);
        }

        #[test]
        fn sums_and_differences_are_exact(a in 0i64..=i64::MAX / 4, b in 0i64..=i64::MAX / 4) {
            let (left, right) = (Quantity::from_milli(a), Quantity::from_milli(b));
            prop_assert_eq!((&left + &right).milli(), a + b);
            prop_assert_eq!(&(&left + &right) - &right, left);
        }
    }
}
