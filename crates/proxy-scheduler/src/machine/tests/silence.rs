//! Targets that say nothing.

use super::desk::{Desk, id, ms, summary};
use crate::machine::{Event, Outcome};

#[test]
fn w04_a_silent_target_is_hedged_after_half_a_second() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").said();
    desk.pass(499).check(&[]);
    desk.pass(1).check(&["create a c2"]);
}

#[test]
fn a_create_that_gets_no_answer_is_silence_too() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").pass(500).check(&["create a c1", "create a c2"]);
}

#[test]
fn an_echo_of_our_own_writes_is_no_sign_of_life() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(300).change("a", "c1", |_| ()).said();
    desk.pass(200).check(&["create a c2"]);
}

#[test]
fn a_busy_target_that_answers_others_is_not_hedged() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pod("b").made("b", "c1").said();
    desk.pass(400).reserves("b", "c1").check(&["bind b c1 @1"]);
    desk.pass(400).check(&[]);
    desk.pass(100).check(&["create a c2"]);
}

#[test]
fn case_012_a_silent_target_gets_no_further_asks_while_others_answer() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).said();
    desk.pod("b").check(&["create b c2"]);
}

#[test]
fn a_sign_of_life_ends_the_silence() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).said();
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("100") }).said();
    desk.pod("b").check(&["create b c1"]);
}

#[test]
fn a_silent_target_that_answers_at_last_is_elected() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).said();
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
    desk.bound("a").made("a", "c2").check(&["scheduled a c1", "forgo a c2", "allow a c1 @1", "delete a c2"]);
}

#[test]
fn a_short_stall_hedges_few_and_a_long_one_all() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("10000") });
    for number in 0..200 {
        let name = format!("p{number}");
        desk.pod(&name).made(&name, "c1");
    }
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("1000") }).said();
    assert_eq!(desk.pass(500).said().len(), 16);
    assert_eq!(desk.pass(100).said().len(), 32);
    assert_eq!(desk.pass(200).said().len(), 152);
}

#[test]
fn now_and_then_a_silent_target_is_asked_to_learn_whether_it_is_back() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).made("a", "c2").reserves("a", "c2").bound("a").said();
    desk.ends("a", Outcome::Deleted { target: id("c1"), uid: id("uid-a-c1"), result: Ok(()) });
    desk.pod("b").check(&["create b c2"]);
    desk.made("b", "c2").reserves("b", "c2").bound("b").pass(5_000).said();
    desk.pod("c").check(&["create c c1"]);
    desk.pod("d").check(&["create d c2"]);
}

#[test]
fn an_ask_that_is_overlooked_is_given_up_after_half_a_minute() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").said();
    for _ in 0..75 {
        desk.pass(400).see(Event::SummarySeen { target: id("c1"), summary: summary("100") });
    }
    desk.pass(400).check(&["create a c2"]);
}

#[test]
fn a_failing_watch_stops_asks_and_elections_there() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::WatchFailed { target: id("c1"), reason: "the target does not answer".to_owned() });
    desk.pod("a").check(&["create a c2"]);
    desk.pass(5_000).pod("b").said();
    desk.pod("c").check(&["create c c1"]);
}

#[test]
fn a_lone_silent_target_is_told_to_the_user_after_a_while() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").pass(10_400).check(&["create a c1"]);
    desk.pass(100).check(&["explain a: 0/1 virtual nodes are available: 1 c1: the target does not answer."]);
}

#[test]
fn calls_that_arrive_are_a_sign_of_life_for_those_that_have_not_yet() {
    let mut desk = Desk::new(&["c1", "c2"]);
    for number in 0..5 {
        desk.pod(&format!("p{number}"));
    }
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("1000") }).said();
    for number in 0..4 {
        desk.pass(300).made(&format!("p{number}"), "c1").reserves(&format!("p{number}"), "c1");
    }
    assert!(desk.said().iter().all(|line| !line.starts_with("create")));
}

#[test]
fn a_loser_that_is_gone_is_not_deleted_again_by_an_event_from_before() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).made("a", "c2").reserves("a", "c2").bound("a").said();
    desk.ends("a", Outcome::Deleted { target: id("c1"), uid: id("uid-a-c1"), result: Ok(()) });
    desk.change("a", "c1", |_| ()).check(&[]);
    desk.see(Event::ChaperonDeleted { target: id("c1"), parent: id("a"), uid: id("uid-a-c1") }).check(&[]);
}

#[test]
fn an_overloaded_target_whose_calls_take_long_but_arrive_is_not_hedged() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").said();
    let sent = desk.now;
    desk.pass(400).made_after("a", "c1", sent);
    desk.pass(1_500).check(&[]);
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn an_overloaded_target_that_says_nothing_is_hedged_after_two_seconds_at_the_latest() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").said();
    let sent = desk.now;
    for free in ["90", "100"] {
        desk.pass(400).see(Event::SummarySeen { target: id("c1"), summary: summary(free) });
    }
    desk.pass(400).made_after("a", "c1", sent).pass(1_999).check(&[]);
    desk.pass(1).check(&["create a c2"]);
}

#[test]
fn a_slow_call_of_long_ago_excuses_no_silence() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").said();
    let sent = desk.now;
    desk.pass(400).made_after("a", "c1", sent).reserves("a", "c1").bound("a").pass(5_000);
    desk.pod("b").said();
    desk.pass(499).check(&[]);
    desk.pass(1).check(&["create b c2"]);
}

#[test]
fn who_comes_late_listens_once_more_before_it_calls_a_target_silent() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").said();
    desk.now += ms(700);
    desk.see(Event::Tick).check(&[]);
    desk.now += ms(400);
    desk.see(Event::Tick).check(&["create a c2"]);
}
