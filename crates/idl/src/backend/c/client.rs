//! Client stubs: the binding structure, one function per operation, direct calls within one address
//! space.

use crate::ir::{Dir, Inproc, Interface, Sync, Ty};

use super::ctype::{params, result_name};
use super::emit::Emit;
use super::model::Passing;
use super::op::{Direction, Op, Table, operations};
use super::text::{Text, path};

/// A way to wait as the numbers of `sj_wait`: which, and microseconds of spinning.
pub(super) fn wait(sync: Sync) -> (u32, u32) {
    match sync {
        Sync::Adaptive => (0, 0),
        Sync::Spin(None) => (1, 0),
        Sync::Spin(Some(us)) => (1, u32::try_from(us).unwrap_or(u32::MAX)),
        Sync::Park => (2, 0),
    }
}

/// Whether the implementation may be called directly when it is in this address space.
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
pub(super) fn declarations(emit: &mut Emit<'_>, interface: &Interface) {
    let name = &interface.name;
    let w = &mut emit.w;
    w.blank();
    w.line(format!("/* A client of {name}: bind it, call it, unbind it. One thread at a time. */"));
    w.open(format!("typedef struct {name}_client"));
    w.line("sj_stub stub;");
    w.close_with(&format!(" {name}_client;"));
    for op in operations(emit.model, interface) {
        if !op.has_client() {
            continue;
        }
        emit.w.blank();
        emit.w.doc(op.op.doc.as_deref());
        if !op.is_inline() {
            emit.w.line(format!("{};", signature(&op)));
        } else {
            emit.w.line(format!("static inline {};", signature(&op)));
        }
        if let Some(function) = &op.op.acf.impl_client {
            hand_written(&op, &path(function), &mut emit.w);
        }
    }
    binding(emit, interface);
}

/// The user's own client side of an operation under the operation's name.
fn hand_written(op: &Op<'_>, function: &str, w: &mut Text) {
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
    w.line(format!("{theirs};"));
    w.function(format!("static inline {ours}"));
    w.line(format!("return {function}({});", args.join(", ")));
    w.close();
}

fn binding(emit: &mut Emit<'_>, interface: &Interface) {
    let name = &interface.name;
    let direct = operations(emit.model, interface).iter().any(is_direct);
    let w = &mut emit.w;
    w.blank();
    w.line("/* Asks the server for the interface; the connection stays the caller's. */");
    w.function(format!(
        "static inline sj_status {name}_bind({name}_client *sj_c, sj_connection *connection)"
    ));
    w.line(format!("sj_status status = sj_stub_bind(&sj_c->stub, connection, &{name}_id);"));
    if direct {
        w.line("if (status == SJ_OK)");
        w.line(format!("    sj_c->stub.local = sj_stub_find_local(connection, &{name}_id);"));
    }
    w.line("return status;");
    w.close();
    w.blank();
    w.function(format!("static inline void {name}_unbind({name}_client *sj_c)"));
    w.line("sj_stub_free(&sj_c->stub);");
    w.close();
}

/// Definitions of the stubs: those that are in line, or the others.
pub(super) fn definitions(emit: &mut Emit<'_>, interface: &Interface, in_line: bool) {
    let table = Table::of(emit.model, interface);
    for op in operations(emit.model, interface) {
        if !op.has_client() || op.is_inline() != in_line {
            continue;
        }
        remote(emit, &op);
        if is_direct(&op) {
            local(emit, &op, &table);
        }
        public(emit, &op, in_line);
    }
}

/// Marshal, send, wait, unmarshal.
fn remote(emit: &mut Emit<'_>, op: &Op<'_>) {
    let (name, args) = (op.name(), op.args());
    emit.w.blank();
    emit.w
        .function(format!("SJ_INLINE sj_status sj_of_{name}_remote(sj_stub *sj_s, {args} *sj_v)"));
    emit.w.line("sj_out sj_o;");
    emit.w.line("sj_enc sj_e;");
    let arena = op.needs_arena(Direction::Request);
    if arena {
        emit.w.line("SJ_ALIGNED(16) unsigned char sj_memory[SJ_STUB_STACK];");
        emit.w.line("sj_arena sj_a;");
        emit.w.line("sj_arena_init(&sj_a, sj_memory, sizeof sj_memory);");
    }
    let arena_name = if arena { "&sj_a" } else { "NULL" };
    let limit = op.threshold("sj_s->threshold");
    send(emit, op, arena_name, &limit);
    if arena {
        emit.w.line("sj_arena_free(&sj_a);");
    }
    if op.op.oneway {
        emit.w.line("return sj_r;");
        emit.w.close();
        return;
    }
    emit.w.line("if (SJ_UNLIKELY(sj_r != SJ_OK))");
    emit.w.line("    return sj_stub_failed(sj_s, sj_r);");
    emit.w.line("sj_dec sj_d;");
    if op.is_plain_reply() {
        emit.w.line("sj_dec_init(&sj_d, &sj_s->in, NULL, true);");
        emit.w.line(format!("return sj_stub_finish_plain(sj_of_{name}_reply_get(&sj_d, sj_v));"));
        emit.w.close();
        return;
    }
    emit.w.line("sj_dec_init(&sj_d, &sj_s->in, sj_stub_arena(sj_s), sj_s->results == NULL);");
    emit.w
        .line(format!("return sj_stub_finish(sj_s, &sj_d, sj_of_{name}_reply_get(&sj_d, sj_v));"));
    emit.w.close();
}

