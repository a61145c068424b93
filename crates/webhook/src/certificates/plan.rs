//! When certificates are made and replaced. Pure: times are Unix seconds that the caller gives.
//!
//! A new authority is first only published, beside the one in use, and signs nothing until every API server
//! has had time to see it. The old one stays in the bundle until it expires, so that a certificate of either
//! is trusted at every moment.

/// From when until when a certificate holds, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: i64,
    /// Last second.
    pub not_after: i64,
}

/// How long new certificates last, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// Of an authority.
    pub authority: i64,
    /// Of a serving certificate.
    pub certificate: i64,
}

/// The serving certificate in the Secret.
#[derive(Debug, Clone, Copy)]
pub struct Serving {
    /// When it holds.
    pub validity: Validity,
    /// Which of the authorities signed it; `None` when none of them did.
    pub signer: Option<usize>,
    /// Whether it names our Service.
    pub fits: bool,
}

/// What the Secret holds.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The authorities, newest first.
    pub authorities: &'a [Validity],
    /// The serving certificate; `None` when absent or unusable.
    pub serving: Option<Serving>,
    /// The time.
    pub now: i64,
}

/// Who signs a new serving certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// The authority at this place of the list.
    Kept(usize),
    /// The authority that this plan makes.
    New,
}

/// What is to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Places of the authorities that stay, newest first.
    pub keep: Vec<usize>,
    /// A new authority goes to the front.
    pub add_authority: bool,
    /// A new serving certificate is made.
    pub sign: Option<Signer>,
    /// Seconds after which to look again if nothing happens before.
    pub recheck: u64,
}

/// Longest time between two looks.
const LONGEST_RECHECK: i64 = 3600;
/// How far back a certificate is dated at most, for clocks that are behind.
const BACKDATED: i64 = 300;
/// How long API servers take at most to see a changed configuration.
const SETTLED: i64 = 60;

impl Validity {
    /// Of a certificate made now that is to last some seconds, but not beyond its signer.
    #[must_use]
    pub fn starting(now: i64, lifetime: i64, signer: Option<Validity>) -> Self {
        let end = now.saturating_add(lifetime);
        let not_after = signer.map_or(end, |signer| end.min(signer.not_after));
        Self { not_before: now - BACKDATED.min(lifetime / 10), not_after }
    }

    fn span(self) -> i64 {
        self.not_after - self.not_before
    }

    /// When to replace it: a third of its life is left.
    fn renewal(self) -> i64 {
        self.not_after - self.span() / 3
    }

    /// From when an authority signs, unless there is no other: it is dated back by at most a tenth of its
    /// life, so that the rest of this is time in which it is published only.
    fn settled(self) -> i64 {
        self.not_before + (BACKDATED + SETTLED).min(self.span() / 5)
    }
}

/// What is to change in the Secret.
#[must_use]
pub fn plan(seen: &Seen<'_>, lifetimes: Lifetimes) -> Plan {
    let now = seen.now;
    let valid = |index: &usize| {
        seen.authorities.get(*index).is_some_and(|held| held.not_before <= now && now < held.not_after)
    };
    let keep: Vec<usize> = (0..seen.authorities.len()).filter(valid).collect();
    let held: Vec<Validity> = keep.iter().filter_map(|index| seen.authorities.get(*index)).copied().collect();
    let add_authority = held.first().is_none_or(|newest| newest.renewal() <= now);
    let settled = held.iter().position(|held| held.settled() <= now);
    let oldest = held.len().checked_sub(1);
    let signer = settled
        .or(oldest)
        .and_then(|place| keep.get(place))
        .map_or(Signer::New, |index| Signer::Kept(*index));
    let right = |serving: &Serving| {
        serving.fits
            && serving.validity.not_before <= now
            && now < serving.validity.renewal()
            && serving.signer.map(Signer::Kept) == Some(signer)
    };
    let serving = seen.serving.filter(right);
    let sign = serving.is_none().then_some(signer);

    let current =
        serving.map_or_else(|| Validity::starting(now, lifetimes.certificate, None), |s| s.validity);
    let made = add_authority.then(|| Validity::starting(now, lifetimes.authority, None));
    let authorities = made.into_iter().chain(held);
    let moments = authorities.flat_map(|held| [held.settled(), held.renewal(), held.not_after]);
    let next = moments.chain([current.renewal()]).filter(|moment| *moment > now).min();
    let wait = next.map_or(LONGEST_RECHECK, |moment| (moment - now).min(LONGEST_RECHECK));
    Plan { keep, add_authority, sign, recheck: u64::try_from(wait).unwrap_or(1).max(1) }
}

#[cfg(test)]
mod tests {
    use super::{Lifetimes, Plan, Seen, Serving, Signer, Validity, plan};

