//! placeholder
use super::model::Gen;
impl Gen<'_> {
    pub(super) fn tests(&self) -> String {
        String::new()
    }
}