fn send(emit: &mut Emit<'_>, op: &Op<'_>, arena: &str, limit: &str) {
    let name = op.name();
    let w = &mut emit.w;
    let opnum = format!("(uint16_t)(sj_s->base + {}u)", op.op.opnum);
    let fail = |w: &mut Text, status: &str| {
        if arena == "NULL" {
            w.line(format!("    return {status};"));
        } else {
            w.line(format!("    return sj_arena_free(&sj_a), {status};"));
        }
    };
    if op.is_planned(Direction::Request) {
        w.line(format!("struct sj_of_{name}_request_plan sj_p;"));
        w.line(format!("sj_enc_init(&sj_e, {arena}, {limit});"));
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_request_plan(&sj_e, sj_v, &sj_p)))"));
        fail(w, "SJ_INVALID");
        w.line(format!("sj_start(sj_s->connection, {opnum}, sj_p.size, &sj_o);"));
        w.line("if (SJ_UNLIKELY(!sj_o.body))");
        fail(w, "SJ_TOO_LARGE");
        w.line(format!("sj_enc_into(&sj_e, &sj_o, {});", op.layout(Direction::Request).size));
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_request_put(&sj_e, sj_v, &sj_p)))"));
        fail(w, "SJ_INVALID");
        if !op.is_fixed(Direction::Request) {
            w.line("sj_enc_attach(&sj_e, &sj_o);");
        }
    } else {
        w.line(format!("sj_enc_init_grow(&sj_e, {arena}, {limit}, &sj_s->scratch);"));
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_request_put(&sj_e, sj_v)))"));
        fail(w, "SJ_INVALID");
        w.line(format!("if (SJ_UNLIKELY(!sj_stub_start(sj_s, {opnum}, &sj_e, &sj_o)))"));
        fail(w, "SJ_TOO_LARGE");
    }
    if let Some(max) = op.op.acf.max_message {
        w.line(format!("if (SJ_UNLIKELY(sj_exceeds(&sj_e, sj_o.body_len, {max}u)))"));
        fail(w, "SJ_TOO_LARGE");
    }
    let call = if op.op.oneway { "sj_stub_send" } else { "sj_stub_call" };
    let (call, wait) = match op.op.acf.sync.map(wait) {
        Some((how, us)) => (format!("{call}_waiting"), format!(", {how}u, {us}u")),
        None => (call.to_owned(), String::new()),
    };
    let timeout = op.op.acf.timeout_ms.unwrap_or(0).saturating_mul(1_000_000);
    let timeout = timeout.min(i64::MAX as u64);
    w.line(format!("sj_status sj_r = {call}(sj_s, &sj_o, INT64_C({timeout}){wait});"));
}

/// The implementation itself, by reference.
fn local(emit: &mut Emit<'_>, op: &Op<'_>, table: &Table) {
    let (name, iface) = (op.name(), &op.interface.name);
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "static inline sj_status sj_of_{name}_local(sj_stub *sj_s, {} *sj_v)",
        op.args()
    ));
    w.line(format!("const {iface}_server *sj_i = (const {iface}_server *)sj_s->local;"));
    w.line("sj_invocation sj_n;");
    w.line("memset(&sj_n, 0, sizeof sj_n);");
    w.line("sj_n.arena = sj_stub_arena(sj_s);");
    w.line("(void)sj_v;");
    let mut args = vec!["sj_i->self".to_owned(), "&sj_n".to_owned()];
    args.extend(argument_names(op).iter().map(|a| format!("sj_v->{a}")));
    let function = match &op.op.acf.impl_server {
        Some(f) => path(f),
        None => {
            let member = table.member(op);
            let f = format!("(sj_i->{member})");
            w.line(format!("if (!{f})"));
            w.line("    return sj_stub_local(sj_s, SJ_FAULT_UNKNOWN_OPERATION);");
            f
        }
    };
    let call = format!("{function}({})", args.join(", "));
    if op.op.oneway {
        w.line(format!("{call};"));
        w.line("return SJ_OK;");
    } else {
        w.line(format!("return sj_stub_local(sj_s, {call});"));
    }
    w.close();
}

