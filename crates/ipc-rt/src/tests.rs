//! The codec's rules one by one, as `docs/reference/idl-wire.md` has them. Whole interfaces are
//! tested in `tests/stubs-rust`.

use super::loopback::{Message, build};
use super::*;
use std::os::fd::OwnedFd;

const PLAIN: &[Slot] = &[];

fn message(body: &[u64], items: &[&[u8]]) -> Message {
    let items = items.iter().map(|i| i.to_vec()).collect();
    Message { body: body.to_vec(), items, fds: FdList::new() }
}

fn cause<R: core::fmt::Debug>(result: Result<R, DecodeError>) -> Cause {
    result.expect_err("refused").cause
}

/// A body of one array or string header at 0.
fn with_header<R>(
    mut m: Message,
    shared: bool,
    read: impl FnOnce(&mut Decoder<'_>, View<'_, 8>) -> Result<R, DecodeError>,
) -> Result<R, DecodeError> {
    m.read(shared, |mut d| {
        let view = d.primary::<8>(&[Slot::Header(0)])?;
        let value = read(&mut d, view)?;
        d.finish()?;
        Ok(value)
    })
}

fn bytes(m: Message, shared: bool) -> Result<Vec<u8>, DecodeError> {
    with_header(m, shared, |d, v| Ok(d.pods::<u8>(v.header::<0>()?)?.into_owned()))
}

#[test]
fn an_array_is_read_from_the_body_and_from_items() {
    let data = u64::from_ne_bytes([1, 2, 3, 0, 0, 0, 0, 0]);
    assert_eq!(bytes(message(&[pair(3, 1), data], &[]), false), Ok(vec![1, 2, 3]));
    for shared in [false, true] {
        let m = message(&[pair(3, 2)], &[&[1, 2, 3]]);
        assert_eq!(bytes(m, shared), Ok(vec![1, 2, 3]));
    }
    assert_eq!(bytes(message(&[pair(0, 1)], &[]), false), Ok(vec![]));
}

#[test]
fn sizes_padding_forms_and_items_are_exact() {
    let data = u64::from_ne_bytes([1, 2, 3, 9, 0, 0, 0, 0]);
    assert_eq!(cause(bytes(message(&[pair(3, 1), data], &[]), false)), Cause::Padding);
    assert_eq!(cause(bytes(message(&[pair(3, 1)], &[]), false)), Cause::Short);
    assert_eq!(cause(bytes(message(&[pair(0, 1), 0], &[]), false)), Cause::Trailing);
    assert_eq!(cause(bytes(message(&[pair(0, 0)], &[]), false)), Cause::Form);
    assert_eq!(cause(bytes(message(&[pair(1, 4)], &[]), false)), Cause::Form);
    assert_eq!(cause(bytes(message(&[pair(3, 2)], &[]), false)), Cause::Item);
    assert_eq!(cause(bytes(message(&[pair(3, 2)], &[&[1, 2]]), false)), Cause::Item);
    assert_eq!(cause(bytes(message(&[pair(0, 1)], &[&[1, 2]]), false)), Cause::Item);
    assert_eq!(cause(bytes(message(&[pair(u32::MAX, 1)], &[]), false)), Cause::Short);
    assert_eq!(cause(bytes(message(&[], &[]), false)), Cause::Short);
}

#[test]
fn a_string_ends_where_its_length_says() {
    let string =
        |m, shared| with_header(m, shared, |d, v| Ok(d.string(v.header::<0>()?)?.into_owned()));
    let text = |bytes: [u8; 8]| u64::from_ne_bytes(bytes);
    let good = message(&[pair(2, 1), text(*b"hi\0\0\0\0\0\0")], &[]);
    assert_eq!(string(good, false), Ok(c"hi".to_owned()));
    let short = message(&[pair(2, 1), text(*b"h\0\0\0\0\0\0\0")], &[]);
    assert_eq!(cause(string(short, false)), Cause::Terminator);
    for shared in [false, true] {
        let item = message(&[pair(2, 2)], &[b"hi\0"]);
        assert_eq!(string(item, shared), Ok(c"hi".to_owned()));
        let open = message(&[pair(2, 2)], &[b"hi!"]);
        assert_eq!(cause(string(open, shared)), Cause::Terminator);
    }
    let wide = |m| with_header(m, false, |d, v| Ok(d.wide(v.header::<0>()?)?.into_owned()));
    let two = u64::from_ne_bytes([b'h', 0, b'i', 0, 0, 0, 0, 0]);
    assert_eq!(wide(message(&[pair(2, 1), two], &[])), Ok(vec![104, 105]));
    assert_eq!(cause(wide(message(&[pair(1, 1), 104 | 105 << 16], &[]))), Cause::Terminator);
}

