//! Writes an ACF into the model: finds what each name means and merges settings.

use std::collections::HashMap;

use super::settings::settings;
use super::tree::{Interface as Tree, Item, Key, Keyed};
use crate::ast::Name;
use crate::diag::{Code, Diagnostic, Sink, codes, listing, nearest};
use crate::ir::{
    Dir, Interface, LocalAttrs, Module, Operation, Param, Scalar, Ty, TypeId, TypeKind,
};
use crate::layout;
use crate::source::{FileNumber, SourceMap, Span};

/// Reads ACF number `file` and applies it to `module`.
pub(crate) fn apply(
    file: FileNumber,
    module: &mut Module,
    sources: &SourceMap,
    for_rust: bool,
    sink: &mut Sink,
) {
    let Some(source) = sources.file(file) else { return };
    let tokens = crate::lex::lex(file, &source.text, sink);
    let tree = super::parse::parse(&tokens, &source.text, sink);
    if sink.has_errors() {
        return;
    }
    module.includes.extend(tree.includes.iter().map(|t| t.text.clone()));
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for interface in &tree.interfaces {
        if let Some(first) = seen.insert(&interface.name.text, interface.name.span) {
            sink.push(twice(&interface.name, first));
            continue;
        }
        apply_types(interface, module, sink);
        apply_interface(interface, module, sink);
        super::memory::check(interface, module, for_rust, sink);
    }
    inherit_from_types(module);
}

fn twice(name: &Name, first: Span) -> Diagnostic {
    Diagnostic::error(codes::ACF_TWICE, name.span, format!("`{}` is configured twice", name.text))
        .label(first, "first here")
        .help("put all settings into one place")
}

/// Reports a name that the IDL does not declare.
fn stranger<'a>(
    code: Code,
    what: &str,
    name: &Name,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let help = match nearest(&name.text, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.clone().next().is_none() => format!("the IDL declares no {what} here"),
        None => format!("the IDL declares: {}", listing(known)),
    };
    Diagnostic::error(code, name.span, format!("the IDL declares no {what} `{}`", name.text))
        .help(help)
}

fn apply_types(tree: &Tree, module: &mut Module, sink: &mut Sink) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for item in &tree.items {
        let Item::Typedef(keys, names) = item else { continue };
        let attrs = settings(keys, 'T', sink);
        for name in names {
            if let Some(first) = seen.insert(&name.text, name.span) {
                sink.push(twice(name, first));
                continue;
            }
            match module.types.iter_mut().find(|t| t.name == name.text) {
                Some(def) => def.local = attrs.clone(),
                None => {
                    let known = module.types.iter().map(|t| t.name.as_str());
                    sink.push(stranger(codes::ACF_TYPE, "type", name, known));
                }
            }
        }
    }
}

fn apply_interface(tree: &Tree, module: &mut Module, sink: &mut Sink) {
    let Some(index) = module.interfaces.iter().position(|i| i.name == tree.name.text) else {
        let known = module.interfaces.iter().map(|i| i.name.as_str());
        sink.push(stranger(codes::ACF_INTERFACE, "interface", &tree.name, known));
        return;
    };
    let attrs = settings(&tree.keys, 'I', sink);
    // Types are looked up while operations change: the interface is taken out meanwhile.
    let placeholder = module.interfaces[index].clone();
    let mut interface = std::mem::replace(&mut module.interfaces[index], placeholder);
    interface.acf = attrs;
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for item in &tree.items {
        let Item::Operation(operation, params) = item else { continue };
        let name = &operation.name;
        if let Some(first) = seen.insert(&name.text, name.span) {
            sink.push(twice(name, first));
            continue;
        }
        apply_operation(&mut interface, operation, params, module, sink);
    }
    for operation in &mut interface.operations {
        inherit(&mut operation.acf, &interface.acf);
    }
    module.interfaces[index] = interface;
}

