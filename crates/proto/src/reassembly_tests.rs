use super::*;

#[test]
fn a_segment_in_order_joins_what_waits() {
    let mut assembler = Assembler::new(4);
    assert_eq!(assembler.insert(100, Span::new(110, 120)), Inserted::Kept);
    assert_eq!(assembler.insert(100, Span::new(100, 110)), Inserted::Advanced(120));
    assert!(assembler.is_empty());
}
