//! Keys to settings: one key with its arguments changes one field of [`LocalAttrs`].

use super::keys::{FOREIGN, KEYS};
use super::tree::{Arg, ArgKind, Key};
use crate::diag::{Diagnostic, Sink, codes, listing, nearest};
use crate::ir::{Allocate, Inproc, LocalAttrs, OnViolation, Sync, Threshold, UserMarshal};

/// The settings that `keys` make at `place` (a letter of [`KEYS`]); reports what is wrong.
pub(super) fn settings(keys: &[Key], place: char, sink: &mut Sink) -> LocalAttrs {
    let mut attrs = LocalAttrs::default();
    for (i, key) in keys.iter().enumerate() {
        let Some(info) = KEYS.iter().find(|k| k.name == key.name.text) else {
            sink.push(unknown(key));
            continue;
        };
        if !info.places.contains(place) {
            let places: Vec<&str> = info.places.chars().map(place_name).collect();
            sink.push(
                Diagnostic::error(
                    codes::ACF_KEY_PLACE,
                    key.span,
                    format!("`{}` says nothing about {}", info.name, place_name(place)),
                )
                .help(format!("it belongs to {}", places.join(", "))),
            );
            continue;
        }
        if let Some(other) = keys[..i].iter().find(|k| opposes(&k.name.text, &key.name.text)) {
            sink.push(
                Diagnostic::error(
                    codes::ACF_CONFLICT,
                    key.span,
                    format!("`{}` after `{}`", key.name.text, other.name.text),
                )
                .label(other.span, "said here")
                .help("keep one of them"),
            );
            continue;
        }
        if set(&mut attrs, key).is_none() {
            sink.push(
                Diagnostic::error(
                    codes::ACF_ARGUMENTS,
                    key.span,
                    format!("`{}` cannot have these arguments", info.name),
                )
                .help(format!("write {}", info.form)),
            );
        }
    }
    attrs
}

fn unknown(key: &Key) -> Diagnostic {
    let text = key.name.text.as_str();
    let names = || KEYS.iter().map(|k| k.name);
    let d = Diagnostic::error(codes::ACF_KEY, key.name.span, format!("there is no key `{text}`"));
    if let Some((_, reason)) = FOREIGN.iter().find(|(name, _)| *name == text) {
        return d.help(*reason);
    }
    if crate::parse::ATTRIBUTES.iter().any(|a| a.name == text) {
        return d
            .help("this is an attribute of the IDL: it changes what travels and belongs there");
    }
    match nearest(text, names()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("keys are: {}", listing(names()))),
    }
}

fn place_name(place: char) -> &'static str {
    match place {
        'I' => "interfaces",
        'O' => "operations",
        'T' => "types",
        _ => "parameters",
    }
}

/// Returns true if two keys cannot stand together: the same twice, or opposites.
fn opposes(a: &str, b: &str) -> bool {
    const OPPOSITES: &[(&str, &str)] = &[
        ("copy_below", "reference_above"),
        ("code", "nocode"),
        ("in_line", "out_of_line"),
        ("user_marshal", "represent_as"),
    ];
    let same = a == b && a != "impl";
    same || OPPOSITES.iter().any(|o| *o == (a, b) || *o == (b, a))
}

/// `None`: the arguments do not fit.
fn set(attrs: &mut LocalAttrs, key: &Key) -> Option<()> {
    let args = key.args.as_slice();
    match key.name.text.as_str() {
        "copy_below" | "reference_above" => attrs.reference_above = Some(threshold(one(args)?)?),
        "inproc" => {
            attrs.inproc = Some(match word(one(args)?)? {
                "by_ref" => Inproc::ByRef,
                "copy" => Inproc::Copy,
                _ => return None,
            });
        }
        "user_marshal" => {
            let [local_type, functions] = args else { return None };
            attrs.user_marshal = Some(UserMarshal {
                local_type: text(local_type)?.to_owned(),
                functions: text(functions)?.to_owned(),
            });
        }
        "represent_as" => attrs.represent_as = Some(text(one(args)?)?.to_owned()),
        "impl" => set_impl(attrs, args)?,
        "allocate" => attrs.allocate = Some(allocate(one(args)?)?),
        "sync" => attrs.sync = Some(sync(one(args)?)?),
        "timeout" => attrs.timeout_ms = Some(positive(one(args)?)?),
        "max_message" => attrs.max_message = Some(positive(one(args)?)?),
        "max_inflight" => attrs.max_inflight = Some(u32::try_from(positive(one(args)?)?).ok()?),
        "on_violation" => {
            attrs.on_violation = Some(match word(one(args)?)? {
                "disconnect" => OnViolation::Disconnect,
                "fault" => OnViolation::Fault,
                _ => return None,
            });
        }
        flag => set_flag(attrs, flag, args)?,
    }
    Some(())
}

