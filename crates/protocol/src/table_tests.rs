//! Parts, numbers, tokens and limits.

use super::*;
use crate::token::Token;
use proptest::prelude::*;

const LIMITS: Limits = Limits { of_client: 3, in_all: 5 };

fn client(index: u32) -> ClientId {
    ClientId { index, generation: 1 }
}

fn token(of: u64) -> TokenT {
    TokenT { half: [of, 0] }
}

#[test]
fn a_session_lives_as_long_as_somebody_has_a_part() {
    let mut table = Table::new(LIMITS);
    let Opened { number: own, entry } = table.open(client(1), Token([7, 0]), "seven").unwrap();
    assert!(!table.is_shared(&entry));
    let other = table.attach(client(2), &token(7)).unwrap();
    assert_eq!(table.attach(client(2), &token(7)), Ok(other), "the same part");
    assert!(table.is_shared(&entry));
    assert_eq!(table.number_of(client(2), &entry), Some(other));
    assert!(!table.close(client(1), own).unwrap().is_last);
    assert_eq!(table.find(client(1), own).unwrap_err(), Errno::BADF);
    assert_eq!(table.find(client(2), other).unwrap().entry.session, "seven");
    assert_eq!(table.attach(client(1), &token(7)), Ok(own + 1), "a number is not used again");
    assert!(!table.gone(client(2))[0].is_last);
    assert!(table.close(client(1), own + 1).unwrap().is_last, "the last part");
    assert_eq!(table.attach(client(1), &token(7)), Err(Errno::NOENT));
    assert_eq!(table.close(client(1), own + 1).unwrap_err(), Errno::BADF, "once");
}

#[test]
fn a_number_or_a_token_of_somebody_else_names_nothing() {
    let mut table = Table::new(LIMITS);
    let own = table.open(client(1), Token([7, 8]), ()).unwrap().number;
    assert_eq!(table.find(client(2), own).unwrap_err(), Errno::BADF);
    let same_index = ClientId { index: 1, generation: 2 };
    assert_eq!(table.find(same_index, own).unwrap_err(), Errno::BADF);
    assert_eq!(table.attach(client(2), &token(7)), Err(Errno::NOENT), "half of it");
    assert_eq!(table.find(client(1), 0).unwrap_err(), Errno::BADF);
}

#[test]
fn a_client_and_all_together_have_limits() {
    let mut table = Table::new(LIMITS);
    for number in 0..3 {
        table.open(client(1), Token([number, 0]), ()).unwrap();
    }
    assert_eq!(table.open(client(1), Token([9, 0]), ()).unwrap_err().error, Errno::MFILE);
    assert_eq!(table.attach(client(1), &token(9)), Err(Errno::MFILE));
    table.open(client(2), Token([3, 0]), ()).unwrap();
    table.open(client(2), Token([4, 0]), ()).unwrap();
    assert_eq!(table.open(client(2), Token([5, 0]), ()).unwrap_err().error, Errno::NFILE);
    table.attach(client(2), &token(0)).unwrap();
    table.gone(client(1));
    assert!(table.attach(client(3), &token(0)).is_ok() && table.has_room(client(3)).is_ok());
}

#[test]
fn connections_of_a_group_have_the_first_one_s_sessions() {
    let mut table = Table::new(LIMITS);
    let group = TokenT { half: table.group(client(1), Token([1, 2])).unwrap().0 };
    assert_eq!(table.group(client(1), Token([3, 4])), Ok(Token([1, 2])), "one group each");
    assert_eq!(table.join(client(2), &token(1)), Err(Errno::NOENT), "half of it");
    assert_eq!(table.join(client(1), &group), Err(Errno::BUSY), "its own");
    table.join(client(2), &group).unwrap();
    assert_eq!(table.join(client(2), &group), Err(Errno::BUSY), "twice");
    assert_eq!(table.group(client(2), Token([5, 6])), Err(Errno::BUSY));
    let Opened { number, entry } = table.open(client(1), Token([7, 0]), "seven").unwrap();
    assert_eq!(table.find(client(2), number).unwrap().entry.session, "seven");
    assert!(!table.is_shared(&entry), "one program");
    assert_eq!(table.attach(client(2), &token(7)), Ok(number));
    table.open(client(3), Token([8, 0]), "eight").unwrap();
    assert_eq!(table.join(client(3), &group), Err(Errno::BUSY), "it has sessions");
    assert!(table.gone(client(2)).is_empty());
    assert_eq!(table.find(client(2), number).unwrap_err(), Errno::BADF);
    table.join(client(4), &group).unwrap();
    assert!(table.gone(client(1))[0].is_last, "the last part");
    assert_eq!(table.find(client(4), number).unwrap_err(), Errno::BADF);
    assert_eq!(table.join(client(5), &group), Err(Errno::NOENT));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u32, u64),
    Attach(u32, u64),
    Close(u32, u32),
    Gone(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u32, 0..6u64).prop_map(|(who, token)| Step::Open(who, token)),
        (0..4u32, 0..6u64).prop_map(|(who, token)| Step::Attach(who, token)),
        (0..4u32, 1..9u32).prop_map(|(who, number)| Step::Close(who, number)),
        (0..4u32).prop_map(Step::Gone),
    ]
}

proptest! {
    /// Beside the table stands the plainest one: a list of (client, number, token).
    #[test]
    fn parts_are_what_a_plain_list_says(steps in prop::collection::vec(step(), 0..60)) {
        let mut table = Table::new(LIMITS);
        let mut list: Vec<(u32, u32, u64)> = Vec::new();
        for step in steps {
            let has = |list: &[(u32, u32, u64)], token| list.iter().any(|part| part.2 == token);
            match step {
                // The server never makes a token twice.
                Step::Open(_, token) if has(&list, token) => {}
                Step::Open(who, token) => {
                    if let Ok(Opened { number, .. }) = table.open(client(who), Token([token, 0]), token) {
                        list.push((who, number, token));
                    }
                }
                Step::Attach(who, wanted) => {
                    if let Ok(number) = table.attach(client(who), &token(wanted)) {
                        let part = (who, number, wanted);
                        prop_assert!(has(&list, wanted));
                        if !list.contains(&part) {
                            list.push(part);
                        }
                    }
                }
                Step::Close(who, number) => {
                    let found = list.iter().position(|part| (part.0, part.1) == (who, number));
                    let closed = table.close(client(who), number);
                    prop_assert_eq!(closed.is_ok(), found.is_some());
                    if let (Some(found), Ok(TakenPart { is_last, .. })) = (found, closed) {
                        let (_, _, token) = list.swap_remove(found);
                        prop_assert_eq!(is_last, !has(&list, token));
                    }
                }
                Step::Gone(who) => {
                    let before = list.len();
                    list.retain(|part| part.0 != who);
                    let gone = table.gone(client(who));
                    prop_assert_eq!(gone.len(), before - list.len());
                    for TakenPart { entry, is_last } in gone {
                        prop_assert_eq!(is_last, !has(&list, entry.session));
                    }
                }
            }
            for (who, number, token) in &list {
                let Found { entry, is_shared } = table.find(client(*who), *number).unwrap();
                prop_assert_eq!(entry.session, *token);
                let parts = list.iter().filter(|part| part.2 == *token).count();
                prop_assert_eq!(is_shared, parts > 1);
            }
        }
    }
}
