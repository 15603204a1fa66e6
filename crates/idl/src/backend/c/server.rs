//! The server's side: table of implementations, dispatch, replies at once or later.

use crate::ir::{Interface, InterfaceId, OnViolation, Ty};

use super::client::argument_names;
use super::ctype::{params, result_name};
use super::emit::Emit;
use super::model::{Model, Passing};
use super::op::{Direction, Op, Table, operations};
use super::text::{Text, path};

/// Larger values than this are kept in the arena, not on the stack.
const STACK_MAX: u64 = 256;

/// Parameters of an implementation: a deferred one gets the right to answer instead of what goes
/// out.
pub(super) fn implementation_params(op: &Op<'_>) -> Vec<String> {
    let mut all = vec!["void *self".to_owned(), "sj_invocation *call".to_owned()];
    if op.op.acf.deferred {
        all.push("const sj_deferred *later".to_owned());
        let ins = op.op.params.iter().filter(|p| p.is_in());
        all.extend(ins.map(|p| op.model.param_decl(op.op, p)));
    } else {
        all.extend(params(op.model, op.op));
    }
    all
}

pub(super) fn implementation_result(op: &Op<'_>) -> &'static str {
    if op.op.oneway { "void" } else { "sj_outcome" }
}

/// Declarations for the header.
pub(super) fn declarations(emit: &mut Emit<'_>, interface: &Interface) {
    let name = &interface.name;
    let ops = operations(emit.model, interface);
    let table = Table::of(emit.model, interface);
    let w = &mut emit.w;
    w.blank();
    w.line(format!(
        "/* Implementations of {name}: 0 is success, anything else a fault the client sees. */"
    ));
    w.open(format!("typedef struct {name}_server"));
    w.line("void *self;");
    for op in ops.iter().filter(|op| op.op.acf.impl_server.is_none()) {
        w.doc(op.op.doc.as_deref());
        w.line(format!(
            "{} (*{})({});",
            implementation_result(op),
            table.member(op),
            implementation_params(op).join(", ")
        ));
    }
    for (id, rundown) in &table.rundowns {
        let context = emit.model.type_name(*id);
        w.line(format!("/* A client is gone that held this {context}; may be NULL. */"));
        w.line(format!("void (*{rundown})(void *self, {context} context);"));
    }
    w.close_with(&format!(" {name}_server;"));
    for op in &ops {
        if let Some(function) = &op.op.acf.impl_server {
            w.line(format!(
                "{} {}({});",
                implementation_result(op),
                path(function),
                implementation_params(op).join(", ")
            ));
        }
    }
    for op in ops.iter().filter(|op| op.op.acf.deferred) {
        w.blank();
        w.line("/* Answers a call of this operation that was put off. */");
        w.line(format!("{};", reply_signature(op)));
    }
    w.blank();
    w.line(format!("/* For sj_router_add(), with a {name}_server as the implementation. */"));
    w.line(format!("extern const sj_interface {name}_interface;"));
    w.line("/* Serves this one interface on a server handle until the deadline or an error. */");
    w.line(format!(
        "sj_status {name}_serve(const {name}_server *impl, sj_server *server, int64_t deadline_ns);"
    ));
}

fn reply_signature(op: &Op<'_>) -> String {
    let mut all = vec!["const sj_deferred *later".to_owned()];
    all.extend(op.reply_inputs().iter().map(|p| op.model.param_decl(op.op, p)));
    for p in op.op.params.iter().filter(|p| p.is_out()) {
        all.push(op.model.param_decl(op.op, p));
    }
    if let Some(ty) = &op.op.result {
        all.push(op.model.decl(ty, &format!("*{}", result_name(op.op))));
    }
    format!("sj_status {}_reply({})", op.name(), all.join(", "))
}

/// The names under which an interface answers, and its size.
pub(super) fn ids(model: Model<'_>, interface: &Interface) -> Vec<(crate::ir::Uuid, u16, u16)> {
    let mut all = vec![(interface.uuid, interface.version.major, interface.version.minor)];
    let mut base = interface.base;
    while let Some(InterfaceId(i)) = base {
        let Some(b) = model.m.interfaces.get(i as usize) else { break };
        if all.len() > model.m.interfaces.len() {
            break;
        }
        all.push((b.uuid, b.version.major, b.version.minor));
        base = b.base;
    }
    all
}

pub(super) fn id_initialiser((uuid, major, minor): &(crate::ir::Uuid, u16, u16)) -> String {
    let bytes: Vec<String> = uuid.iter().map(|b| format!("0x{b:02x}")).collect();
    format!("{{{{{}}}, {major}, {minor}}}", bytes.join(", "))
}

/// One function per operation, in line, for `dispatch::by_switch`: a server that wants its
/// implementation and the stubs in one translation unit includes them.
pub(super) fn inline_definitions(emit: &mut Emit<'_>, interface: &Interface) {
    let table = Table::of(emit.model, interface);
    rundown(emit, interface, &table);
    let ops = operations(emit.model, interface);
    for op in &ops {
        if !op.op.oneway {
            answer(emit, op, &table);
        }
        run(emit, op, &table);
        if op.has_short_way() {
            serve(emit, op, false);
            serve_short(emit, op);
        } else {
            serve(emit, op, true);
        }
    }
}

fn rundown(emit: &mut Emit<'_>, interface: &Interface, table: &Table) {
    let name = &interface.name;
    let all = &table.rundowns;
    if all.is_empty() {
        return;
    }
    let model = emit.model;
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "static inline void sj_of_{name}_rundown(const void *impl, const char *kind, void *context)"
    ));
    w.line(format!("const {name}_server *sj_i = (const {name}_server *)impl;"));
    for (id, rundown) in all {
        let context = model.type_name(*id);
        w.line(format!("if (strcmp(kind, \"{context}\") == 0 && sj_i->{rundown})"));
        w.line(format!("    sj_i->{rundown}(sj_i->self, context);"));
    }
    w.close();
}

