//! Client stubs: the binding structure, one function per operation, direct calls within one address
//! space.

use crate::ir::{Dir, Inproc, Interface, Ty};

use super::ctype::{params, result_name};
use super::model::{Model, Passing};
use super::op::{Op, Table, operations};
use super::remote::remote;
use super::template::{Code, c};
use super::text::{doc, path};

/// Returns true if the implementation may be called directly when it is in this address space.
pub(super) fn is_direct(op: &Op<'_>) -> bool {
    let by_ref = op.op.acf.inproc.or(op.interface.acf.inproc) == Some(Inproc::ByRef);
    let inout_fd =
        op.op.params.iter().any(|p| p.dir == Dir::InOut && op.model.has_descriptor(&p.ty));
    by_ref && !op.op.acf.deferred && !inout_fd
}

fn signature(op: &Op<'_>) -> String {
    let name = &op.interface.name;
    let function = client_name(op);
    let mut all = vec![format!("{name}_client *sj_c")];
    let names = params(op.model, op.op);
    for (i, text) in names.into_iter().enumerate() {
        match op.op.params.get(i).filter(|p| op.is_callers(p)) {
            Some(p) => {
                let f = &p.name;
                all.push(op.model.decl(&p.ty, f));
                all.push(format!("size_t {f}_room"));
            }
            None => all.push(text),
        }
    }
    format!("sj_status {function}({})", all.join(", "))
}

/// `calc_add`, or `calc_add_stub` where a hand-written function has taken the name.
fn client_name(op: &Op<'_>) -> String {
    if op.op.acf.impl_client.is_some() { format!("{}_stub", op.name()) } else { op.name() }
}

/// Arguments by name, as a call passes them on.
pub(super) fn argument_names(op: &Op<'_>) -> Vec<String> {
    let mut all: Vec<String> = op.op.params.iter().map(|p| p.name.clone()).collect();
    if op.op.result.is_some() {
        all.push(result_name(op.op).to_owned());
    }
    all
}

/// Declarations for the header.
pub(super) fn declarations(model: Model<'_>, interface: &Interface) -> Code {
    let mut stubs = Code::new();
    for op in operations(model, interface).iter().filter(|op| op.has_client()) {
        stubs += &c!(
            "

            $doc
            $storage$signature;
            ",
            doc = doc(op.op.doc.as_deref()),
            storage = if op.is_inline() { "static inline " } else { "" },
            signature = signature(op),
        );
        if let Some(function) = &op.op.acf.impl_client {
            stubs += &hand_written(op, &path(function));
        }
    }
    c!(
        "

        /* A client of $name: bind it, call it, unbind it. One thread at a time. */
        typedef struct $name_client {
            sj_stub stub;
        } $name_client;
        $stubs
        $binding
        ",
        name = interface.name,
        stubs,
        binding = binding(model, interface),
    )
}

/// The user's own client side of an operation under the operation's name.
fn hand_written(op: &Op<'_>, function: &str) -> Code {
    let sig = signature(op);
    let theirs = sig.replacen(&format!("{}(", client_name(op)), &format!("{function}("), 1);
    let ours = sig.replacen(&format!("{}(", client_name(op)), &format!("{}(", op.name()), 1);
    let mut args = vec!["sj_c".to_owned()];
    for (i, name) in argument_names(op).into_iter().enumerate() {
        let room = format!("{name}_room");
        args.push(name);
        if op.op.params.get(i).is_some_and(|p| op.is_callers(p)) {
            args.push(room);
        }
    }
    c!(
        "
        $theirs;
        static inline $ours
        {
            return $function($args);
        }
        ",
        theirs,
        ours,
        function,
        args = args.join(", "),
    )
}

fn binding(model: Model<'_>, interface: &Interface) -> Code {
    let name = &interface.name;
    let local = operations(model, interface).iter().any(is_direct).then(|| {
        c!(
            "
            if (status == SJ_OK)
                sj_c->stub.local = sj_stub_find_local(connection, &$name_id);
            ",
            name,
        )
    });
    c!(
        "

        /* Asks the server for the interface; the connection stays the caller's. */
        static inline sj_status $name_bind($name_client *sj_c, sj_connection *connection)
        {
            sj_status status = sj_stub_bind(&sj_c->stub, connection, &$name_id);
            $local
            return status;
        }

        static inline void $name_unbind($name_client *sj_c)
        {
            sj_stub_free(&sj_c->stub);
        }
        ",
        name,
        local = local.unwrap_or_default(),
    )
}

/// Definitions of the stubs: those that are in line, or the others.
pub(super) fn definitions(model: Model<'_>, interface: &Interface, in_line: bool) -> Code {
    let table = Table::of(model, interface);
    let mut out = Code::new();
    for op in operations(model, interface) {
        if !op.has_client() || op.is_inline() != in_line {
            continue;
        }
        out += &remote(&op);
        if is_direct(&op) {
            out += &local(&op, &table);
        }
        out += &public(&op, in_line);
    }
    out
}

/// The implementation itself, by reference.
fn local(op: &Op<'_>, table: &Table) -> Code {
    let mut args = vec!["sj_i->self".to_owned(), "&sj_n".to_owned()];
    args.extend(argument_names(op).iter().map(|a| format!("sj_v->{a}")));
    let (check, function) = match &op.op.acf.impl_server {
        Some(f) => (Code::new(), path(f)),
        None => {
            let f = format!("(sj_i->{})", table.member(op));
            let check = c!(
                "
                if (!$f)
                    return sj_stub_local(sj_s, SJ_FAULT_UNKNOWN_OPERATION);
                ",
                f,
            );
            (check, f)
        }
    };
    let args = args.join(", ");
    let call = match op.op.oneway {
        true => c!(
            "
            $function($args);
            return SJ_OK;
            ",
            function,
            args,
        ),
        false => c!("return sj_stub_local(sj_s, $function($args));", function, args),
    };
    c!(
        "

        static inline sj_status sj_of_$name_local(sj_stub *sj_s, $args *sj_v)
        {
            const $iface_server *sj_i = (const $iface_server *)sj_s->local;
            sj_invocation sj_n;
            memset(&sj_n, 0, sizeof sj_n);
            sj_n.arena = sj_stub_arena(sj_s);
            (void)sj_v;
            $check
            $call
        }
        ",
        name = op.name(),
        args = op.args(),
        iface = op.interface.name,
        check,
        call,
    )
}

