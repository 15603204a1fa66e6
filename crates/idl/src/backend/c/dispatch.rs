//! From a number to an operation: by the switch of one interface, or by its table for a router; and
//! the loop of the former.
//!
//! What is done with one operation is `server`'s.

use crate::ir::Interface;

use super::model::Model;
use super::op::{Op, operations};
use super::server::{id_initialiser, ids, later};
use super::template::{Code, c};

/// What exists once: deferred answers, the table, the loop.
pub(super) fn definitions(model: Model<'_>, interface: &Interface) -> Code {
    let ops = operations(model, interface);
    let deferred: Code = ops.iter().filter(|op| op.op.acf.deferred).map(later).collect();
    let all = ids(model, interface);
    let initialisers: Code = all.iter().map(|id| c!("$id,", id = id_initialiser(id))).collect();
    c!(
        "
        $deferred
        $table

        static const sj_interface_id sj_of_$name_ids[] = {
            $initialisers
        };

        const sj_interface $name_interface = {sj_of_$name_table, sj_of_$name_ids, $count, $versions};

        SJ_INLINE bool sj_of_$name_handle(const void *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)
        {
            return $name_handle((const $name_server *)impl, sj_s, sj_x, sj_o);
        }

        sj_status $name_serve(const $name_server *impl, sj_server *server, int64_t deadline_ns)
        {
            sj_router sj_r;
            sj_service sj_s;
            sj_router_init(&sj_r);
            sj_status sj_t = sj_router_add(&sj_r, &$name_interface, impl);
            if (sj_t != SJ_OK)
                return sj_t;
            sj_service_init(&sj_s, server, &sj_r);
            sj_t = sj_service_run_by(&sj_s, sj_of_$name_handle, impl, deadline_ns);
            sj_service_free(&sj_s);
            return sj_t;
        }
        ",
        deferred,
        table = table(interface, &ops),
        name = interface.name,
        initialisers,
        count = count(&ops),
        versions = all.len(),
    )
}

/// The same by a switch, for a server of one interface that wants no indirect call.
pub(super) fn by_switch(model: Model<'_>, interface: &Interface) -> Code {
    let ops = operations(model, interface);
    let mut cases = Code::new();
    for op in &ops {
        cases += &c!(
            "
            case $number:
                return sj_of_$name_serve(impl, sj_s, sj_x, sj_o);
            ",
            number = op.op.opnum,
            name = op.name(),
        );
    }
    c!(
        "

        SJ_INLINE sj_outcome $name_dispatch(const $name_server *impl, sj_service *sj_s, sj_event *sj_x, uint16_t sj_n, sj_out *sj_o)
        {
            (void)impl, (void)sj_s, (void)sj_x, (void)sj_o;
            switch (sj_n) {
                $cases
                default:
                    return SJ_FAULT_UNKNOWN_OPERATION;
            }
        }

        /* Handles one event as sj_service_handle() does, calls of this interface by the switch. The
         * service's router has this interface and no other. */
        SJ_INLINE bool $name_handle(const $name_server *impl, sj_service *sj_s, sj_event *sj_x, sj_out *sj_o)
        {
            if (SJ_UNLIKELY(sj_x->kind != SJ_EVENT_CALL || sj_x->in.op >= $count))
                return sj_service_handle(sj_s, sj_x, sj_o);
            return sj_service_outcome(sj_s, sj_x, $name_dispatch(impl, sj_s, sj_x, sj_x->in.op, sj_o));
        }
        ",
        name = interface.name,
        cases,
        count = count(&ops),
    )
}

/// One more than the greatest number of an operation.
fn count(ops: &[Op<'_>]) -> u32 {
    ops.iter().map(|op| u32::from(op.op.opnum) + 1).max().unwrap_or(0)
}

/// The operations by number.
fn table(interface: &Interface, ops: &[Op<'_>]) -> Code {
    // An array has at least one element.
    let count = count(ops).max(1);
    let serves: Code = (0..count)
        .map(|n| match ops.iter().find(|op| u32::from(op.op.opnum) == n) {
            Some(op) => c!("sj_of_$name_serve,", name = op.name()),
            None => c!("NULL,"),
        })
        .collect();
    c!(
        "

        static const sj_serve_fn sj_of_$name_table[$count] = {
            $serves
        };
        ",
        name = interface.name,
        count,
        serves,
    )
}