    const LIFETIMES: Lifetimes = Lifetimes { authority: 9000, certificate: 900 };

    fn made(at: i64, lifetime: i64) -> Validity {
        Validity::starting(at, lifetime, None)
    }

    fn served(at: i64, signer: Option<usize>) -> Option<Serving> {
        Some(Serving { validity: made(at, LIFETIMES.certificate), signer, fits: true })
    }

    #[track_caller]
    fn check(
        authorities: &[Validity],
        serving: Option<Serving>,
        want: (&[usize], bool, Option<Signer>),
    ) -> Plan {
        let plan = plan(&Seen { authorities, serving, now: 10_000 }, LIFETIMES);
        assert_eq!((plan.keep.as_slice(), plan.add_authority, plan.sign), want);
        assert!((1..=3600).contains(&plan.recheck), "{plan:?}");
        plan
    }

    #[test]
    fn an_empty_secret_gets_an_authority_and_its_certificate() {
        check(&[], None, (&[], true, Some(Signer::New)));
    }

    #[test]
    fn a_fresh_certificate_stays_until_a_third_of_its_life_is_left() {
        let plan = check(&[made(9500, 9000)], served(9900, Some(0)), (&[0], false, None));
        assert_eq!(plan.recheck, 900 - 100 - 330);
        check(&[made(9000, 9000)], served(10_000 - 570, Some(0)), (&[0], false, Some(Signer::Kept(0))));
    }

    #[test]
    fn an_only_authority_signs_at_once() {
        check(&[made(10_000, 9000)], None, (&[0], false, Some(Signer::Kept(0))));
    }

    #[test]
    fn a_new_authority_is_added_before_the_old_one_ends_and_signs_nothing_yet() {
        check(&[made(3900, 9000)], served(9900, Some(0)), (&[0], true, None));
        check(&[made(9990, 9000), made(3900, 9000)], served(9900, Some(1)), (&[0, 1], false, None));
        check(&[made(9990, 9000), made(3900, 9000)], None, (&[0, 1], false, Some(Signer::Kept(1))));
    }

    #[test]
    fn a_settled_authority_takes_over_and_the_old_one_stays_trusted() {
        let both = [made(9940, 9000), made(3900, 9000)];
        check(&both, served(9900, Some(1)), (&[0, 1], false, Some(Signer::Kept(0))));
        check(&both, served(9990, Some(0)), (&[0, 1], false, None));
    }

    #[test]
    fn an_expired_authority_goes_and_its_certificate_with_it() {
        check(
            &[made(9000, 9000), made(900, 9000)],
            served(9900, Some(1)),
            (&[0], false, Some(Signer::Kept(0))),
        );
        check(&[made(900, 9000)], served(9900, Some(0)), (&[], true, Some(Signer::New)));
    }

    #[test]
    fn a_certificate_of_no_authority_or_for_another_service_is_replaced() {
        check(&[made(9000, 9000)], served(9900, None), (&[0], false, Some(Signer::Kept(0))));
        let other = served(9900, Some(0)).map(|serving| Serving { fits: false, ..serving });
        check(&[made(9000, 9000)], other, (&[0], false, Some(Signer::Kept(0))));
    }

    #[test]
    fn a_certificate_ends_with_its_authority_at_the_latest() {
        assert_eq!(Validity::starting(100, 900, Some(made(0, 500))).not_after, 500);
    }

    /// Replays a day second by second with lives as short as the flags allow.
    #[test]
    fn at_every_second_the_served_certificate_is_valid_and_its_authority_published_before() {
        let lifetimes = Lifetimes { authority: 60, certificate: 20 };
        let mut authorities: Vec<Validity> = Vec::new();
        let mut serving: Option<(Validity, Validity)> = None;
        for now in 0..600 {
            let current = serving.map(|(validity, signer)| Serving {
                validity,
                signer: authorities.iter().position(|held| *held == signer),
                fits: true,
            });
            let plan = plan(&Seen { authorities: &authorities, serving: current, now }, lifetimes);
            let known = authorities.clone();
            let mut next: Vec<_> = plan.keep.iter().map(|index| authorities[*index]).collect();
            if plan.add_authority {
                next.insert(0, made(now, lifetimes.authority));
            }
            if let Some(signer) = plan.sign {
                let signer = match signer {
                    Signer::Kept(index) => authorities[index],
                    Signer::New => next[0],
                };
                assert!(now == 0 || now - signer.not_before > 6, "signed by an authority nobody knows yet");
                serving = Some((Validity::starting(now, lifetimes.certificate, Some(signer)), signer));
            }
            let (validity, signer) = serving.unwrap();
            assert!(validity.not_before <= now && now < validity.not_after, "at {now}");
            assert!(now == 0 || known.contains(&signer), "at {now}");
            authorities = next;
            assert!(authorities.len() <= 3);
        }
    }
}
