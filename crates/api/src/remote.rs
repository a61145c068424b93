//! What another cluster said.

/// What another cluster said about one object.
///
/// `Unknown` is not `Absent`: a cluster that does not answer has deleted nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote<T> {
    /// It is there.
    Present(T),
    /// The cluster answered that it is not there.
    Absent,
    /// The cluster did not answer, or has not yet.
    Unknown,
}
