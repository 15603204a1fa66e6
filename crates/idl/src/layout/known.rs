//! Answers about named types, each found once. Without, a structure that holds two of another,
//! which holds two of a third, and so on, is looked at as often as there are bytes in it.

use std::collections::HashMap;

use crate::ir::TypeId;

/// What one question has found out so far.
pub(crate) struct Known<T>(HashMap<TypeId, T>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Copy> Known<T> {
    /// The answer for `id`, by `find` the first time. While that runs it is `open`: for types that
    /// contain themselves.
    pub(crate) fn of(&mut self, id: TypeId, open: T, find: impl FnOnce(&mut Self) -> T) -> T {
        if let Some(known) = self.0.get(&id) {
            return *known;
        }
        self.0.insert(id, open);
        let found = find(self);
        self.0.insert(id, found);
        found
    }
}