fn set_flag(attrs: &mut LocalAttrs, flag: &str, args: &[Arg]) -> Option<()> {
    if !args.is_empty() {
        return None;
    }
    match flag {
        "comm_status" => attrs.comm_status = true,
        "fault_status" => attrs.fault_status = true,
        "code" => attrs.code = Some(true),
        "nocode" => attrs.code = Some(false),
        "in_line" => attrs.in_line = Some(true),
        "out_of_line" => attrs.in_line = Some(false),
        "deferred" => attrs.deferred = true,
        _ => return None,
    }
    Some(())
}

fn set_impl(attrs: &mut LocalAttrs, args: &[Arg]) -> Option<()> {
    let (side, path) = match args {
        [path] => ("client", text(path)?),
        [side, path] => (word(side)?, text(path)?),
        _ => return None,
    };
    let place = match side {
        "client" => &mut attrs.impl_client,
        "server" => &mut attrs.impl_server,
        _ => return None,
    };
    if place.is_some() {
        return None;
    }
    *place = Some(path.to_owned());
    Some(())
}

fn one(args: &[Arg]) -> Option<&Arg> {
    match args {
        [arg] => Some(arg),
        _ => None,
    }
}

fn word(arg: &Arg) -> Option<&str> {
    match &arg.kind {
        ArgKind::Path(word) => Some(word),
        _ => None,
    }
}

/// A name or a string.
fn text(arg: &Arg) -> Option<&str> {
    match &arg.kind {
        ArgKind::Path(text) | ArgKind::Text(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn number(arg: &Arg) -> Option<u64> {
    match arg.kind {
        ArgKind::Number(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

fn positive(arg: &Arg) -> Option<u64> {
    number(arg).filter(|n| *n > 0)
}

fn threshold(arg: &Arg) -> Option<Threshold> {
    match word(arg) {
        Some("auto") => Some(Threshold::Auto),
        Some(_) => None,
        None => number(arg).map(Threshold::Bytes),
    }
}

/// Returns true if the argument of `allocate` asks for what it is anyway.
pub(super) fn is_arena(arg: &Arg) -> bool {
    matches!(allocate(arg), None | Some(Allocate::Arena))
}

/// Returns true if the argument of `allocate` names a pool or a function.
pub(super) fn is_provider(arg: &Arg) -> bool {
    matches!(allocate(arg), Some(Allocate::Pool(_) | Allocate::Fn(_)))
}

fn allocate(arg: &Arg) -> Option<Allocate> {
    match &arg.kind {
        ArgKind::Path(word) if word == "arena" => Some(Allocate::Arena),
        ArgKind::Path(word) if word == "caller" => Some(Allocate::Caller),
        ArgKind::Call(word, args) if word == "pool" => {
            Some(Allocate::Pool(text(one(args)?)?.to_owned()))
        }
        ArgKind::Call(word, args) if word == "fn" => {
            Some(Allocate::Fn(text(one(args)?)?.to_owned()))
        }
        _ => None,
    }
}

fn sync(arg: &Arg) -> Option<Sync> {
    match &arg.kind {
        ArgKind::Path(word) => match word.as_str() {
            "spin" => Some(Sync::Spin(None)),
            "park" => Some(Sync::Park),
            "adaptive" => Some(Sync::Adaptive),
            _ => None,
        },
        ArgKind::Call(word, args) if word == "spin" => {
            Some(Sync::Spin(Some(positive(one(args)?)?)))
        }
        _ => None,
    }
}
