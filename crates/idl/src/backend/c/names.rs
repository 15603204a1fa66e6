//! C names for IDL names: a copy of the model in which every name can stand where C and C++ need
//! it.
//!
//! A name that cannot gets an underscore; one that begins as the runtime's names do gets `idl_` in
//! front. `docs/reference/idl-c.md` has the rule for users. Everything else of this back end takes
//! names from the copy as they are. Lists of names: `reserved`.

use std::collections::HashSet;

use crate::ir::{Encapsulation, Field, Interface, InterfaceId, Module, Operation, Ty, TypeKind};

use super::model::Model;
use super::reserved::{is_keyword, is_library, is_never_free, is_ours, is_type, is_word};
use super::text::path;

/// What an interface is called in names that begin with it, and what those names end with.
const OF_INTERFACES: [&str; 11] = [
    "HASH",
    "bind",
    "client",
    "dispatch",
    "handle",
    "id",
    "interface",
    "options",
    "serve",
    "server",
    "unbind",
];

/// What the functions of an operation end with, beside the name alone.
const OF_OPERATIONS: [&str; 3] = ["", "_reply", "_stub"];

/// Parameters of generated functions that declare values of the interface's types.
const PARAMETERS: [&str; 4] = ["call", "impl", "later", "self"];

/// Names of one scope.
#[derive(Default)]
struct Scope {
    used: HashSet<String>,
}

impl Scope {
    /// Gives every name a form that `is_reserved` does not hold for, all of them different. Names
    /// that can stay do.
    fn settle(&mut self, names: &mut [&mut String], is_reserved: &dyn Fn(&str) -> bool) {
        let (stay, change): (Vec<_>, Vec<_>) = names
            .iter_mut()
            .partition(|name| !is_ours(name) && !is_reserved(name) && self.take(name));
        drop(stay);
        for name in change {
            if is_ours(name) {
                name.insert_str(0, "idl_");
            }
            while is_reserved(name) || !self.take(name) {
                name.push('_');
            }
        }
    }

    /// Takes a name. Returns true if the name was free.
    fn take(&mut self, name: &str) -> bool {
        self.used.insert(name.to_owned())
    }
}

/// The model with names for C.
pub(super) fn settle(module: &Module) -> Module {
    let mut module = module.clone();
    let mut interfaces: Vec<&mut String> =
        module.interfaces.iter_mut().map(|i| &mut i.name).collect();
    Scope::default().settle(&mut interfaces, &|name| is_keyword(name) || name == "sj");
    let mut file = Scope::default();
    for i in &module.interfaces {
        file.used.extend(OF_INTERFACES.map(|suffix| format!("{}_{suffix}", i.name)));
    }
    globals(&mut module, &mut file);
    operations(&mut module, &mut file);
    for index in 0..module.types.len() {
        members(&mut module, index);
    }
    for index in 0..module.interfaces.len() {
        params(&mut module, index);
    }
    module
}

/// Types, constants and members of enumerations.
fn globals(module: &mut Module, file: &mut Scope) {
    let is_reserved = |name: &str| is_never_free(name) || is_type(name) || is_library(name);
    let (mut types, mut members) = (Vec::new(), Vec::new());
    for def in &mut module.types {
        types.push(&mut def.name);
        if let TypeKind::Enum(e) = &mut def.kind {
            members.extend(e.members.iter_mut().map(|m| &mut m.name));
        }
    }
    file.settle(&mut types, &|name| is_reserved(name) || PARAMETERS.contains(&name));
    file.settle(&mut members, &is_reserved);
    let mut names: Vec<_> = module.consts.iter_mut().map(|c| &mut c.name).collect();
    file.settle(&mut names, &|name| is_reserved(name) || is_word(name));
}

/// An operation is a function of its interface and of every one that extends it.
fn operations(module: &mut Module, file: &mut Scope) {
    let prefixes: Vec<Vec<String>> =
        (0..module.interfaces.len()).map(|i| descendants(module, i)).collect();
    for (interface, prefixes) in module.interfaces.iter_mut().zip(prefixes) {
        for op in interface.operations.iter_mut().filter(|op| !op.is_local) {
            let functions = |op: &str| -> Vec<String> {
                let of = |prefix: &String| OF_OPERATIONS.map(|end| format!("{prefix}_{op}{end}"));
                prefixes.iter().flat_map(of).collect()
            };
            let is_free = |name: &String| {
                !file.used.contains(name) && !is_never_free(name) && !is_library(name)
            };
            while !functions(&op.name).iter().all(is_free) {
                op.name.push('_');
            }
            file.used.extend(functions(&op.name));
        }
    }
}

/// The names of an interface and of those that extend it.
fn descendants(module: &Module, index: usize) -> Vec<String> {
    let extends = |mut at: usize| {
        for _ in 0..=module.interfaces.len() {
            if at == index {
                return true;
            }
            let Some(InterfaceId(base)) = module.interfaces[at].base else { return false };
            at = base as usize;
        }
        false
    };
    let all = (0..module.interfaces.len()).filter(|at| extends(*at));
    all.map(|at| module.interfaces[at].name.clone()).collect()
}

/// What the header defines by `#define`.
fn macros(module: &Module) -> HashSet<String> {
    let hashes = module.interfaces.iter().map(|i| format!("{}_HASH", i.name));
    module.consts.iter().map(|c| c.name.clone()).chain(hashes).collect()
}

