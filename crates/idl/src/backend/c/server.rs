//! The server's side: table of implementations, dispatch, replies at once or later.

use crate::ir::{Interface, InterfaceId, Uuid, Version};

use super::buffer::Room;
use super::client::argument_names;
use super::ctype::{params, result_name};
use super::emit::Emit;
use super::model::{Model, Passing};
use super::op::{Direction, Op, Rundown, Table, operations};
use super::serve::{kind, serve, serve_short};
use super::template::{Code, c};
use super::text::{doc, path};

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
pub(super) fn declarations(model: Model<'_>, interface: &Interface) -> Code {
    let ops = operations(model, interface);
    let table = Table::of(model, interface);
    let (mut members, mut own, mut later) = (Code::new(), Code::new(), Code::new());
    for op in &ops {
        let result = implementation_result(op);
        let params = implementation_params(op).join(", ");
        match &op.op.acf.impl_server {
            Some(f) => own += &c!("$result $f($params);", result, f = path(f), params),
            None => {
                members += &doc(op.op.doc.as_deref());
                let member = table.member(op);
                members += &c!("$result (*$member)($params);", result, member, params);
            }
        }
    }
    for Rundown { id, member: rundown } in &table.rundowns {
        members += &c!(
            "
            /* A client is gone that held this $context; may be NULL. */
            void (*$rundown)(void *self, $context context);
            ",
            context = model.type_name(*id),
            rundown,
        );
    }
    for op in ops.iter().filter(|op| op.op.acf.deferred) {
        later += &c!(
            "

            /* Answers a call of this operation that was put off. */
            $signature;
            ",
            signature = reply_signature(op),
        );
    }
    c!(
        "

        /* Implementations of $name: 0 is success, anything else a fault the client sees. */
        typedef struct $name_server {
            void *self;
            $members
        } $name_server;
        $own
        $later

        /* For sj_router_add(), with a $name_server as the implementation. */
        extern const sj_interface $name_interface;
        /* Serves this one interface on a server handle until the deadline or an error. */
        sj_status $name_serve(const $name_server *impl, sj_server *server, int64_t deadline_ns);
        ",
        name = interface.name,
        members,
        own,
        later,
    )
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

/// A name under which an interface answers.
pub(super) struct Identifier {
    uuid: Uuid,
    version: Version,
}

/// The names under which an interface answers: its own, and those of its bases.
pub(super) fn ids(model: Model<'_>, interface: &Interface) -> Vec<Identifier> {
    let mut all = vec![Identifier { uuid: interface.uuid, version: interface.version }];
    let mut base = interface.base;
    while let Some(InterfaceId(i)) = base {
        let Some(b) = model.m.interfaces.get(i as usize) else { break };
        if all.len() > model.m.interfaces.len() {
            break;
        }
        all.push(Identifier { uuid: b.uuid, version: b.version });
        base = b.base;
    }
    all
}

pub(super) fn id_initialiser(id: &Identifier) -> String {
    let Version { major, minor } = id.version;
    let bytes: Vec<String> = id.uuid.iter().map(|b| format!("0x{b:02x}")).collect();
    format!("{{{{{}}}, {major}, {minor}}}", bytes.join(", "))
}

/// One function per operation, in line, for `dispatch::by_switch`: a server that wants its
/// implementation and the stubs in one translation unit includes them.
pub(super) fn inline_definitions(emit: &Emit<'_>, interface: &Interface) -> Code {
    let table = Table::of(emit.model, interface);
    let mut out = rundown(emit.model, interface, &table);
    for op in &operations(emit.model, interface) {
        if !op.op.oneway {
            out += &answer(op, &table);
        }
        out += &run(emit, op, &table);
        if op.has_short_way() {
            out += &serve(op, "static SJ_OUT_OF_LINE", "_any", &Code::new());
            out += &serve_short(op);
        } else {
            out += &serve(op, "SJ_INLINE", "", &kind(op));
        }
    }
    out
}

fn rundown(model: Model<'_>, interface: &Interface, table: &Table) -> Code {
    if table.rundowns.is_empty() {
        return Code::new();
    }
    let mut calls = Code::new();
    for Rundown { id, member: rundown } in &table.rundowns {
        calls += &c!(
            "
            if (strcmp(kind, \"$context\") == 0 && sj_i->$rundown)
                sj_i->$rundown(sj_i->self, context);
            ",
            context = model.type_name(*id),
            rundown,
        );
    }
    c!(
        "

        static inline void sj_of_$name_rundown(const void *impl, const char *kind, void *context)
        {
            const $name_server *sj_i = (const $name_server *)impl;
            $calls
        }
        ",
        name = interface.name,
        calls,
    )
}

/// Builds the reply from the argument structure.
fn answer(op: &Op<'_>, table: &Table) -> Code {
    let limit = if op.is_fixed(Direction::Reply) {
        "SIZE_MAX".to_owned()
    } else {
        op.threshold("sj_reference_threshold()")
    };
    c!(
        "

        SJ_INLINE sj_outcome sj_of_$name_answer(sj_service *sj_s, const sj_token *sj_t, sj_client sj_k, const void *sj_i, sj_arena *sj_a, const $args *sj_v, sj_out *sj_o)
        {
            sj_enc sj_e;
            $encode
        }
        ",
        name = op.name(),
        args = op.args(),
        encode = match op.is_planned(Direction::Reply) {
            true => planned_answer(op, &limit),
            false => growing_answer(op, &limit, table),
        },
    )
}

fn planned_answer(op: &Op<'_>, limit: &str) -> Code {
    let room = match op.parts(Direction::Reply).is_empty() {
        true => Code::new(),
        false => c!("
            if (SJ_UNLIKELY(!sj_o->body))
                return SJ_FAULT_TOO_LARGE;
            "),
    };
    let attach = match op.is_fixed(Direction::Reply) {
        true => Code::new(),
        false => c!("sj_service_attach(sj_s, &sj_e, sj_o);"),
    };
    c!(
        "
        struct sj_of_$name_reply_plan sj_p;
        sj_enc_init(&sj_e, sj_a, $limit);
        (void)sj_k, (void)sj_i;
        if (SJ_UNLIKELY(!sj_of_$name_reply_plan(&sj_e, sj_v, &sj_p)))
            return sj_service_failed(&sj_e);
        sj_reply_start(sj_s->server, sj_t, sj_p.size, sj_o);
        $room
        sj_enc_into(&sj_e, sj_o, $size);
        if (SJ_UNLIKELY(!sj_of_$name_reply_put(&sj_e, sj_v, &sj_p)))
            return sj_service_failed(&sj_e);
        $attach
        return SJ_OUTCOME_REPLY;
        ",
        name = op.name(),
        limit,
        room,
        size = op.layout(Direction::Reply).size,
        attach,
    )
}

fn growing_answer(op: &Op<'_>, limit: &str, table: &Table) -> Code {
    let rundown = if table.rundowns.is_empty() {
        "NULL".to_owned()
    } else {
        format!("sj_of_{}_rundown", op.interface.name)
    };
    let service = match op.needs_service(Direction::Reply) {
        true => c!("sj_service_enc(sj_s, sj_k, sj_i, $rundown, &sj_e);", rundown),
        false => c!("(void)sj_k, (void)sj_i;"),
    };
    c!(
        "
        sj_enc_init_grow(&sj_e, sj_a, $limit, &sj_s->scratch);
        $service
        if (SJ_UNLIKELY(!sj_of_$name_reply_put(&sj_e, sj_v)))
            return sj_service_failed(&sj_e);
        return sj_service_start(sj_s, sj_t, &sj_e, sj_o);
        ",
        limit,
        service,
        name = op.name(),
    )
}

/// Everything between the decoded request and the reply.
fn run(emit: &Emit<'_>, op: &Op<'_>, table: &Table) -> Code {
    let mut args = vec!["sj_i->self".to_owned(), "sj_n".to_owned()];
    let (mut buffers, mut rooms) = (Code::new(), Vec::new());
    if op.op.acf.deferred {
        args.push("&sj_l".to_owned());
        let ins = op.op.params.iter().filter(|p| p.is_in());
        args.extend(ins.map(|p| format!("sj_v->{}", p.name)));
    } else {
        buffers = emit.server_buffers(op);
        rooms = emit.server_rooms(op);
        args.extend(argument_names(op).iter().map(|a| format!("sj_v->{a}")));
    }
    for Room { name, value: room } in &rooms {
        buffers += &c!("const int64_t $name = $room;", name, room);
    }
    let has_descriptors = op.parts(Direction::Reply).iter().any(|p| op.model.has_descriptor(p.ty));
    let descriptors = has_descriptors.then(|| c!("sj_s->in = &sj_x->in;"));
    let (check, function) = match &op.op.acf.impl_server {
        Some(f) => (Code::new(), path(f)),
        None => {
            // In parentheses: a macro that takes arguments leaves it alone.
            let f = format!("(sj_i->{})", table.member(op));
            let check = c!(
                "
                if (SJ_UNLIKELY(!$f))
                    return SJ_FAULT_UNKNOWN_OPERATION;
                ",
                f,
            );
            (check, f)
        }
    };
    c!(
        "

        SJ_INLINE sj_outcome sj_of_$name_run(const $iface_server *sj_i, sj_service *sj_s, sj_event *sj_x, $args *sj_v, sj_out *sj_o)
        {
            $buffers
            sj_invocation *sj_n = sj_service_invocation(sj_s, sj_x);
            (void)sj_v, (void)sj_o;
            $descriptors
            $check
            $call
        }
        ",
        name = op.name(),
        iface = op.interface.name,
        args = op.args(),
        buffers,
        descriptors = descriptors.unwrap_or_default(),
        check,
        call = run_call(op, &format!("{function}({})", args.join(", ")), &rooms),
    )
}

/// The call of the implementation, and what follows it.
fn run_call(op: &Op<'_>, call: &str, rooms: &[Room]) -> Code {
    if op.op.oneway {
        return c!(
            "
            $call;
            return SJ_OUTCOME_NOTHING;
            ",
            call,
        );
    }
    if op.op.acf.deferred {
        return c!(
            "
            const sj_deferred sj_l = {sj_s, sj_x->token, sj_x->client, sj_i};
            const sj_outcome sj_r = $call;
            return sj_r ? sj_r : SJ_OUTCOME_NOTHING;
            ",
            call,
        );
    }
    let mut fits = Code::new();
    for Room { name, value: room } in rooms {
        fits += &c!(
            "
            if (SJ_UNLIKELY($room > $name))
                return SJ_FAULT_NO_RESOURCES;
            ",
            room,
            name,
        );
    }
    c!(
        "
        const sj_outcome sj_r = $call;
        if (SJ_UNLIKELY(sj_r != 0))
            return sj_r;
        $fits
        return sj_of_$name_answer(sj_s, &sj_x->token, sj_x->client, sj_i, &sj_s->arena, sj_v, sj_o);
        ",
        call,
        fits,
        name = op.name(),
    )
}

/// The function that answers a deferred call.
pub(super) fn later(op: &Op<'_>) -> Code {
    let mut values = Code::new();
    let outs = op.op.params.iter().filter(|p| p.is_out());
    for p in op.reply_inputs().into_iter().chain(outs) {
        let cast = match (op.model.passing(op.op, p), op.model.resolve(&p.ty)) {
            (Passing::Pointer, _) => format!("({})", op.model.decl(&p.ty, "*")),
            _ => String::new(),
        };
        values += &c!("sj_v.$f = $cast$f;", f = p.name, cast);
    }
    if op.op.result.is_some() {
        values += &c!("sj_v.$f = $f;", f = result_name(op.op));
    }
    c!(
        "

        $signature
        {
            $args sj_v;
            memset(&sj_v, 0, sizeof sj_v);
            $values
            sj_out sj_o;
            sj_arena sj_a;
            sj_buffer sj_b = {NULL, 0};
            memset(&sj_a, 0, sizeof sj_a);
            /* The service may be in the middle of another call: its memory stays as it is. */
            sj_service sj_s = *later->service;
            sj_s.scratch = sj_b;
            sj_s.cleanup = NULL;
            sj_s.in = NULL;
            sj_s.n_fds = 0;
            sj_outcome sj_r = sj_of_$name_answer(&sj_s, &later->token, later->client, later->impl, &sj_a, &sj_v, &sj_o);
            later->service->contexts = sj_s.contexts;
            sj_status sj_t;
            if (sj_r == SJ_OUTCOME_REPLY)
                sj_t = sj_reply(sj_s.server, &sj_o);
            else
                sj_t = sj_reply_fault(sj_s.server, &later->token, sj_r);
            if (sj_r == SJ_OUTCOME_REPLY)
                for (uint32_t sj_i = 0; sj_i < sj_s.n_fds; sj_i++)
                    (void)close(sj_s.fds[sj_i]);
            sj_cleanup_run(&sj_s.cleanup);
            sj_arena_free(&sj_a);
            sj_buffer_free(&sj_s.scratch);
            return sj_t;
        }
        ",
        signature = reply_signature(op),
        args = op.args(),
        values,
        name = op.name(),
    )
}