#[test]
fn items_are_taken_in_the_order_of_the_words_that_name_them() {
    // A pointer whose target names an item, then a header: the header's item comes first.
    let mut m = message(&[pair(1, 0), pair(1, 2), pair(1, 2)], &[b"A", b"B"]);
    let read = m.read(false, |mut d| {
        let view = d.primary::<16>(&[Slot::Header(8)])?;
        assert!(d.present::<0, _>(view)?);
        let inner = d.object::<8, _>(&[Slot::Header(0)], |d, v| {
            Ok(d.pods::<u8>(v.header::<0>()?)?.into_owned())
        })?;
        let outer = d.pods::<u8>(view.header::<8>()?)?.into_owned();
        d.finish()?;
        Ok::<_, DecodeError>((outer, inner))
    });
    assert_eq!(read, Ok((b"A".to_vec(), b"B".to_vec())));
}

#[derive(Debug, PartialEq)]
struct Node {
    next: Option<Shared<Node>>,
}

fn node(d: &mut Decoder<'_>, v: View<'_, 8>) -> Result<Node, DecodeError> {
    Ok(Node { next: d.shared::<0, 8, _, _>(v, &[Slot::Number(0)], node)? })
}

/// Two pointers to nodes, each of which points to one more.
fn graph(body: &[u64]) -> Result<[Option<Shared<Node>>; 2], DecodeError> {
    message(body, &[]).read(false, |mut d| {
        let v = d.primary::<16>(&[Slot::Number(0), Slot::Number(8)])?;
        let a = d.shared::<0, 8, _, _>(v, &[Slot::Number(0)], node)?;
        let b = d.shared::<8, 8, _, _>(v, &[Slot::Number(0)], node)?;
        d.finish()?;
        Ok([a, b])
    })
}

#[test]
fn shared_objects_keep_their_identity_even_when_named_early() {
    // Object 1 points to object 2, which the second word of the primary block named first.
    let [a, b] = graph(&[pair(1, 0), pair(2, 0), pair(2, 0), 0]).expect("read");
    let (a, b) = (a.expect("one"), b.expect("two"));
    let next = a.next.as_ref().expect("the same as b");
    assert!(Shared::ptr_eq(next, &b));
    assert_eq!(b.next, None);
    let [a, b] = graph(&[pair(1, 0), pair(1, 0), 0]).expect("read");
    assert!(Shared::ptr_eq(&a.expect("one"), &b.expect("one")));
}

#[test]
fn cycles_and_numbers_out_of_sequence_are_refused() {
    assert_eq!(cause(graph(&[pair(1, 0), 0, pair(1, 0)])), Cause::Cycle);
    assert_eq!(cause(graph(&[pair(1, 0), pair(2, 0), pair(2, 0), pair(1, 0)])), Cause::Cycle);
    assert_eq!(cause(graph(&[pair(2, 0), pair(1, 0), 0, 0])), Cause::Number);
    assert_eq!(cause(graph(&[pair(1, 1), 0, 0])), Cause::Padding);
    assert_eq!(cause(graph(&[pair(u32::MAX, 0), 0, 0])), Cause::Number);
}

#[test]
fn a_chain_may_be_thirty_two_levels_deep() {
    #[derive(Debug)]
    struct Link(Option<Box<Link>>);
    fn link(d: &mut Decoder<'_>, v: View<'_, 8>) -> Result<Link, DecodeError> {
        Ok(Link(if d.present::<0, _>(v)? {
            Some(Box::new(d.object::<8, _>(PLAIN, link)?))
        } else {
            None
        }))
    }
    fn length(mut link: &Link) -> usize {
        let mut n = 0;
        while let Some(next) = &link.0 {
            n += 1;
            link = next;
        }
        n
    }
    for (levels, good) in [(32, true), (33, false), (100_000, false)] {
        let mut body = vec![pair(1, 0); levels];
        body.push(0);
        let read = message(&body, &[]).read(false, |mut d| {
            let v = d.primary::<8>(PLAIN)?;
            let first = link(&mut d, v)?;
            d.finish().map(|()| length(&first))
        });
        match good {
            true => assert_eq!(read, Ok(levels)),
            false => assert_eq!(cause(read), Cause::Depth),
        }
    }
    let deep = |m: &mut Measure| {
        fn nest(m: &mut Measure, n: u32) -> Result<(), EncodeError> {
            m.object(1, 8, |m| if n > 1 { nest(m, n - 1) } else { Ok(()) })
        }
        nest(m, 33)
    };
    assert_eq!(measure(8, Forms::BODY, deep), Err(EncodeError::Depth));
}

#[test]
fn more_items_than_a_message_takes_stay_in_the_body() {
    let text = [7_u8; 32];
    let forms = Forms::above(16);
    let visit = |n: usize| move |m: &mut Measure| (0..n).try_for_each(|_| m.flat(32, 32, m.auto()));
    let few = measure(0, forms, visit(16)).expect("measured");
    assert_eq!(few, Measured { body_len: 0, forms });
    let many = measure(0, forms, visit(17)).expect("measured");
    assert_eq!(many, Measured { body_len: 17 * 32, forms: Forms::BODY });
    let built = build(few, |w| {
        assert!(w.refers(32, w.auto()) && !w.refers(15, w.auto()) && !w.refers(0, 0));
        w.pods_below(&text, w.auto())
    });
    assert!(built.expect("nothing is in the body").body.is_empty());
}