/// The function users call.
fn public(op: &Op<'_>, in_line: bool) -> Code {
    let model = op.model;
    let mut values = Code::new();
    for p in &op.op.params {
        let f = &p.name;
        if op.is_callers(p) {
            values += &c!(
                "
                $got;
                sj_v.$f = &sj_got_$f;
                ",
                got = model.decl(&p.ty, &format!("sj_got_{f}")),
                f,
            );
            continue;
        }
        let cast = match (model.passing(op.op, p), model.resolve(&p.ty)) {
            (Passing::Pointer, _) => model.decl(&p.ty, "*"),
            (Passing::Decayed, Ty::Fixed(e, _)) => model.decl(e, "*"),
            (_, Ty::Array(_) | Ty::String(_) | Ty::Pointer(..)) => model.name(&p.ty),
            _ => String::new(),
        };
        let cast = if cast.is_empty() { cast } else { format!("({cast})") };
        values += &c!("sj_v.$f = $cast$f;", f, cast);
    }
    if op.op.result.is_some() {
        values += &c!("sj_v.$f = $f;", f = result_name(op.op));
    }
    c!(
        "

        $storage$signature
        {
            $args sj_v;
            $values
            $call
        }
        ",
        storage = if in_line { "static inline " } else { "" },
        signature = signature(op),
        args = op.args(),
        values,
        call = public_call(op),
    )
}

/// The call from within the function users call, and what becomes of its status.
fn public_call(op: &Op<'_>) -> Code {
    let name = op.name();
    let call = if is_direct(op) {
        format!(
            "sj_c->stub.local ? sj_of_{name}_local(&sj_c->stub, &sj_v) : sj_of_{name}_remote(&sj_c->stub, &sj_v)"
        )
    } else {
        format!("sj_of_{name}_remote(&sj_c->stub, &sj_v)")
    };
    let StatusTargets { comm, fault } = status_targets(op);
    let has_buffers = op.op.params.iter().any(|p| op.is_callers(p));
    if !has_buffers && comm == "NULL" && fault == "NULL" {
        return c!("return $call;", call);
    }
    c!(
        "
        sj_status sj_r = $call;
        $buffers
        return sj_stub_report(&sj_c->stub, sj_r, $comm, $fault);
        ",
        call,
        buffers = if has_buffers { callers_buffers(op) } else { Code::new() },
        comm,
        fault,
    )
}

/// Copies what the callee sized into the caller's buffers.
fn callers_buffers(op: &Op<'_>) -> Code {
    let mut out = c!(
        "
        const $args *sj_w = &sj_v;
        (void)sj_w;
        ",
        args = op.args(),
    );
    let mut sc = op.scope();
    for sibling in &mut sc.siblings {
        sibling.lv = sibling.lv.replace("sj_v->", "sj_w->");
    }
    for p in op.op.params.iter().filter(|p| op.is_callers(p)) {
        let f = &p.name;
        let (count, element) = match op.header(&p.ty) {
            Ty::Array(a) => {
                let n = op.model.expr(&a.size, &sc.siblings);
                (format!("sj_got_{f} ? (size_t)({n}) : 0"), op.model.name(&a.element))
            }
            Ty::String(s) if s.wide => {
                (format!("sj_wide_length(sj_got_{f}) + 1"), "uint16_t".to_owned())
            }
            _ => (format!("strlen(sj_got_{f}) + 1"), "char".to_owned()),
        };
        // No string at all looks like an empty one to a caller who has only a buffer.
        if matches!(op.header(&p.ty), Ty::String(_)) {
            out += &c!(
                "
                static const $element sj_none_$f[1] = {0};
                if (sj_r == SJ_OK && !sj_got_$f)
                    sj_got_$f = ($element *)(uintptr_t)sj_none_$f;
                ",
                element,
                f,
            );
        }
        out += &c!(
            "
            if (sj_r == SJ_OK) {
                const size_t sj_n = $count;
                if (sj_n > $f_room)
                    sj_r = SJ_TOO_LARGE;
                else if (sj_n)
                    sj_copy_any($f, sj_got_$f, sj_n * sizeof($element));
            }
            ",
            count,
            f,
            element,
        );
    }
    out
}

/// Where comm_status and fault_status go, as C expressions: an out parameter, the result, or NULL.
struct StatusTargets {
    comm: String,
    fault: String,
}

fn status_targets(op: &Op<'_>) -> StatusTargets {
    let of = |on_op: bool, on_param: &dyn Fn(&crate::ir::Param) -> bool| {
        if let Some(p) = op.op.params.iter().find(|p| p.is_out() && on_param(p)) {
            return format!("(uint32_t *){}", p.name);
        }
        if on_op && op.op.result.is_some() {
            return format!("(uint32_t *){}", result_name(op.op));
        }
        "NULL".to_owned()
    };
    StatusTargets {
        comm: of(op.op.acf.comm_status, &|p| p.acf.comm_status),
        fault: of(op.op.acf.fault_status, &|p| p.acf.fault_status),
    }
}
