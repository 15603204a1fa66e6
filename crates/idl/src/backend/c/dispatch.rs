//! From a number to an operation: by the switch of one interface, or by its table for a router; and
//! the loop of the former.
//!
//! What is done with one operation is `server`'s.

use crate::ir::Interface;

use super::emit::Emit;
use super::op::{Op, operations};

/// What exists once: deferred answers, the table, the loop.
pub(super) fn definitions(emit: &mut Emit<'_>, interface: &Interface) {
    let name = &interface.name;
    let ops = operations(emit.model, interface);
    for op in ops.iter().filter(|op| op.op.acf.deferred) {
        super::server::later(emit, op);
    }
    let count = table(emit, interface, &ops);
    let all = super::server::ids(emit.model, interface);
    let w = &mut emit.w;
    w.blank();
    w.open(format!("static const sj_interface_id sj_of_{name}_ids[] ="));
    for id in &all {
        w.line(format!("{},", super::server::id_initialiser(id)));
    }
    w.close_with(";");
    w.blank();
    w.line(format!(
        "const sj_interface {name}_interface = {{sj_of_{name}_table, sj_of_{name}_ids, {count}, {}}};",
        all.len()
    ));
    w.blank();
    w.function(format!(
        "SJ_INLINE bool sj_of_{name}_handle(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)"
    ));
    w.line(format!("return {name}_handle((const {name}_server *)impl, sj_s, sj_x, sj_o);"));
    w.close();
    w.blank();
    w.function(format!(
        "sj_status {name}_serve(const {name}_server *impl, sj_server *server, int64_t deadline_ns)"
    ));
    w.line("sj_router sj_r;");
    w.line("sj_service sj_s;");
    w.line("sj_router_init(&sj_r);");
    w.line(format!("sj_status sj_t = sj_router_add(&sj_r, &{name}_interface, impl);"));
    w.line("if (sj_t != SJ_OK)");
    w.line("    return sj_t;");
    w.line("sj_service_init(&sj_s, server, &sj_r);");
    w.line(format!("sj_t = sj_service_run_by(&sj_s, sj_of_{name}_handle, impl, deadline_ns);"));
    w.line("sj_service_free(&sj_s);");
    w.line("return sj_t;");
    w.close();
}

/// The same by a switch, for a server of one interface that wants no indirect call.
pub(super) fn by_switch(emit: &mut Emit<'_>, interface: &Interface) {
    let ops = operations(emit.model, interface);
    let name = &interface.name;
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "SJ_INLINE sj_outcome {name}_dispatch(const {name}_server *impl, sj_service *sj_s, sj_event *sj_x, uint16_t sj_n, sj_out *sj_o)"
    ));
    w.line("(void)impl, (void)sj_s, (void)sj_x, (void)sj_o;");
    w.open("switch (sj_n)");
    for op in &ops {
        w.line(format!("case {}:", op.op.opnum));
        w.line(format!("    return sj_of_{}_serve(impl, sj_s, sj_x, sj_o);", op.name()));
    }
    w.line("default:");
    w.line("    return SJ_FAULT_UNKNOWN_OPERATION;");
    w.close();
    w.close();
    let count = ops.iter().map(|o| u32::from(o.op.opnum) + 1).max().unwrap_or(0);
    w.blank();
    w.line("/* Handles one event as sj_service_handle() does, calls of this interface by the switch. The service's router has");
    w.line(" * this interface and no other. */");
    w.function(format!(
        "SJ_INLINE bool {name}_handle(const {name}_server *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)"
    ));
    w.line(format!("if (SJ_UNLIKELY(sj_x->kind != SJ_EVENT_CALL || sj_x->in.op >= {count}))"));
    w.line("    return sj_service_handle(sj_s, sj_x, sj_o);");
    w.line(format!(
        "return sj_service_outcome(sj_s, sj_x, {name}_dispatch(impl, sj_s, sj_x, sj_x->in.op, sj_o));"
    ));
    w.close();
}

/// The operations by number.
fn table(emit: &mut Emit<'_>, interface: &Interface, ops: &[Op<'_>]) -> usize {
    let name = &interface.name;
    let count = ops.iter().map(|o| usize::from(o.op.opnum) + 1).max().unwrap_or(0);
    let w = &mut emit.w;
    w.blank();
    w.open(format!("static const sj_serve_fn sj_of_{name}_table[{}] =", count.max(1)));
    for n in 0..count {
        match ops.iter().find(|op| usize::from(op.op.opnum) == n) {
            Some(op) => w.line(format!("sj_of_{}_serve,", op.name())),
            None => w.line("NULL,"),
        }
    }
    if count == 0 {
        w.line("NULL,");
    }
    w.close_with(";");
    count
}