/// Fields of a structure, arms of a union.
fn members(module: &mut Module, index: usize) {
    let consts = macros(module);
    let aliases = aliases(module, index);
    let is_reserved = |name: &str| {
        is_never_free(name) || is_type(name) || consts.contains(name) || aliases.contains(name)
    };
    match &mut module.types[index].kind {
        TypeKind::Struct(s) => {
            let mut names: Vec<_> = s.fields.iter_mut().map(|f| &mut f.name).collect();
            Scope::default().settle(&mut names, &is_reserved);
        }
        TypeKind::Union(u) => {
            let fields = u.arms.iter_mut().filter_map(|arm| arm.field.as_mut());
            let mut names: Vec<_> = fields.map(|f| &mut f.name).collect();
            Scope::default().settle(&mut names, &is_reserved);
            if let Some(Encapsulation { tag, member }) = &mut u.encapsulated {
                Scope::default().settle(&mut [tag, member], &is_reserved);
            }
        }
        _ => {}
    }
}

/// Types named in a structure by a word alone: a member called so would hide them in C++. Where
/// there is `struct` or `enum` in front, nothing is hidden (`types::member`).
fn aliases(module: &Module, index: usize) -> HashSet<String> {
    let model = Model { m: module };
    let fields: Vec<&Field> = match &module.types[index].kind {
        TypeKind::Struct(s) => s.fields.iter().collect(),
        TypeKind::Union(u) => u.arms.iter().filter_map(|a| a.field.as_ref()).collect(),
        _ => return HashSet::new(),
    };
    let mut all = HashSet::new();
    let switch = match &module.types[index].kind {
        TypeKind::Union(u) => Some(&u.switch),
        _ => None,
    };
    for ty in fields.iter().map(|f| &f.ty).chain(switch) {
        let (id, text) = (named(ty), model.decl(ty, "x"));
        if id.is_none_or(|id| model.keyword(id).is_none()) {
            all.extend(text.split([' ', '*']).next().map(str::to_owned));
        }
    }
    all
}

/// The named type at the bottom of pointers and arrays.
pub(super) fn named(ty: &Ty) -> Option<crate::ir::TypeId> {
    match ty {
        Ty::Named(id) | Ty::Union(id, _) => Some(*id),
        Ty::Fixed(inner, _) | Ty::Pointer(_, inner) => named(inner),
        Ty::Array(array) => named(&array.element),
        _ => None,
    }
}

/// Parameters: they must hide nothing that the prototype or the body of a stub names.
fn params(module: &mut Module, index: usize) {
    let mut hidden: HashSet<String> = module.types.iter().map(|t| t.name.clone()).collect();
    hidden.extend(macros(module));
    for i in &module.interfaces {
        hidden.extend(["client", "server"].map(|what| format!("{}_{what}", i.name)));
    }
    let Interface { name, operations, .. } = &mut module.interfaces[index];
    for op in operations {
        let mut hidden = hidden.clone();
        hidden.extend(PARAMETERS.map(str::to_owned));
        hidden.extend(op.acf.impl_client.iter().chain(&op.acf.impl_server).map(|f| path(f)));
        hidden.extend(OF_OPERATIONS.map(|end| format!("{name}_{}{end}", op.name)));
        op_params(op, &hidden);
    }
}

fn op_params(op: &mut Operation, hidden: &HashSet<String>) {
    let rooms: HashSet<String> = op.params.iter().map(|p| format!("{}_room", p.name)).collect();
    let is_reserved = |name: &str| {
        is_never_free(name)
            || is_type(name)
            || hidden.contains(name)
            || rooms.contains(name)
            || ["memcpy", "memset", "strlen"].contains(&name)
    };
    let mut names: Vec<_> = op.params.iter_mut().map(|p| &mut p.name).collect();
    Scope::default().settle(&mut names, &is_reserved);
}

/// Names of the members of an interface's table: one for each of `operations`, and what ends with
/// `_rundown` for each of `contexts`, in this order.
pub(super) fn table(module: &Module, operations: &[String], contexts: &[String]) -> Vec<String> {
    let types: HashSet<&str> = module.types.iter().map(|t| t.name.as_str()).collect();
    let consts = macros(module);
    let is_reserved = |name: &str| {
        name == "self"
            || is_never_free(name)
            || is_type(name)
            || types.contains(name)
            || consts.contains(name)
    };
    let mut names = operations.to_vec();
    names.extend(contexts.iter().map(|name| format!("{name}_rundown")));
    Scope::default().settle(&mut names.iter_mut().collect::<Vec<_>>(), &is_reserved);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(names: &[&str]) -> Vec<String> {
        let mut names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut all: Vec<&mut String> = names.iter_mut().collect();
        Scope::default().settle(&mut all, &is_never_free);
        names
    }

    #[test]
    fn only_what_cannot_stand_is_changed() {
        assert_eq!(settled(&["class", "klass", "linux"]), ["class_", "klass", "linux_"]);
        assert_eq!(settled(&["int", "int_"]), ["int__", "int_"]);
        assert_eq!(settled(&["sj_e", "idl_sj_e"]), ["idl_sj_e_", "idl_sj_e"]);
    }
}