#[test]
fn a_body_that_is_too_small_is_an_error() {
    let size = Measured { body_len: 8, forms: Forms::BODY };
    let built = build(size, |w| w.object::<9>().map(|_| ()));
    assert_eq!(built.expect_err("refused"), EncodeError::Overflow);
    let built = build(size, |w| w.pods(&[1_u64, 2]));
    assert_eq!(built.expect_err("refused"), EncodeError::Overflow);
    let built = build(size, |w| w.run::<8>(usize::MAX).map(|_| ()));
    assert_eq!(built.expect_err("refused"), EncodeError::Overflow);
}

#[test]
fn descriptors_must_all_be_named() {
    let fd = || OwnedFd::from(std::fs::File::open("/dev/null").expect("there"));
    let read = |body: &[u64], count: usize| {
        let mut m = message(body, &[]);
        (0..count).for_each(|_| m.fds.push(fd()).expect("room"));
        m.read(false, |mut d| {
            let v = d.primary::<8>(&[Slot::Fd(0), Slot::Fd(4)])?;
            let found = [d.descriptor::<0, _>(v)?, d.descriptor::<4, _>(v)?];
            d.finish().map(|()| found.iter().flatten().count())
        })
    };
    assert_eq!(read(&[pair(1, 1)], 2), Ok(2));
    assert_eq!(read(&[pair(0, 1)], 1), Ok(1));
    assert_eq!(cause(read(&[pair(1, 1)], 1)), Cause::Descriptor);
    assert_eq!(cause(read(&[pair(1, 0)], 2)), Cause::Descriptor);
    assert_eq!(cause(read(&[pair(2, 0)], 2)), Cause::Pointer);
}

#[test]
fn a_context_handle_is_one_clients_and_dies_once() {
    let table = ContextTable::new();
    let [one, two] = [1, 2].map(|index| ClientId { index, generation: 1 });
    let word = table.issue(one, 0, 77);
    assert_eq!(table.issue(one, 0, 77), word, "the same object, the same handle");
    assert_eq!(table.find(one, 0, word), Some(77));
    assert_eq!(table.find(two, 0, word), None);
    assert_eq!(table.find(one, 1, word), None, "another type of handle");
    assert_eq!((table.issue(one, 0, 0), table.find(two, 0, 0)), (0, Some(0)));
    table.forget(one, 0, 77);
    assert_eq!(table.find(one, 0, word), None);
    let again = table.issue(one, 0, 78);
    assert_ne!(again, word, "the slot is used again with another generation");
    assert_eq!(table.find(one, 0, word), None);
    let other = table.issue(two, 3, 5);
    assert_eq!(table.run_down(one), [ServerHandle { kind: 0, number: 78 }]);
    assert_eq!((table.find(one, 0, again), table.find(two, 3, other)), (None, Some(5)));
    for wrong in [u64::MAX, 1, 1 << 32, u64::from(u32::MAX) << 32] {
        assert_eq!(table.find(two, 3, wrong), None);
    }
}

#[test]
fn a_mailbox_gives_what_was_put_in_or_says_that_it_was_dropped() {
    let NewMailbox { sender, mailbox: waiting } = mailbox();
    let thread = std::thread::spawn(move || sender.send(Ok(5)));
    assert_eq!(waiting.wait(Deadline::after(core::time::Duration::from_secs(10))), Ok(5));
    assert_eq!(thread.join().expect("sent"), Ok(()));
    let NewMailbox { sender, mailbox: waiting } = mailbox::<()>();
    drop(sender);
    assert_eq!(waiting.wait(Deadline::NEVER), Err(CallError::Fault(Fault::DROPPED)));
    let NewMailbox { sender, mailbox: waiting } = mailbox::<()>();
    assert_eq!(waiting.wait(Deadline::NOW), Err(CallError::Timeout));
    assert_eq!(sender.send(Ok(())), Err(Gone));
}

#[test]
fn expressions_without_a_value_equal_nothing() {
    assert_eq!(expr::div(1, 0), expr::NONE);
    assert_eq!(expr::add(expr::NONE, 1), expr::NONE);
    assert_eq!(expr::shl(1, 64), expr::NONE);
    assert_eq!(expr::mul(i128::MAX, 2), expr::NONE);
    assert_eq!((expr::sub(2, 5), expr::rem(7, 4), expr::shr(8, 2)), (-3, 3, 2));
}

#[test]
fn random_streams_are_those_of_the_document() {
    let mut r = random::Random::stream(1, 2, 1);
    let first = r.next();
    let mut again = random::Random::stream(1, 2, 1);
    assert_eq!(first, again.next());
    assert_ne!(first, random::Random::stream(1, 2, 2).next());
    // The published first value of xorshift64* from state 1.
    assert_eq!(random::Random::stream(0, 0, 0).bits(64), 0x47E4_CE4B_896C_DD1D);
}
