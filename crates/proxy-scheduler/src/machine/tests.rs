//! What the machine does, rule by rule, and what it never does, whatever happens in whatever order.

mod claims;
mod company;
mod desk;
mod doubts;
mod elect;
mod gangs;
mod grants;
mod places;
mod preference;
mod refusals;
mod scores;
mod silence;
mod storm;
mod world;
