//! When to ask for a certificate and what to do with the answer. Pure: times are Unix seconds.

/// Longest time between two looks.
const LONGEST: i64 = 3600;
/// A signer that is there answers in this time.
const PROMPT: i64 = 30;
/// Between two requests of which the first was refused.
const PENANCE: i64 = 600;

/// From when until when a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Waiting {
        approved: bool,
    },
    Issued,
    /// Denied or failed.
    Refused,
    /// Somebody deleted it.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) now: i64,
    /// The certificate that the signer issued last.
    pub(crate) held: Option<Validity>,
    /// When was asked, and what became of it.
    pub(crate) asked: Option<(i64, Answer)>,
    pub(crate) refused: Option<i64>,
    /// Whether we may approve what we ask.
    pub(crate) approves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Delete what we asked before, and ask.
    Ask,
    Approve,
    /// Serve the certificate and delete the request.
    Take,
    /// Delete the request.
    Withdraw,
}

/// The next step, and after how many seconds to look again if it succeeds.
pub(crate) fn plan(seen: &Seen) -> (Step, i64) {
    let Some((since, answer)) = seen.asked else { return unasked(seen) };
    match answer {
        Answer::Issued => (Step::Take, 0),
        Answer::Refused => (Step::Withdraw, 0),
        Answer::Gone => (Step::Ask, 1),
        Answer::Waiting { approved: false } if seen.approves => (Step::Approve, 0),
        Answer::Waiting { .. } if seen.now < since + PROMPT => (Step::Nothing, 1),
        Answer::Waiting { .. } => (Step::Nothing, 10),
    }
}

fn unasked(seen: &Seen) -> (Step, i64) {
    // A third of its life is left.
    let due = seen.held.map_or(seen.now, |held| held.not_after - (held.not_after - held.not_before) / 3);
    let due = due.max(seen.refused.map_or(due, |refused| refused + PENANCE));
    if due > seen.now { (Step::Nothing, (due - seen.now).min(LONGEST)) } else { (Step::Ask, 0) }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Seen, Step, Validity, plan};

    const NOW: i64 = 100_000;

    fn seen() -> Seen {
        Seen { now: NOW, held: None, asked: None, refused: None, approves: true }
    }

    fn held(from: i64, until: i64) -> Option<Validity> {
        Some(Validity { not_before: NOW + from, not_after: NOW + until })
    }

    #[test]
    fn without_a_certificate_one_is_asked_for_and_approved() {
        assert_eq!(plan(&seen()), (Step::Ask, 0));
        let waiting = Seen { asked: Some((NOW, Answer::Waiting { approved: false })), ..seen() };
        assert_eq!(plan(&waiting), (Step::Approve, 0));
        assert_eq!(plan(&Seen { approves: false, ..waiting }), (Step::Nothing, 1));
        assert_eq!(plan(&Seen { asked: Some((NOW, Answer::Issued)), ..seen() }), (Step::Take, 0));
    }

    #[test]
    fn w38_a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        assert_eq!(plan(&Seen { held: held(-600, 301), ..seen() }), (Step::Nothing, 1));
        assert_eq!(plan(&Seen { held: held(-600, 300), ..seen() }), (Step::Ask, 0));
        assert_eq!(plan(&Seen { held: held(-10, 90_000_000), ..seen() }), (Step::Nothing, 3600));
        assert_eq!(plan(&Seen { held: held(-600, -1), ..seen() }), (Step::Ask, 0));
    }

    #[test]
    fn case_064_a_signer_that_is_silent_for_ten_minutes_is_still_listened_to() {
        for (age, pause) in [(0, 1), (29, 1), (30, 10), (600, 10), (86_400, 10)] {
            let asked = Some((NOW - age, Answer::Waiting { approved: true }));
            assert_eq!(plan(&Seen { asked, ..seen() }), (Step::Nothing, pause));
        }
        assert_eq!(plan(&Seen { asked: Some((NOW - 600, Answer::Issued)), ..seen() }), (Step::Take, 0));
    }

    #[test]
    fn case_065_no_second_request_is_made_while_one_waits_and_a_refused_one_is_deleted() {
        let refused = Seen { asked: Some((NOW, Answer::Refused)), ..seen() };
        assert_eq!(plan(&refused), (Step::Withdraw, 0));
        assert_eq!(plan(&Seen { refused: Some(NOW), ..seen() }), (Step::Nothing, 600));
        assert_eq!(plan(&Seen { refused: Some(NOW - 600), ..seen() }), (Step::Ask, 0));
        assert_eq!(plan(&Seen { asked: Some((NOW, Answer::Gone)), ..seen() }), (Step::Ask, 1));
    }
}
