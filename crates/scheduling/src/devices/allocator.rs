//! The search for devices: every claim's requests in turn, every device in order, with a step back where it fails.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::devices::allocation::{Allocation, Amounts};
use crate::devices::capacity::{consumed, is_left};
use crate::devices::claim::{Ask, Mode, ResourceClaim};
use crate::devices::class::DeviceClass;
use crate::devices::common::{Choice, Held};
use crate::devices::pool::{Pool, gather};
use crate::devices::result::allocation;
use crate::devices::selector::{Failure, Input, Selector};
use crate::devices::slice::{Counters, Device, DeviceId, ResourceSlice};
use crate::devices::store::Devices;
use crate::node::NodeInfo;
use crate::quantity::Quantity;

/// No claim gets more devices.
const MOST: usize = 32;

/// A search that has looked at so many choices is given up. Upstream gives up after ten seconds.
const PATIENCE: usize = 2_000_000;

/// Why a search ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failed {
    /// This node cannot be judged; others may be fine.
    Node(String),
    /// A claim or a class is broken.
    Everywhere(String),
}

/// Why a branch of the search ended.
enum End {
    /// The claim would get more devices than it may.
    TooMany,
    Failed(Failed),
}

fn fatal(problem: String) -> End {
    End::Failed(Failed::Everywhere(problem))
}

/// A request, or one of its alternatives, by position: claim, request, alternative.
pub(super) type Key = (usize, usize, usize);

/// A device by position: pool, slice, device.
type Place = (usize, usize, usize);

/// What is known of a request or one of its alternatives.
pub(super) struct Data<'a> {
    pub(super) ask: &'a Ask,
    /// The name of the request to which the alternative belongs.
    pub(super) parent: Option<&'a str>,
    pub(super) class: &'a DeviceClass,
    count: usize,
    /// Where all devices are asked for, these.
    all: Vec<Place>,
}

impl Data<'_> {
    /// `request` or `request/alternative`.
    pub(super) fn name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{parent}/{}", self.ask.name),
            None => self.ask.name.clone(),
        }
    }
}

/// A device that is chosen.
pub(super) struct Chosen<'a> {
    pub(super) key: Key,
    pub(super) slice: &'a ResourceSlice,
    pub(super) device: &'a Device,
    /// What it takes, where it is a part of a device.
    pub(super) share: Option<Amounts>,
}

/// What one choice has changed, to be undone.
#[derive(Default)]
struct Undo {
    counters: bool,
    constraints: usize,
    marked: bool,
    share: Option<Amounts>,
    result: bool,
}

/// Which device of which request is looked for.
#[derive(Clone, Copy)]
struct At {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
}

impl At {
    fn key(self) -> Key {
        (self.claim, self.request, self.alternative)
    }
}

pub(super) struct Search<'a> {
    devices: &'a Devices,
    pub(super) node: &'a NodeInfo,
    pub(super) claims: &'a [&'a ResourceClaim],
    pools: Vec<Pool<'a>>,
    pub(super) data: HashMap<Key, Data<'a>>,
    /// Which alternative was taken, by claim and request.
    pub(super) taken: HashMap<(usize, usize), usize>,
    selectable: HashMap<(Key, Place), bool>,
    constraints: Vec<Vec<Held<'a>>>,
    /// For which claims a device is chosen as a whole.
    marked: HashMap<Place, BTreeSet<usize>>,
    /// Parts of devices that are chosen: how many, and what they take.
    shares: HashMap<Place, (usize, Amounts)>,
    /// Counters of each pool: what is left by claims that have their devices, and what this search takes.
    left: HashMap<usize, BTreeMap<&'a str, Counters>>,
    counted: HashMap<usize, BTreeMap<&'a str, Counters>>,
    pub(super) chosen: Vec<Vec<Chosen<'a>>>,
    steps: usize,
}

