//! The rows of the marshalling table: each file has one way of marshalling.

mod c;
#[cfg(have_capnp)]
mod capnp;
mod direct;
mod hand;
mod ours;
#[cfg(feature = "rivals")]
mod planus;
#[cfg(feature = "rivals")]
mod postcard;

use super::codec::Subject;

/// Returns every row with every case.
pub(super) fn all() -> Vec<Subject> {
    let mut subjects = direct::subjects();
    subjects.extend(hand::subjects());
    subjects.extend(c::hand());
    subjects.extend(ours::subjects());
    subjects.extend(c::ours());
    #[cfg(have_rpcgen)]
    subjects.extend(c::rpcgen());
    #[cfg(have_capnp)]
    subjects.extend(capnp::subjects());
    #[cfg(feature = "rivals")]
    subjects.extend(planus::subjects());
    #[cfg(feature = "rivals")]
    subjects.extend(postcard::subjects());
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idl::cases::Case;

    #[test]
    fn all_rows_of_a_case_agree() {
        for case in Case::ALL {
            let mut expected = None;
            for mut subject in all().into_iter().filter(|subject| subject.case == case) {
                let sum = (subject.run)(3);
                assert!(sum.is_some(), "{} {case:?}", subject.row);
                let expected = *expected.get_or_insert(sum);
                assert_eq!(sum, expected, "{} {case:?}", subject.row);
            }
        }
    }
}
