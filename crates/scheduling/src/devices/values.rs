//! Devices, quantities, and versions as values of CEL expressions.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::common::traits::{Container, Indexer, Iterable, Iterator as CelIterator, Sizer};
use cel::common::types::{CelBool, CelInt, CelMap, CelMapKey, CelString, MAP_TYPE, Type};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use crate::devices::slice::{Attribute, Device};
use crate::quantity::Quantity;

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");
static SEMVER: Type = Type::new_unspecified_type("kubernetes.Semver");
static DEVICE: Type = Type::new_unspecified_type("kubernetes.DRADevice");

type Values = HashMap<CelMapKey<'static>, Box<dyn Val + 'static>>;

/// A device as the variable `device`.
#[derive(Debug, Clone)]
pub(crate) struct Input(Arc<Fields>);

#[derive(Debug)]
struct Fields {
    driver: CelString<'static>,
    shareable: CelBool,
    attributes: Domains,
    capacity: Domains,
}

impl Input {
    /// Names without a domain are in the driver's.
    pub(crate) fn of(driver: &str, device: &Device) -> Result<Self, String> {
        let mut attributes: BTreeMap<&str, Values> = BTreeMap::new();
        for (name, value) in &device.attributes {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            let value = value_of(value).map_err(|problem| format!("attribute {name}: {problem}"))?;
            attributes.entry(domain).or_default().insert(CelMapKey::from(id.to_owned()), value);
        }
        let mut capacity: BTreeMap<&str, Values> = BTreeMap::new();
        for (name, amount) in &device.capacity {
            let (domain, id) = name.split_once('/').unwrap_or((driver, name));
            let value = Box::new(Amount(amount.value));
            capacity.entry(domain).or_default().insert(CelMapKey::from(id.to_owned()), value);
        }
        Ok(Self(Arc::new(Fields {
            driver: CelString::from(driver.to_owned()),
            shareable: CelBool::from(device.shareable),
            attributes: Domains::new(attributes),
            capacity: Domains::new(capacity),
        })))
    }
}

fn value_of(attribute: &Attribute) -> Result<Box<dyn Val + 'static>, String> {
    Ok(match attribute {
        Attribute::Int(number) => Box::new(CelInt::from(*number)),
        Attribute::Bool(flag) => Box::new(CelBool::from(*flag)),
        Attribute::Text(text) => Box::new(CelString::from(text.clone())),
        Attribute::Version(text) => {
            let version = text.parse().map_err(|error| format!("parse semantic version: {error}"))?;
            Box::new(Version(version))
        }
        Attribute::Unknown => return Err("unsupported attribute value".to_owned()),
    })
}

fn text_of(value: &dyn Val) -> Option<String> {
    value.downcast_ref::<CelString<'_>>().map(|text| text.inner().to_owned())
}

impl Val for Input {
    fn get_type(&self) -> &Type {
        &DEVICE
    }

    fn cel_type() -> &'static Type {
        &DEVICE
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Input {}

impl Indexer for Input {
    fn get<'b, 'v>(&'b self, field: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = text_of(field).unwrap_or_default();
        Ok(match name.as_str() {
            "driver" => CowVal::Borrowed(&self.0.driver),
            "allowMultipleAllocations" => CowVal::Borrowed(&self.0.shareable),
            "attributes" => CowVal::Borrowed(&self.0.attributes),
            "capacity" => CowVal::Borrowed(&self.0.capacity),
            other => return Err(ExecutionError::no_such_key(other)),
        })
    }

    fn steal<'v>(self: Box<Self>, field: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(field).map(CowVal::into_owned)
    }
}

/// Maps by domain. A domain of which the device says nothing is an empty map.
#[derive(Debug, Clone, Default)]
struct Domains {
    maps: Arc<CelMap<'static>>,
    nothing: Arc<CelMap<'static>>,
}

impl Domains {
    fn new(maps: BTreeMap<&str, Values>) -> Self {
        let maps = maps.into_iter().map(|(domain, values)| {
            let map: Box<dyn Val + 'static> = Box::new(CelMap::from(values));
            (CelMapKey::from(domain.to_owned()), map)
        });
        let maps: Values = maps.collect();
        Self { maps: Arc::new(CelMap::from(maps)), nothing: Arc::default() }
    }
}