/// Finds devices for claims on a node: an allocation for each, or None if there are not enough.
pub(crate) fn allocate(
    devices: &Devices,
    node: &NodeInfo,
    claims: &[&ResourceClaim],
) -> Result<Option<Vec<Allocation>>, Failed> {
    let mut search = Search {
        devices,
        node,
        claims,
        pools: gather(devices.slices(), node),
        data: HashMap::new(),
        taken: HashMap::new(),
        selectable: HashMap::new(),
        constraints: Vec::new(),
        marked: HashMap::new(),
        shares: HashMap::new(),
        left: HashMap::new(),
        counted: HashMap::new(),
        chosen: claims.iter().map(|_| Vec::new()).collect(),
        steps: 0,
    };
    search.check().map_err(|end| search.failed(end))?;
    let start = At { claim: 0, request: 0, alternative: 0, device: 0 };
    match search.next(start, false, (0, 0, 0)) {
        Ok(true) => {
            (0..claims.len()).map(|claim| allocation(&search, claim)).collect::<Result<_, _>>().map(Some)
        }
        Ok(false) if search.pools.iter().any(|pool| pool.invalid) => {
            Err(Failed::Node("invalid resource pools were encountered".to_owned()))
        }
        Ok(false) => Ok(None),
        Err(end) => Err(search.failed(end)),
    }
}

impl<'a> Search<'a> {
    fn failed(&self, end: End) -> Failed {
        match end {
            End::Failed(failed) => failed,
            End::TooMany => Failed::Everywhere("allocation max size exceeded".to_owned()),
        }
    }

    /// Looks through the claims before any device is chosen.
    fn check(&mut self) -> Result<(), End> {
        let claims = self.claims;
        for (index, claim) in claims.iter().enumerate() {
            let mut sum = 0;
            for (number, request) in claim.requests.iter().enumerate() {
                let mut fewest = usize::MAX;
                let parent = request.has_alternatives().then_some(request.name.as_str());
                for (alternative, ask) in request.asks().iter().enumerate() {
                    let key = (index, number, alternative);
                    let data = self.check_ask(key, ask, parent)?;
                    fewest = fewest.min(data.count);
                    self.data.insert(key, data);
                }
                if fewest > MOST - sum {
                    return Err(fatal(format!(
                        "claim {}, request {}: adding {fewest} devices exceeds the claim limit of {MOST}, with {sum} \
                         already accounted for",
                        claim.key(),
                        request.name
                    )));
                }
                sum += fewest;
            }
            let mut constraints = Vec::new();
            for (number, constraint) in claim.constraints.iter().enumerate() {
                if constraint.rule == crate::devices::claim::Rule::Unknown {
                    return Err(fatal(format!(
                        "claim {}, constraint #{number}: empty constraint (unsupported constraint type?)",
                        claim.key()
                    )));
                }
                constraints.push(Held::new(constraint));
            }
            self.constraints.push(constraints);
        }
        Ok(())
    }