/// Builds the reply from the argument structure.
fn answer(emit: &mut Emit<'_>, op: &Op<'_>, table: &Table) {
    let (name, iface) = (op.name(), &op.interface.name);
    let rundown = if table.rundowns.is_empty() {
        "NULL".to_owned()
    } else {
        format!("sj_of_{iface}_rundown")
    };
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "SJ_INLINE sj_outcome sj_of_{name}_answer(sj_service *sj_s, const sj_token *sj_t, sj_client sj_k, const void *sj_i, sj_arena *sj_a, const {} *sj_v, sj_out *sj_o)",
        op.args()
    ));
    w.line("sj_enc sj_e;");
    let limit = if op.is_fixed(Direction::Reply) {
        "SIZE_MAX".to_owned()
    } else {
        op.threshold("sj_reference_threshold()")
    };
    if op.is_planned(Direction::Reply) {
        w.line(format!("struct sj_of_{name}_reply_plan sj_p;"));
        w.line(format!("sj_enc_init(&sj_e, sj_a, {limit});"));
        w.line("(void)sj_k, (void)sj_i;");
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_reply_plan(&sj_e, sj_v, &sj_p)))"));
        w.line("    return sj_service_failed(&sj_e);");
        w.line("sj_reply_start(sj_s->server, sj_t, sj_p.size, sj_o);");
        if !op.parts(Direction::Reply).is_empty() {
            w.line("if (SJ_UNLIKELY(!sj_o->body))");
            w.line("    return SJ_FAULT_TOO_LARGE;");
        }
        w.line(format!("sj_enc_into(&sj_e, sj_o, {});", op.layout(Direction::Reply).size));
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_reply_put(&sj_e, sj_v, &sj_p)))"));
        w.line("    return sj_service_failed(&sj_e);");
        if !op.is_fixed(Direction::Reply) {
            w.line("sj_service_attach(sj_s, &sj_e, sj_o);");
        }
        w.line("return SJ_OUTCOME_REPLY;");
    } else {
        w.line(format!("sj_enc_init_grow(&sj_e, sj_a, {limit}, &sj_s->scratch);"));
        if op.needs_service(Direction::Reply) {
            w.line(format!("sj_service_enc(sj_s, sj_k, sj_i, {rundown}, &sj_e);"));
        } else {
            w.line("(void)sj_k, (void)sj_i;");
        }
        w.line(format!("if (SJ_UNLIKELY(!sj_of_{name}_reply_put(&sj_e, sj_v)))"));
        w.line("    return sj_service_failed(&sj_e);");
        w.line("return sj_service_start(sj_s, sj_t, &sj_e, sj_o);");
    }
    w.close();
}

