//! Tests of who is answered.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

#[test]
fn who_may_answer_itself_is_not_answered() {
    let echoes = Echoes(vec![7, 5007]);
    let may = |from: &str| echoes.may_answer(7, from.parse().unwrap());
    assert!(may("192.0.2.1:40000") && may("127.0.0.1:1024"));
    for service in ["192.0.2.1:7", "192.0.2.1:19", "192.0.2.1:53", "192.0.2.1:1023"] {
        assert!(!may(service), "{service}");
    }
    for other in ["127.0.0.1:5007", "192.0.2.1:5007", "192.0.2.1:0"] {
        assert!(!may(other), "{other}");
    }
    for many in ["224.0.0.1:40000", "255.255.255.255:40000", "0.0.0.0:40000"] {
        assert!(!may(many), "{many}");
    }
    assert!(!echoes.may_answer(6000, "192.0.2.1:6000".parse().unwrap()));
}
