//! The functions that a server's dispatch calls: the request taken apart, room for what goes out.
//! Not here: the call of the implementation and the reply (`server`).

use crate::ir::{OnViolation, Ty};

use super::model::Passing;
use super::op::{Direction, Op};
use super::template::{Code, c};

/// Larger values than this are kept in the arena, not on the stack.
const STACK_MAX: u64 = 256;

/// Storage of what goes out, and the request taken apart.
pub(super) fn serve(op: &Op<'_>, storage: &str, suffix: &str, kind: &Code) -> Code {
    let violation = match op.op.acf.on_violation.or(op.interface.acf.on_violation) {
        Some(OnViolation::Fault) => "SJ_FAULT_BAD_MESSAGE",
        _ => "SJ_OUTCOME_VIOLATION",
    };
    let limit = op.op.acf.max_message.map(|max| {
        c!(
            "
            if (SJ_UNLIKELY(sj_request_exceeds(&sj_x->in, $max)))
                return $violation;
            ",
            max = format!("{max}u"),
            violation,
        )
    });
    let contexts =
        op.needs_service(Direction::Request).then(|| c!("sj_service_contexts(sj_s, sj_x, &sj_d);"));
    let mut parts = op.parts(Direction::Request).into_iter().chain(op.parts(Direction::Reply));
    let converts = parts.any(|p| op.model.has_marshal(p.ty));
    c!(
        "

        $storage sj_outcome sj_of_$name_serve$suffix(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)
        {
            const $iface_server *sj_i = (const $iface_server *)impl;
            $args sj_v;
            sj_dec sj_d;
            $kind
            $limit
            $store
            sj_dec_init(&sj_d, &sj_x->in, &sj_s->arena, true);
            $contexts
            sj_outcome sj_r;
            if (SJ_LIKELY(sj_of_$name_request_get(&sj_d, &sj_v)))
                sj_r = sj_of_$name_run(sj_i, sj_s, sj_x, &sj_v, sj_o);
            else
                sj_r = sj_service_refuse(&sj_d, $violation);
            $cleanup
            return sj_r;
        }
        ",
        storage,
        name = op.name(),
        suffix,
        iface = op.interface.name,
        args = op.args(),
        kind,
        limit = limit.unwrap_or_default(),
        store = self::storage(op),
        contexts = contexts.unwrap_or_default(),
        violation,
        cleanup = if converts { c!("sj_cleanup_run(&sj_s->cleanup);") } else { Code::new() },
    )
}

/// The same for requests that lie in the body altogether.
pub(super) fn serve_short(op: &Op<'_>) -> Code {
    c!(
        "

        SJ_INLINE sj_outcome sj_of_$name_serve(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)
        {
            const $iface_server *sj_i = (const $iface_server *)impl;
            $args sj_v;
            $kind
            $storage
            if (SJ_LIKELY(sj_of_$name_request_short(&sj_x->in, &sj_v)))
                return sj_of_$name_run(sj_i, sj_s, sj_x, &sj_v, sj_o);
            return sj_of_$name_serve_any(impl, sj_s, sj_x, sj_o);
        }
        ",
        name = op.name(),
        iface = op.interface.name,
        args = op.args(),
        kind = kind(op),
        storage = storage(op),
    )
}

/// A call of a one-way operation and a one-way message to any other break the rules.
pub(super) fn kind(op: &Op<'_>) -> Code {
    c!(
        "
        if (SJ_UNLIKELY(sj_x->kind != $event))
            return SJ_OUTCOME_VIOLATION;
        ",
        event = if op.op.oneway { "SJ_EVENT_SEND" } else { "SJ_EVENT_CALL" },
    )
}

/// Where `out` and `in, out` parameters are while the implementation runs: zero to begin with.
fn storage(op: &Op<'_>) -> Code {
    let model = op.model;
    let mut out = Code::new();
    for part in op.parts(Direction::Reply) {
        let is_in = part.param.is_some_and(crate::ir::Param::is_in);
        if part.passing == Passing::Buffer || (op.op.acf.deferred && !is_in) {
            continue;
        }
        let f = &part.name;
        let (cast, address) = match (part.passing, model.resolve(part.ty)) {
            (Passing::Decayed, Ty::Fixed(e, _)) => (model.decl(e, "*"), format!("sj_store_{f}")),
            _ => (model.decl(part.ty, "*"), format!("&sj_store_{f}")),
        };
        if model.size(part.ty) > STACK_MAX {
            out += &c!(
                "
                sj_v.$f = ($cast)sj_arena_zeroed(&sj_s->arena, sizeof($name));
                if (SJ_UNLIKELY(!sj_v.$f))
                    return SJ_FAULT_NO_RESOURCES;
                ",
                f,
                cast,
                name = model.name(part.ty),
            );
            continue;
        }
        let is_read = is_in && model.has_wire_layout(part.ty);
        let zero = (!is_read).then(|| c!("memset(&sj_store_$f, 0, sizeof sj_store_$f);", f));
        out += &c!(
            "
            $decl;
            $zero
            sj_v.$f = $address;
            ",
            decl = model.decl(part.ty, &format!("sj_store_{f}")),
            zero = zero.unwrap_or_default(),
            f,
            address,
        );
    }
    out
}