/// The function users call.
fn public(emit: &mut Emit<'_>, op: &Op<'_>, in_line: bool) {
    let name = op.name();
    let model = op.model;
    let storage = if in_line { "static inline " } else { "" };
    let w = &mut emit.w;
    w.blank();
    w.function(format!("{storage}{}", signature(op)));
    w.line(format!("{} sj_v;", op.args()));
    for p in &op.op.params {
        let f = &p.name;
        if op.is_callers(p) {
            w.line(format!("{};", model.decl(&p.ty, &format!("sj_got_{f}"))));
            w.line(format!("sj_v.{f} = &sj_got_{f};"));
            continue;
        }
        let cast = match (model.passing(op.op, p), model.resolve(&p.ty)) {
            (Passing::Pointer, _) => model.decl(&p.ty, "*"),
            (Passing::Decayed, Ty::Fixed(e, _)) => model.decl(e, "*"),
            (_, Ty::Array(_) | Ty::String(_) | Ty::Pointer(..)) => model.name(&p.ty),
            _ => String::new(),
        };
        let cast = if cast.is_empty() { cast } else { format!("({cast})") };
        w.line(format!("sj_v.{f} = {cast}{f};"));
    }
    if op.op.result.is_some() {
        let f = result_name(op.op);
        w.line(format!("sj_v.{f} = {f};"));
    }
    let call = if is_direct(op) {
        format!(
            "sj_c->stub.local ? sj_of_{name}_local(&sj_c->stub, &sj_v) : sj_of_{name}_remote(&sj_c->stub, &sj_v)"
        )
    } else {
        format!("sj_of_{name}_remote(&sj_c->stub, &sj_v)")
    };
    let (comm, fault) = status_targets(op);
    if op.op.params.iter().any(|p| op.is_callers(p)) {
        w.line(format!("sj_status sj_r = {call};"));
        callers_buffers(op, w);
        w.line(format!("return sj_stub_report(&sj_c->stub, sj_r, {comm}, {fault});"));
    } else if comm == "NULL" && fault == "NULL" {
        w.line(format!("return {call};"));
    } else {
        w.line(format!("sj_status sj_r = {call};"));
        w.line(format!("return sj_stub_report(&sj_c->stub, sj_r, {comm}, {fault});"));
    }
    w.close();
}

/// Copies what the callee sized into the caller's buffers.
fn callers_buffers(op: &Op<'_>, w: &mut Text) {
    w.line(format!("const {} *sj_w = &sj_v;", op.args()));
    w.line("(void)sj_w;");
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
            w.line(format!("static const {element} sj_none_{f}[1] = {{0}};"));
            w.line(format!("if (sj_r == SJ_OK && !sj_got_{f})"));
            w.line(format!("    sj_got_{f} = ({element} *)(uintptr_t)sj_none_{f};"));
        }
        w.open("if (sj_r == SJ_OK)");
        w.line(format!("const size_t sj_n = {count};"));
        w.line(format!("if (sj_n > {f}_room)"));
        w.line("    sj_r = SJ_TOO_LARGE;");
        w.line("else if (sj_n)");
        w.line(format!("    sj_copy_any({f}, sj_got_{f}, sj_n * sizeof({element}));"));
        w.close();
    }
}

/// Where comm_status and fault_status go: an out parameter, or the result.
fn status_targets(op: &Op<'_>) -> (String, String) {
    let of = |on_op: bool, on_param: &dyn Fn(&crate::ir::Param) -> bool| {
        if let Some(p) = op.op.params.iter().find(|p| p.is_out() && on_param(p)) {
            return format!("(uint32_t *){}", p.name);
        }
        if on_op && op.op.result.is_some() {
            return format!("(uint32_t *){}", result_name(op.op));
        }
        "NULL".to_owned()
    };
    (
        of(op.op.acf.comm_status, &|p| p.acf.comm_status),
        of(op.op.acf.fault_status, &|p| p.acf.fault_status),
    )
}
