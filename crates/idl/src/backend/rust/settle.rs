//! Names that would meet in Rust, told apart: a copy of the model in which those that `names` makes
//! of interfaces and operations differ, and the names of types and constants.
//!
//! What is called alike but for capitals and underscores gets a number;
//! `docs/reference/idl-rust.md` has the rule.

use std::collections::HashSet;

use crate::ir::{InterfaceId, Module, TypeKind};

use super::names::{camel, capitals, op_name, plain_snake};

/// Names of the prelude that generated code means when it says them.
const PRELUDE: [&str; 19] = [
    "AsRef", "Box", "Clone", "Copy", "Default", "Err", "From", "Into", "None", "Ok", "Option",
    "Result", "Send", "Sized", "Some", "String", "Sync", "TryFrom", "Vec",
];

/// What names of types made from an interface's end with.
const OF_INTERFACES: [&str; 5] = ["Client", "Local", "Oracle", "Server", "Service"];

/// The same of an operation's.
const OF_OPERATIONS: [&str; 6] =
    ["DeferredReply", "Out", "RandomIn", "RandomOut", "Reply", "Request"];

/// The model with interfaces and operations whose names differ in Rust, too.
pub(super) fn settle(module: &Module) -> Module {
    let mut module = module.clone();
    let mut seen = HashSet::new();
    for interface in &mut module.interfaces {
        number(&mut interface.name, &mut |name| {
            seen.insert(plain_snake(name)) && seen.insert(camel(name))
        });
    }
    let mut types = of_interfaces(&module);
    let mut methods: Vec<HashSet<String>> = vec![HashSet::new(); module.interfaces.len()];
    for at in 0..module.interfaces.len() {
        // Bases come before what extends them.
        let base = module.interfaces[at].base.map(|InterfaceId(base)| base as usize);
        let mut taken = base.and_then(|base| methods.get(base)).cloned().unwrap_or_default();
        taken.extend(run_downs(&module));
        let prefix = camel(&module.interfaces[at].name);
        for op in &mut module.interfaces[at].operations {
            number(&mut op.name, &mut |name| {
                let all = made(&prefix, name);
                let method = op_name(name);
                let is_free = !taken.contains(&method) && !all.iter().any(|t| types.contains(t));
                if is_free {
                    taken.insert(format!("{}_generated", plain_snake(name)));
                    taken.insert(method);
                    types.extend(all);
                }
                is_free
            });
        }
        methods[at] = taken;
    }
    module
}

/// Names of types made from an operation's.
fn made(prefix: &str, op: &str) -> [String; 6] {
    OF_OPERATIONS.map(|end| format!("{prefix}{}{end}", camel(op)))
}

/// Methods of server traits that tell of context handles.
fn run_downs(module: &Module) -> impl Iterator<Item = String> + '_ {
    let handles = module.types.iter().filter(|t| matches!(t.kind, TypeKind::ContextHandle));
    handles.map(|t| format!("{}_run_down", plain_snake(&t.name)))
}

fn of_interfaces(module: &Module) -> HashSet<String> {
    let names = module.interfaces.iter().map(|i| camel(&i.name));
    names.flat_map(|name| OF_INTERFACES.map(|end| format!("{name}{end}"))).collect()
}

/// Puts the least number behind a name with which it is accepted; none if it is without.
fn number(name: &mut String, accept: &mut dyn FnMut(&str) -> bool) {
    let given = name.clone();
    let mut n = 2;
    while !accept(name) {
        *name = format!("{given}_{n}");
        n += 1;
    }
}

/// Names of types in order of their numbers.
pub(super) fn types(module: &Module) -> Vec<String> {
    let mut used = of_interfaces(module);
    for interface in &module.interfaces {
        let prefix = camel(&interface.name);
        used.extend(interface.operations.iter().flat_map(|op| made(&prefix, &op.name)));
    }
    let given = module.types.iter().map(|t| {
        let name = camel(&t.name);
        if PRELUDE.contains(&name.as_str()) { format!("{name}Type") } else { name }
    });
    given
        .map(|name| {
            let mut candidate = name.clone();
            let mut n = 2;
            while !used.insert(candidate.clone()) {
                let between = if name.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
                candidate = format!("{name}{between}{n}");
                n += 1;
            }
            candidate
        })
        .collect()
}

/// Names of constants. Types that are words or bytes are functions of their name, too.
pub(super) fn consts(module: &Module, types: &[String]) -> Vec<String> {
    let mut used: HashSet<String> = types.iter().cloned().collect();
    used.insert("IDL_HASH".to_owned());
    used.extend(module.interfaces.iter().map(|i| format!("{}_ID", capitals(&i.name))));
    let given = module.consts.iter().map(|c| capitals(&c.name));
    given
        .map(|name| {
            let mut candidate = name.clone();
            number(&mut candidate, &mut |name| used.insert(name.to_owned()));
            candidate
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::TypeDef;

    fn named(names: &[&str]) -> Module {
        let one = |name: &&str| TypeDef {
            name: (*name).to_owned(),
            doc: None,
            kind: TypeKind::ContextHandle,
            imported: false,
            local: crate::ir::LocalAttrs::default(),
        };
        Module { types: names.iter().map(one).collect(), ..Module::default() }
    }

    #[test]
    fn types_differ_from_each_other_and_from_the_prelude() {
        let module = named(&["result", "foo_bar", "fooBar", "result_type", "a1", "A1"]);
        assert_eq!(
            types(&module),
            ["ResultType", "FooBar", "FooBar2", "ResultType2", "A1", "A1_2"]
        );
    }
}