fn apply_operation(
    interface: &mut Interface,
    Keyed { keys, name }: &Keyed,
    params: &[Keyed],
    module: &Module,
    sink: &mut Sink,
) {
    let Some(at) = interface.operations.iter().position(|o| o.name == name.text) else {
        let known = interface.operations.iter().map(|o| o.name.as_str());
        sink.push(stranger(codes::ACF_OPERATION, "operation", name, known));
        return;
    };
    let operation = &mut interface.operations[at];
    operation.acf = settings(keys, 'O', sink);
    check_operation(operation, keys, module, sink);
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for Keyed { keys, name } in params {
        if let Some(first) = seen.insert(&name.text, name.span) {
            sink.push(twice(name, first));
            continue;
        }
        let attrs = settings(keys, 'P', sink);
        match operation.params.iter_mut().find(|p| p.name == name.text) {
            Some(param) => {
                param.acf = attrs;
                check_param(param, keys, module, sink);
            }
            None => {
                let known = operation.params.iter().map(|p| p.name.as_str());
                sink.push(stranger(codes::ACF_PARAM, "parameter", name, known));
            }
        }
    }
}

fn is_status(module: &Module, ty: &Ty) -> bool {
    matches!(layout::strip(module, ty), Ty::Scalar(Scalar::ErrorStatus | Scalar::I32 | Scalar::U32))
}

fn misuse(key: &Key, message: &str, help: &str) -> Diagnostic {
    Diagnostic::error(codes::ACF_MISUSE, key.span, message.to_owned()).help(help)
}

fn check_operation(operation: &Operation, keys: &[Key], module: &Module, sink: &mut Sink) {
    for key in keys {
        match key.name.text.as_str() {
            "comm_status" | "fault_status"
                if !operation.result.as_ref().is_some_and(|ty| is_status(module, ty)) =>
            {
                sink.push(misuse(
                    key,
                    "the result of this operation cannot hold a status",
                    "let it answer error_status_t, or mark an out parameter of that type",
                ));
            }
            "sync" | "timeout" | "max_message" | "on_violation" | "deferred"
                if operation.is_local =>
            {
                sink.push(misuse(
                    key,
                    "a local operation is never sent, so there is no message to speak of",
                    &format!("take `{}` out", key.name.text),
                ));
            }
            "deferred" if operation.oneway => sink.push(misuse(
                key,
                "a oneway operation has no reply that could be deferred",
                "take `deferred` out",
            )),
            _ => {}
        }
    }
}

fn check_param(param: &Param, keys: &[Key], module: &Module, sink: &mut Sink) {
    let fits = param.dir == Dir::Out && is_status(module, &param.ty);
    for key in
        keys.iter().filter(|k| matches!(k.name.text.as_str(), "comm_status" | "fault_status"))
    {
        if !fits {
            sink.push(misuse(
                key,
                "this parameter cannot hold a status",
                "mark an `[out] error_status_t *` parameter",
            ));
        }
    }
}

/// Settings of `outer` where `inner` has none. What belongs to one operation only stays there, and
/// `sync` stays where it was said: the interface's is its connections', a call's own is set for the
/// call. `max_inflight` is the connections' alone.
fn inherit(inner: &mut LocalAttrs, outer: &LocalAttrs) {
    fn fill<T: Clone>(inner: &mut Option<T>, outer: &Option<T>) {
        if inner.is_none() {
            inner.clone_from(outer);
        }
    }
    fill(&mut inner.reference_above, &outer.reference_above);
    fill(&mut inner.inproc, &outer.inproc);
    fill(&mut inner.user_marshal, &outer.user_marshal);
    fill(&mut inner.represent_as, &outer.represent_as);
    fill(&mut inner.allocate, &outer.allocate);
    fill(&mut inner.timeout_ms, &outer.timeout_ms);
    fill(&mut inner.max_message, &outer.max_message);
    fill(&mut inner.on_violation, &outer.on_violation);
    fill(&mut inner.code, &outer.code);
    fill(&mut inner.in_line, &outer.in_line);
}

/// Parameters take over what is said of their type.
fn inherit_from_types(module: &mut Module) {
    let types = std::mem::take(&mut module.types);
    for interface in &mut module.interfaces {
        for param in interface.operations.iter_mut().flat_map(|o| &mut o.params) {
            let mut next = named(&param.ty);
            while let Some(def) = next.and_then(|id| types.get(id.0 as usize)) {
                inherit(&mut param.acf, &def.local);
                next = match &def.kind {
                    TypeKind::Alias(ty) => named(ty),
                    _ => None,
                };
            }
        }
    }
    module.types = types;
}

fn named(ty: &Ty) -> Option<TypeId> {
    match ty {
        Ty::Named(id) | Ty::Union(id, _) => Some(*id),
        Ty::Pointer(_, inner) => named(inner),
        _ => None,
    }
}