impl Val for Domains {
    fn get_type(&self) -> &Type {
        &MAP_TYPE
    }

    fn cel_type() -> &'static Type {
        &MAP_TYPE
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Domains {}

impl Container for Domains {
    fn contains(&self, value: &dyn Val) -> Result<bool, ExecutionError> {
        self.maps.contains(value)
    }
}

impl Indexer for Domains {
    fn get<'b, 'v>(&'b self, domain: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match self.maps.get(domain) {
            Err(ExecutionError::NoSuchKey(_)) => Ok(CowVal::Borrowed(&*self.nothing)),
            found => found,
        }
    }

    fn steal<'v>(self: Box<Self>, domain: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(domain).map(CowVal::into_owned)
    }
}

impl Iterable for Domains {
    fn iter<'b, 'v>(&'b self) -> Box<dyn CelIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        self.maps.iter()
    }
}

impl Sizer for Domains {
    fn size(&self) -> CelInt {
        self.maps.size()
    }
}

/// A quantity.
#[derive(Debug, Clone, Copy)]
struct Amount(Quantity);

impl Val for Amount {
    fn get_type(&self) -> &Type {
        &QUANTITY
    }

    fn cel_type() -> &'static Type {
        &QUANTITY
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other.0 == self.0)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(*self)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Amount {}

/// A semantic version. What a build is called does not count.
#[derive(Debug, Clone)]
struct Version(semver::Version);

impl Val for Version {
    fn get_type(&self) -> &Type {
        &SEMVER
    }

    fn cel_type() -> &'static Type {
        &SEMVER
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other.0.cmp_precedence(&self.0).is_eq())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Version {}