    fn check_ask(&mut self, key: Key, ask: &'a Ask, parent: Option<&'a str>) -> Result<Data<'a>, End> {
        let place = format!("claim {}, request {}", self.claims[key.0].key(), ask.name);
        if ask.derived {
            return Err(fatal(format!(
                "{place}: cannot handle request with derived attributes, the feature is disabled"
            )));
        }
        if let Some(number) = ask.selectors.iter().position(Option::is_none) {
            return Err(fatal(format!(
                "{place}, selector #{number}: CEL expression empty (unsupported selector type?)"
            )));
        }
        if ask.class.is_empty() {
            return Err(fatal(format!("{place}: missing device class name (unsupported request type?)")));
        }
        let Some(class) = self.devices.class(&ask.class) else {
            let class = &ask.class;
            return Err(fatal(format!(
                "{place}: could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found"
            )));
        };
        let mut data = Data { ask, parent, class, count: 0, all: Vec::new() };
        match &ask.mode {
            Mode::Exactly(count) => data.count = usize::try_from(*count).unwrap_or(0),
            Mode::All => {
                data.all = self.all_devices(key, &data, &place)?;
                data.count = data.all.len();
            }
            Mode::Unknown(mode) => return Err(fatal(format!("{place}: unsupported count mode {mode}"))),
        }
        Ok(data)
    }

    /// Every device that matches, whoever has it.
    fn all_devices(&mut self, key: Key, data: &Data<'a>, place: &str) -> Result<Vec<Place>, End> {
        let mut all = Vec::new();
        for pool in 0..self.pools.len() {
            let problem = match &self.pools[pool] {
                Pool { incomplete: true, .. } => "being updated",
                Pool { invalid: true, .. } => "invalid",
                _ => "",
            };
            if !problem.is_empty() {
                let id = self.pools[pool].id;
                return Err(fatal(format!(
                    "{place}: asks for all devices, but resource pool {id} is currently {problem}"
                )));
            }
            for at in self.places(pool) {
                if !self.is_selectable(key, data, at)? {
                    continue;
                }
                let Some((_, device)) = self.device(at) else { continue };
                let fits = is_left(device, &data.ask.capacity, None, None).map_err(|problem| {
                    fatal(format!("{place}: checking capacity for device {}: {problem}", device.name))
                })?;
                if fits {
                    all.push(at);
                }
            }
        }
        Ok(all)
    }

    /// Where the devices of a pool are.
    fn places(&self, pool: usize) -> Vec<Place> {
        let slices = self.pools[pool].slices.iter().enumerate();
        slices
            .flat_map(|(slice, its)| (0..its.devices.len()).map(move |device| (pool, slice, device)))
            .collect()
    }

    fn device(&self, (pool, slice, device): Place) -> Option<(&'a ResourceSlice, &'a Device)> {
        self.pools.get(pool)?.device(slice, device)
    }

    fn id(slice: &ResourceSlice, device: &Device) -> DeviceId {
        DeviceId { pool: slice.id.clone(), device: Arc::clone(&device.name) }
    }

    /// Does the device satisfy the selectors of class and request, and can the node reach it?
    fn is_selectable(&mut self, key: Key, data: &Data<'a>, at: Place) -> Result<bool, End> {
        if let Some(known) = self.selectable.get(&(key, at)) {
            return Ok(*known);
        }
        let Some((slice, device)) = self.device(at) else { return Ok(false) };
        let claim = self.claims[key.0].key();
        let by_class = || format!("class {}", data.class.name);
        let by_claim = || format!("claim {claim}");
        let matches = select(slice, device, &data.class.selectors, &by_class)?
            && select(slice, device, &data.ask.selectors, &by_claim)?
            && (!slice.per_device || device.access.reaches(self.node));
        self.selectable.insert((key, at), matches);
        Ok(matches)
    }

    /// Looks for the device at `at` and all that come after it. In an alternative, `chosen` says that it is the one.
    fn next(&mut self, at: At, chosen: bool, start: Place) -> Result<bool, End> {
        self.steps += 1;
        if self.steps > PATIENCE {
            let node = &self.node.name;
            return Err(fatal(format!("node {node}: timed out trying to allocate devices")));
        }
        let Some(claim) = self.claims.get(at.claim) else { return Ok(true) };
        if at.request >= claim.requests.len() {
            let next = At { claim: at.claim + 1, request: 0, alternative: 0, device: 0 };
            return match self.next(next, false, (0, 0, 0)) {
                Err(End::TooMany) => Ok(false),
                other => other,
            };
        }
        let Some(data) = self.data.get(&at.key()) else { return Ok(false) };
        if !chosen && data.parent.is_some() {
            return self.alternatives(at);
        }
        let (all, count) = (data.ask.mode == Mode::All, data.count);
        if all && count == 0 {
            return Ok(false);
        }
        if at.device >= count {
            let next = At { claim: at.claim, request: at.request + 1, alternative: 0, device: 0 };
            return self.next(next, false, (0, 0, 0));
        }
        if count - at.device > MOST - self.chosen[at.claim].len() {
            return Err(End::TooMany);
        }
        if all { self.take_all(at, chosen) } else { self.take_any(at, chosen, start) }
    }

    /// The first alternative with which everything works out.
    fn alternatives(&mut self, at: At) -> Result<bool, End> {
        let mut too_many = true;
        for alternative in 0.. {
            let at = At { alternative, ..at };
            if !self.data.contains_key(&at.key()) {
                break;
            }
            match self.next(at, true, (0, 0, 0)) {
                Err(End::TooMany) => {}
                Err(end) => return Err(end),
                Ok(true) => {
                    self.taken.insert((at.claim, at.request), alternative);
                    return Ok(true);
                }
                Ok(false) => too_many = false,
            }
        }
        if too_many { Err(End::TooMany) } else { Ok(false) }
    }

    fn take_all(&mut self, at: At, chosen: bool) -> Result<bool, End> {
        let Some(place) = self.data.get(&at.key()).and_then(|data| data.all.get(at.device).copied()) else {
            return Ok(false);
        };
        let Some(undo) = self.choose(at, place, true)? else { return Ok(false) };
        let done = self.next(At { device: at.device + 1, ..at }, chosen, (0, 0, 0));
        if !matches!(done, Ok(true)) {
            self.undo(at, place, undo);
        }
        done
    }

    fn take_any(&mut self, at: At, chosen: bool, start: Place) -> Result<bool, End> {
        for pool in start.0..self.pools.len() {
            if self.pools[pool].incomplete || self.pools[pool].invalid {
                continue;
            }
            for place in self.places(pool).into_iter().filter(|place| *place >= start) {
                if !self.is_free(at, place)? {
                    continue;
                }
                let Some(undo) = self.choose(at, place, false)? else { continue };
                let next = (place.0, place.1, place.2 + 1);
                let done = self.next(At { device: at.device + 1, ..at }, chosen, next);
                if matches!(done, Ok(true)) {
                    return done;
                }
                self.undo(at, place, undo);
                done?;
            }
        }
        Ok(false)
    }

    /// Is the device not in use, selected, and large enough?
    fn is_free(&mut self, at: At, place: Place) -> Result<bool, End> {
        let Some((slice, device)) = self.device(place) else { return Ok(false) };
        let Some(data) = self.data.remove(&at.key()) else { return Ok(false) };
        let free = if data.ask.admin {
            !self.is_marked_for(place, at.claim)
        } else {
            !self.in_use(slice, device, place)
        };
        let answer = match free {
            true => self.is_selectable(at.key(), &data, place).and_then(|selected| {
                if !selected {
                    return Ok(false);
                }
                self.is_left(&data, place).map_err(|problem| {
                    let claim = self.claims[at.claim].key();
                    let device = Self::id(slice, device);
                    let name = &data.ask.name;
                    fatal(format!(
                        "claim {claim}, request {name}: checking capacity for device {device}: {problem}"
                    ))
                })
            }),
            false => Ok(false),
        };
        self.data.insert(at.key(), data);
        answer
    }

    fn is_left(&self, data: &Data<'_>, place: Place) -> Result<bool, String> {
        let Some((slice, device)) = self.device(place) else { return Ok(false) };
        if device.capacity.is_empty() && data.ask.capacity.is_empty() {
            return Ok(true);
        }
        let taken = self.devices.allocated().taken(&Self::id(slice, device));
        is_left(device, &data.ask.capacity, taken, self.shares.get(&place).map(|(_, amounts)| amounts))
    }

    fn is_marked_for(&self, place: Place, claim: usize) -> bool {
        self.marked.get(&place).is_some_and(|claims| claims.contains(&claim))
    }

    fn in_use(&self, slice: &ResourceSlice, device: &Device, place: Place) -> bool {
        self.marked.get(&place).is_some_and(|claims| !claims.is_empty())
            || self.devices.allocated().has_whole(&Self::id(slice, device))
    }

    /// Chooses a device that is selectable. None if it cannot be had. `must`: there is no other choice.
    fn choose(&mut self, at: At, place: Place, must: bool) -> Result<Option<Undo>, End> {
        let Some((slice, device)) = self.device(place) else { return Ok(None) };
        let Some(data) = self.data.get(&at.key()) else { return Ok(None) };
        let (ask, parent) = (data.ask, data.parent);
        let busy = if ask.admin {
            !device.shareable && self.is_marked_for(place, at.claim)
        } else {
            self.in_use(slice, device, place)
        };
        if busy {
            return Ok(None);
        }
        let mut undo = Undo::default();
        let counted = device.shareable && self.has_shares(slice, device, place);
        if !counted && !device.consumes.is_empty() {
            if !self.count(place.0, device) {
                return Ok(None);
            }
            undo.counters = true;
        }
        let mut taints = self.devices.taints(&slice.id, device).filter(|taint| taint.prevents());
        if taints.any(|taint| !ask.tolerations.iter().any(|toleration| toleration.tolerates(taint))) {
            self.undo(at, place, undo);
            return Ok(None);
        }
        let choice = choice(ask, parent, slice, device);
        while let Some(constraint) = self.constraints[at.claim].get_mut(undo.constraints) {
            if !constraint.add(&choice) {
                self.undo(at, place, undo);
                let claim = self.claims[at.claim].key();
                let (name, id) = (&ask.name, Self::id(slice, device));
                return if must {
                    Err(fatal(format!(
                        "claim {claim}, request {name}: cannot add device {id} because a claim constraint would not \
                         be satisfied"
                    )))
                } else {
                    Ok(None)
                };
            }
            undo.constraints += 1;
        }
        self.mark(at, place, undo)
    }

    /// Marks the device as chosen, wholly or in part.
    fn mark(&mut self, at: At, place: Place, mut undo: Undo) -> Result<Option<Undo>, End> {
        let Some((slice, device)) = self.device(place) else { return Ok(None) };
        let Some(data) = self.data.get(&at.key()) else { return Ok(None) };
        let claim = self.claims[at.claim].key();
        let problem = |what: &str, problem: String| {
            let (name, id) = (&data.ask.name, Self::id(slice, device));
            fatal(format!("claim {claim}, request {name}: {what} for device {id}: {problem}"))
        };
        // Upstream marks a whole device before it looks; what is marked does not change how much is left.
        let fits = self.is_left(data, place).map_err(|error| problem("rechecking capacity", error));
        let share = match &fits {
            Ok(true) if device.shareable => consumed(device, &data.ask.capacity)
                .map(Some)
                .map_err(|error| problem("computing consumed capacity", error)),
            _ => Ok(None),
        };
        let (fits, share) = match (fits, share) {
            (Ok(fits), Ok(share)) => (fits, share),
            (Err(end), _) | (_, Err(end)) => {
                self.undo(at, place, undo);
                return Err(end);
            }
        };
        if !fits {
            self.undo(at, place, undo);
            return Ok(None);
        }
        if let Some(amounts) = &share {
            let (count, taking) = self.shares.entry(place).or_default();
            *count += 1;
            for (name, amount) in amounts {
                *taking.entry(name.clone()).or_default() += amount;
            }
            undo.share = Some(amounts.clone());
        } else {
            self.marked.entry(place).or_default().insert(at.claim);
            undo.marked = true;
        }
        self.chosen[at.claim].push(Chosen { key: at.key(), slice, device, share });
        undo.result = true;
        Ok(Some(undo))
    }

    fn undo(&mut self, at: At, place: Place, undo: Undo) {
        let Some((slice, device)) = self.device(place) else { return };
        if undo.result {
            self.chosen[at.claim].pop();
        }
        if let Some(amounts) = undo.share
            && let Some((count, taking)) = self.shares.get_mut(&place)
        {
            *count -= 1;
            for (name, amount) in &amounts {
                if let Some(taken) = taking.get_mut(name) {
                    *taken -= amount;
                }
            }
            if *count == 0 {
                self.shares.remove(&place);
            }
        }
        if undo.marked
            && let Some(claims) = self.marked.get_mut(&place)
        {
            claims.remove(&at.claim);
        }
        if let Some(data) = self.data.get(&at.key()) {
            let choice = choice(data.ask, data.parent, slice, device);
            for constraint in self.constraints[at.claim].iter_mut().take(undo.constraints).rev() {
                constraint.remove(&choice);
            }
        }
        if undo.counters {
            self.uncount(place.0, device);
        }
    }

    fn has_shares(&self, slice: &ResourceSlice, device: &Device, place: Place) -> bool {
        self.shares.contains_key(&place) || self.devices.allocated().has_shares(&Self::id(slice, device))
    }

    /// Takes the device's part of its pool's counters. False, and nothing is taken, if there is not enough.
    fn count(&mut self, pool: usize, device: &'a Device) -> bool {
        if !self.left.contains_key(&pool) {
            let left = self.left_of(pool);
            self.left.insert(pool, left);
        }
        let counted = self.counted.entry(pool).or_default();
        for (set, counters) in &device.consumes {
            let counted = counted.entry(set).or_default();
            for (name, amount) in counters {
                *counted.entry(name.clone()).or_default() += amount;
            }
        }
        let enough = self.left.get(&pool).into_iter().flatten().all(|(set, left)| {
            left.iter().all(|(name, left)| {
                let taken = counted.get(set).and_then(|counters| counters.get(name));
                *left >= taken.copied().unwrap_or_default()
            })
        });
        if !enough {
            self.uncount(pool, device);
        }
        enough
    }

    fn uncount(&mut self, pool: usize, device: &Device) {
        let Some(counted) = self.counted.get_mut(&pool) else { return };
        for (set, counters) in &device.consumes {
            let Some(counted) = counted.get_mut(set.as_str()) else { continue };
            for (name, amount) in counters {
                if let Some(taken) = counted.get_mut(name) {
                    *taken -= amount;
                }
            }
        }
    }

    /// The counters of a pool, less what devices take that somebody has.
    fn left_of(&self, pool: usize) -> BTreeMap<&'a str, Counters> {
        let pool = &self.pools[pool];
        let mut left: BTreeMap<&str, Counters> =
            pool.counters.iter().map(|(set, counters)| (*set, (*counters).clone())).collect();
        for slice in pool.slices.iter().chain(&pool.elsewhere) {
            for device in &slice.devices {
                if device.consumes.is_empty() || !self.devices.allocated().has(&Self::id(slice, device)) {
                    continue;
                }
                for (set, counters) in &device.consumes {
                    take_from(left.get_mut(set.as_str()), counters);
                }
            }
        }
        left
    }
}