/// Everything between the decoded request and the reply.
fn run(emit: &mut Emit<'_>, op: &Op<'_>, table: &Table) {
    let (name, iface) = (op.name(), &op.interface.name);
    emit.w.blank();
    emit.w.function(format!(
        "SJ_INLINE sj_outcome sj_of_{name}_run(const {iface}_server *sj_i, sj_service *sj_s, sj_event *sj_x, {} *sj_v, sj_out *sj_o)",
        op.args()
    ));
    let mut args = vec!["sj_i->self".to_owned(), "sj_n".to_owned()];
    let mut rooms = Vec::new();
    if op.op.acf.deferred {
        args.push("&sj_l".to_owned());
        let ins = op.op.params.iter().filter(|p| p.is_in());
        args.extend(ins.map(|p| format!("sj_v->{}", p.name)));
    } else {
        emit.server_buffers(op);
        rooms = emit.server_rooms(op);
        args.extend(argument_names(op).iter().map(|a| format!("sj_v->{a}")));
    }
    let w = &mut emit.w;
    w.line("sj_invocation *sj_n = sj_service_invocation(sj_s, sj_x);");
    w.line("(void)sj_v, (void)sj_o;");
    if op.parts(Direction::Reply).iter().any(|p| op.model.has_descriptor(p.ty)) {
        w.line("sj_s->in = &sj_x->in;");
    }
    let function = match &op.op.acf.impl_server {
        Some(f) => path(f),
        None => {
            // In parentheses: a macro that takes arguments leaves it alone.
            let member = table.member(op);
            let f = format!("(sj_i->{member})");
            w.line(format!("if (SJ_UNLIKELY(!{f}))"));
            w.line("    return SJ_FAULT_UNKNOWN_OPERATION;");
            f
        }
    };
    let call = format!("{function}({})", args.join(", "));
    if op.op.oneway {
        w.line(format!("{call};"));
        w.line("return SJ_OUTCOME_NOTHING;");
    } else if op.op.acf.deferred {
        w.line("const sj_deferred sj_l = {sj_s, sj_x->token, sj_x->client, sj_i};");
        w.line(format!("const sj_outcome sj_r = {call};"));
        w.line("return sj_r ? sj_r : SJ_OUTCOME_NOTHING;");
    } else {
        w.line(format!("const sj_outcome sj_r = {call};"));
        w.line("if (SJ_UNLIKELY(sj_r != 0))");
        w.line("    return sj_r;");
        for (name, room) in rooms {
            w.line(format!("if (SJ_UNLIKELY({room} > {name}))"));
            w.line("    return SJ_FAULT_NO_RESOURCES;");
        }
        w.line(format!(
            "return sj_of_{name}_answer(sj_s, &sj_x->token, sj_x->client, sj_i, &sj_s->arena, sj_v, sj_o);"
        ));
    }
    w.close();
}

/// Storage of what goes out, and the request taken apart.
fn serve(emit: &mut Emit<'_>, op: &Op<'_>, is_only: bool) {
    let (name, iface) = (op.name(), &op.interface.name);
    let violation = match op.op.acf.on_violation.or(op.interface.acf.on_violation) {
        Some(OnViolation::Fault) => "SJ_FAULT_BAD_MESSAGE",
        _ => "SJ_OUTCOME_VIOLATION",
    };
    let (head, suffix) =
        if is_only { ("SJ_INLINE", "") } else { ("static SJ_OUT_OF_LINE", "_any") };
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "{head} sj_outcome sj_of_{name}_serve{suffix}(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)"
    ));
    w.line(format!("const {iface}_server *sj_i = (const {iface}_server *)impl;"));
    w.line(format!("{} sj_v;", op.args()));
    w.line("sj_dec sj_d;");
    if is_only {
        kind(op, w);
    }
    if let Some(max) = op.op.acf.max_message {
        w.line(format!("if (SJ_UNLIKELY(sj_request_exceeds(&sj_x->in, {max}u)))"));
        w.line(format!("    return {violation};"));
    }
    storage(op, w);
    w.line("sj_dec_init(&sj_d, &sj_x->in, &sj_s->arena, true);");
    if op.needs_service(Direction::Request) {
        w.line("sj_service_contexts(sj_s, sj_x, &sj_d);");
    }
    w.line("sj_outcome sj_r;");
    w.line(format!("if (SJ_LIKELY(sj_of_{name}_request_get(&sj_d, &sj_v)))"));
    w.line(format!("    sj_r = sj_of_{name}_run(sj_i, sj_s, sj_x, &sj_v, sj_o);"));
    w.line("else");
    w.line(format!("    sj_r = sj_service_refuse(&sj_d, {violation});"));
    let parts = op.parts(Direction::Request).into_iter().chain(op.parts(Direction::Reply));
    if parts.into_iter().any(|p| op.model.has_marshal(p.ty)) {
        w.line("sj_cleanup_run(&sj_s->cleanup);");
    }
    w.line("return sj_r;");
    w.close();
}

/// The same for requests that lie in the body altogether.
fn serve_short(emit: &mut Emit<'_>, op: &Op<'_>) {
    let (name, iface) = (op.name(), &op.interface.name);
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "SJ_INLINE sj_outcome sj_of_{name}_serve(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)"
    ));
    w.line(format!("const {iface}_server *sj_i = (const {iface}_server *)impl;"));
    w.line(format!("{} sj_v;", op.args()));
    kind(op, w);
    storage(op, w);
    w.line(format!("if (SJ_LIKELY(sj_of_{name}_request_short(&sj_x->in, &sj_v)))"));
    w.line(format!("    return sj_of_{name}_run(sj_i, sj_s, sj_x, &sj_v, sj_o);"));
    w.line(format!("return sj_of_{name}_serve_any(impl, sj_s, sj_x, sj_o);"));
    w.close();
}