fn sign_of(order: Ordering) -> CelInt {
    CelInt::from(match order {
        Ordering::Less => -1_i64,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

/// Parses a version; `lenient` as the second argument of `semver()`: a leading `v`, missing numbers, leading zeros.
fn version(text: &str, lenient: bool) -> Result<Version, String> {
    let text = if lenient { normalized(text) } else { text.to_owned() };
    text.parse().map(Version).map_err(|error: semver::Error| error.to_string())
}

fn normalized(text: &str) -> String {
    let mut parts: Vec<String> =
        text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(without_leading_zeros).collect();
    if parts.len() < 3 {
        // Where numbers are missing, what follows the last one stays behind it.
        let last = parts.pop().unwrap_or_default();
        let at = last.find(['+', '-']).unwrap_or(last.len());
        let (number, rest) = last.split_at(at);
        parts.push(number.to_owned());
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        if let Some(patch) = parts.last_mut() {
            patch.push_str(rest);
        }
    }
    parts.join(".")
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let short = part.trim_start_matches('0');
    if short.starts_with(|c: char| c.is_ascii_digit()) { short.to_owned() } else { format!("0{short}") }
}

fn failed(message: impl ToString) -> ExecutionError {
    ExecutionError::function_error("", message)
}

fn parse_quantity(text: &CelString<'_>) -> Result<Amount, ExecutionError> {
    Quantity::parse(text.inner()).map(Amount).map_err(failed)
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(Quantity::parse(text.inner()).is_ok())
}

fn sign(amount: &Amount) -> CelInt {
    sign_of(amount.0.cmp(&Quantity::zero()))
}

fn more(this: &Amount, other: &Amount) -> CelBool {
    CelBool::from(this.0 > other.0)
}

fn less(this: &Amount, other: &Amount) -> CelBool {
    CelBool::from(this.0 < other.0)
}

fn compare(this: &Amount, other: &Amount) -> CelInt {
    sign_of(this.0.cmp(&other.0))
}

/// The amount, if it is a whole number of 64 bits.
fn whole(amount: &Amount) -> Option<i64> {
    Some(amount.0.value()).filter(|units| Quantity::from_units(*units) == amount.0)
}

fn is_integer(this: &Amount) -> CelBool {
    CelBool::from(whole(this).is_some())
}

fn as_integer(this: &Amount) -> Result<CelInt, ExecutionError> {
    whole(this).map(CelInt::from).ok_or_else(|| failed("cannot convert value to integer"))
}

fn add(this: &Amount, other: &Amount) -> Amount {
    Amount(&this.0 + &other.0)
}

fn add_int(this: &Amount, other: &CelInt) -> Amount {
    Amount(&this.0 + &Quantity::from_units(*other.inner()))
}

fn sub(this: &Amount, other: &Amount) -> Amount {
    Amount(&this.0 - &other.0)
}

fn sub_int(this: &Amount, other: &CelInt) -> Amount {
    Amount(&this.0 - &Quantity::from_units(*other.inner()))
}

fn parse_version(text: &CelString<'_>) -> Result<Version, ExecutionError> {
    version(text.inner(), false).map_err(failed)
}

fn parse_leniently(text: &CelString<'_>, lenient: &CelBool) -> Result<Version, ExecutionError> {
    version(text.inner(), *lenient.inner()).map_err(failed)
}

fn is_version(text: &CelString<'_>) -> CelBool {
    CelBool::from(version(text.inner(), false).is_ok())
}

fn is_version_leniently(text: &CelString<'_>, lenient: &CelBool) -> CelBool {
    CelBool::from(version(text.inner(), *lenient.inner()).is_ok())
}

fn later(this: &Version, other: &Version) -> CelBool {
    CelBool::from(this.0.cmp_precedence(&other.0).is_gt())
}

fn earlier(this: &Version, other: &Version) -> CelBool {
    CelBool::from(this.0.cmp_precedence(&other.0).is_lt())
}

fn compare_versions(this: &Version, other: &Version) -> CelInt {
    sign_of(this.0.cmp_precedence(&other.0))
}

fn number(of: u64) -> CelInt {
    CelInt::from(i64::try_from(of).unwrap_or(i64::MAX))
}

fn major(this: &Version) -> CelInt {
    number(this.0.major)
}

fn minor(this: &Version) -> CelInt {
    number(this.0.minor)
}

fn patch(this: &Version) -> CelInt {
    number(this.0.patch)
}

/// Kubernetes' functions over quantities and versions.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(Type::new_unspecified_type("kubernetes.Quantity"))?;
    env.add_type(Type::new_unspecified_type("kubernetes.Semver"))?;
    cel::add_overload!(env, fn parse_quantity: (CelString<'_>) -> Result<Amount>, name = "quantity")?;
    cel::add_overload!(env, fn is_quantity: (CelString<'_>) -> CelBool)?;
    cel::add_overload!(env, fn sign: (Amount) -> CelInt)?;
    cel::add_member_overload!(env, fn more: (Amount, Amount) -> CelBool, name = "isGreaterThan")?;
    cel::add_member_overload!(env, fn less: (Amount, Amount) -> CelBool, name = "isLessThan")?;
    cel::add_member_overload!(env, fn compare: (Amount, Amount) -> CelInt, name = "compareTo")?;
    cel::add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    cel::add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    cel::add_member_overload!(env, fn add: (Amount, Amount) -> Amount)?;
    cel::add_member_overload!(env, fn add_int: (Amount, CelInt) -> Amount, name = "add")?;
    cel::add_member_overload!(env, fn sub: (Amount, Amount) -> Amount)?;
    cel::add_member_overload!(env, fn sub_int: (Amount, CelInt) -> Amount, name = "sub")?;
    cel::add_overload!(env, fn parse_version: (CelString<'_>) -> Result<Version>, name = "semver")?;
    cel::add_overload!(env, fn parse_leniently: (CelString<'_>, CelBool) -> Result<Version>, name = "semver")?;
    cel::add_overload!(env, fn is_version: (CelString<'_>) -> CelBool, name = "isSemver")?;
    cel::add_overload!(env, fn is_version_leniently: (CelString<'_>, CelBool) -> CelBool, name = "isSemver")?;
    cel::add_member_overload!(env, fn later: (Version, Version) -> CelBool, name = "isGreaterThan")?;
    cel::add_member_overload!(env, fn earlier: (Version, Version) -> CelBool, name = "isLessThan")?;
    cel::add_member_overload!(env, fn compare_versions: (Version, Version) -> CelInt, name = "compareTo")?;
    cel::add_member_overload!(env, fn major: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn minor: (Version) -> CelInt)?;
    cel::add_member_overload!(env, fn patch: (Version) -> CelInt)
}