fn take_from(left: Option<&mut BTreeMap<String, Quantity>>, counters: &Counters) {
    let Some(left) = left else { return };
    for (name, amount) in counters {
        if let Some(left) = left.get_mut(name) {
            *left -= amount;
        }
    }
}

fn choice<'a>(
    ask: &'a Ask,
    parent: Option<&'a str>,
    slice: &'a ResourceSlice,
    device: &'a Device,
) -> Choice<'a> {
    let (request, alternative) = match parent {
        Some(parent) => (parent, Some(ask.name.as_str())),
        None => (ask.name.as_str(), None),
    };
    Choice { request, alternative, pool: &slice.id, device }
}

/// Do all selectors match? `owner` says whose they are.
fn select(
    slice: &ResourceSlice,
    device: &Device,
    selectors: &[Option<Selector>],
    owner: &dyn Fn() -> String,
) -> Result<bool, End> {
    for (number, selector) in selectors.iter().enumerate() {
        let Some(selector) = selector else { continue };
        let id = || DeviceId { pool: slice.id.clone(), device: Arc::clone(&device.name) };
        let input = device.input.get_or_init(|| Input::of(&slice.id.driver, device));
        let runtime = |problem: &str| {
            fatal(format!("{}: selector #{number} on device {}: CEL runtime error: {problem}", owner(), id()))
        };
        let input = input.as_ref().map_err(|problem| runtime(problem))?;
        match selector.matches(input) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(Failure::Compile(problem)) => {
                return Err(fatal(format!("{}: selector #{number}: CEL compile error: {problem}", owner())));
            }
            Err(Failure::Runtime(problem)) => return Err(runtime(&problem)),
        }
    }
    Ok(true)
}