/// A call of a one-way operation and a one-way message to any other break the rules.
fn kind(op: &Op<'_>, w: &mut Text) {
    let event = if op.op.oneway { "SJ_EVENT_SEND" } else { "SJ_EVENT_CALL" };
    w.line(format!("if (SJ_UNLIKELY(sj_x->kind != {event}))"));
    w.line("    return SJ_OUTCOME_VIOLATION;");
}

/// Where `out` and `in, out` parameters are while the implementation runs: zero to begin with.
fn storage(op: &Op<'_>, w: &mut Text) {
    for part in op.parts(Direction::Reply) {
        let is_in = part.param.is_some_and(crate::ir::Param::is_in);
        if part.passing == Passing::Buffer || (op.op.acf.deferred && !is_in) {
            continue;
        }
        let model = op.model;
        let f = &part.name;
        let (cast, address) = match (part.passing, model.resolve(part.ty)) {
            (Passing::Decayed, Ty::Fixed(e, _)) => (model.decl(e, "*"), format!("sj_store_{f}")),
            _ => (model.decl(part.ty, "*"), format!("&sj_store_{f}")),
        };
        if model.size(part.ty) <= STACK_MAX {
            w.line(format!("{};", model.decl(part.ty, &format!("sj_store_{f}"))));
            if !(is_in && model.is_plain(part.ty)) {
                w.line(format!("memset(&sj_store_{f}, 0, sizeof sj_store_{f});"));
            }
            w.line(format!("sj_v.{f} = {address};"));
        } else {
            let name = model.name(part.ty);
            w.line(format!("sj_v.{f} = ({cast})sj_arena_zeroed(&sj_s->arena, sizeof({name}));"));
            w.line(format!("if (SJ_UNLIKELY(!sj_v.{f}))"));
            w.line("    return SJ_FAULT_NO_RESOURCES;");
        }
    }
}

/// The function that answers a deferred call.
pub(super) fn later(emit: &mut Emit<'_>, op: &Op<'_>) {
    let name = op.name();
    let w = &mut emit.w;
    w.blank();
    w.function(reply_signature(op));
    w.line(format!("{} sj_v;", op.args()));
    w.line("memset(&sj_v, 0, sizeof sj_v);");
    let outs = op.op.params.iter().filter(|p| p.is_out());
    for p in op.reply_inputs().into_iter().chain(outs) {
        let f = &p.name;
        let cast = match (op.model.passing(op.op, p), op.model.resolve(&p.ty)) {
            (Passing::Pointer, _) => format!("({})", op.model.decl(&p.ty, "*")),
            _ => String::new(),
        };
        w.line(format!("sj_v.{f} = {cast}{f};"));
    }
    if op.op.result.is_some() {
        let f = result_name(op.op);
        w.line(format!("sj_v.{f} = {f};"));
    }
    w.line("sj_out sj_o;");
    w.line("sj_arena sj_a;");
    w.line("sj_buffer sj_b = {NULL, 0};");
    w.line("memset(&sj_a, 0, sizeof sj_a);");
    w.line("/* The service may be in the middle of another call: its memory stays as it is. */");
    w.line("sj_service sj_s = *later->service;");
    w.line("sj_s.scratch = sj_b;");
    w.line("sj_s.cleanup = NULL;");
    w.line("sj_s.in = NULL;");
    w.line("sj_s.n_fds = 0;");
    w.line(format!(
        "sj_outcome sj_r = sj_of_{name}_answer(&sj_s, &later->token, later->client, later->impl, &sj_a, &sj_v, &sj_o);"
    ));
    w.line("later->service->contexts = sj_s.contexts;");
    w.line("sj_status sj_t;");
    w.line("if (sj_r == SJ_OUTCOME_REPLY)");
    w.line("    sj_t = sj_reply(sj_s.server, &sj_o);");
    w.line("else");
    w.line("    sj_t = sj_reply_fault(sj_s.server, &later->token, sj_r);");
    w.line("if (sj_r == SJ_OUTCOME_REPLY)");
    w.line("    for (uint32_t sj_i = 0; sj_i < sj_s.n_fds; sj_i++)");
    w.line("        (void)close(sj_s.fds[sj_i]);");
    w.line("sj_cleanup_run(&sj_s.cleanup);");
    w.line("sj_arena_free(&sj_a);");
    w.line("sj_buffer_free(&sj_s.scratch);");
    w.line("return sj_t;");
    w.close();
}
