//! Generated tests, the programs that answer: a server that knows what must arrive, and decoders of
//! mutated bodies. What they share with the client is `testgen`'s.

use crate::ir::{Interface, Param, Ty};

use super::ctype::result_name;
use super::model::{Model, Passing};
use super::op::{Direction, Op, Table};
use super::template::{Code, c};
use super::testgen::{begin_call, directions, tested};
use super::text::path;

/// The server's program.
pub(super) fn server(model: Model<'_>, interfaces: &[&Interface]) -> Code {
    let (mut functions, mut adds, mut errors) = (Code::new(), Code::new(), Code::new());
    for interface in interfaces {
        functions += &tested(model, interface).iter().map(implementation).collect::<Code>();
        adds += &add(model, interface);
        errors += &c!("failed = failed || $iface_test.errors;", iface = interface.name);
    }
    c!(
        r#"
        $functions

        /* server ADDRESS SEED */
        int main(int argc, char **argv)
        {
            if (argc != 3) {
                fprintf(stderr, "usage: %s ADDRESS SEED\n", argv[0]);
                return 2;
            }
            const uint64_t seed = strtoull(argv[2], NULL, 0);
            sj_router router;
            sj_router_init(&router);
            $adds
            int failed = sj_test_serve(argv[1], NULL, &router);
            $errors
            return failed;
        }
        "#,
        functions,
        adds,
        errors,
    )
}

/// The implementations of an interface, added to the router.
fn add(model: Model<'_>, interface: &Interface) -> Code {
    let table = Table::of(model, interface);
    let mut members = Code::new();
    for op in tested(model, interface).iter().filter(|op| op.op.acf.impl_server.is_none()) {
        members += &c!(
            "$iface_impl.$member = sj_test_$name;",
            iface = interface.name,
            member = table.member(op),
            name = op.name(),
        );
    }
    c!(
        "
        sj_test $iface_test = {seed, 0, 0, 0};
        $iface_server $iface_impl;
        memset(&$iface_impl, 0, sizeof $iface_impl);
        $iface_impl.self = &$iface_test;
        $members
        if (sj_router_add(&router, &$iface_interface, &$iface_impl) != SJ_OK)
            return 2;
        ",
        iface = interface.name,
        members,
    )
}

fn implementation(op: &Op<'_>) -> Code {
    let name = op.name();
    let own = op.op.acf.impl_server.as_deref().map(path);
    c!(
        r#"

        $storage$result $function($params)
        {
            sj_test *sj_t = (sj_test *)self;
            sj_random sj_r;
            sj_arena sj_a;
            (void)call;
            memset(&sj_a, 0, sizeof sj_a);
            $args sj_v, sj_x;
            memset(&sj_v, 0, sizeof sj_v);
            $values
            $begin
            const sj_test_body sj_p = sj_bytes_$name_request(&sj_a, &sj_v);
            const sj_test_body sj_q = sj_bytes_$name_request(&sj_a, &sj_x);
            if (!sj_test_same(&sj_p, &sj_q)) {
                sj_test_report("$name request", sj_t->k, &sj_p, &sj_q);
                sj_t->errors++;
            }
            $reply
        }
        "#,
        storage = if own.is_some() { "" } else { "static " },
        result = super::server::implementation_result(op),
        function = own.unwrap_or_else(|| format!("sj_test_{name}")),
        params = super::server::implementation_params(op).join(", "),
        args = op.args(),
        values = arrived(op),
        begin = begin_call(op, "sj_x"),
        name,
        reply = implementation_reply(op),
    )
}

/// What has come, in the argument structure.
fn arrived(op: &Op<'_>) -> Code {
    let mut values = Code::new();
    let shown = |p: &&Param| !op.op.acf.deferred || p.is_in();
    for p in op.op.params.iter().filter(shown) {
        let cast = match (op.model.passing(op.op, p), op.model.resolve(&p.ty)) {
            (Passing::Pointer, _) => format!("({})", op.model.decl(&p.ty, "*")),
            (Passing::Decayed, Ty::Fixed(e, _)) => format!("({})", op.model.decl(e, "*")),
            (_, Ty::Array(_) | Ty::String(_) | Ty::Pointer(..)) => {
                format!("({})", op.model.name(&p.ty))
            }
            _ => String::new(),
        };
        values += &c!("sj_v.$f = $cast$f;", f = p.name, cast);
    }
    if op.op.result.is_some() && !op.op.acf.deferred {
        values += &c!("sj_v.$f = $f;", f = result_name(op.op));
    }
    values
}

fn implementation_reply(op: &Op<'_>) -> Code {
    if op.op.oneway {
        return c!("
            sj_t->k++;
            sj_arena_free(&sj_a);
            ");
    }
    // A deferred answer is drawn into memory of the test's own.
    let (arena, value) =
        if op.op.acf.deferred { ("&sj_a", "sj_x") } else { ("call->arena", "sj_v") };
    c!(
        "
        sj_random_stream(&sj_r, $arena, sj_t->seed + sj_t->k, $number, 2, $types);
        sj_draw_$name_reply(&sj_r, &$value);
        sj_t->k++;
        sj_outcome sj_o = sj_t->errors ? SJ_FAULT_USER : 0;
        $later
        sj_arena_free(&sj_a);
        return sj_o;
        ",
        arena,
        number = op.op.opnum,
        types = op.model.m.types.len(),
        name = op.name(),
        value,
        later = if op.op.acf.deferred { answer_later(op) } else { Code::new() },
    )
}

fn answer_later(op: &Op<'_>) -> Code {
    let mut args = vec!["later".to_owned()];
    args.extend(op.reply_inputs().iter().map(|p| format!("sj_x.{}", p.name)));
    let outs = op.op.params.iter().filter(|p| p.is_out());
    args.extend(outs.map(|p| format!("sj_x.{}", p.name)));
    if op.op.result.is_some() {
        args.push(format!("sj_x.{}", result_name(op.op)));
    }
    // A client may leave with its last answer before the server knows that it was sent.
    c!(
        "
        sj_status sj_s = sj_o ? SJ_OK : $name_reply($args);
        if (sj_s != SJ_OK && sj_s != SJ_GONE)
            sj_t->errors++;
        ",
        name = op.name(),
        args = args.join(", "),
    )
}

/// The program that decodes mutated bodies.
pub(super) fn mutations(model: Model<'_>, interfaces: &[&Interface]) -> Code {
    let (mut functions, mut calls) = (Code::new(), Code::new());
    for interface in interfaces {
        for op in tested(model, interface) {
            for way in directions(&op) {
                functions += &mutate(&op, *way);
                let (name, way) = (op.name(), way.name());
                calls += &c!("sj_mutate_$name_$way(&t);", name, way);
            }
        }
    }
    c!(
        r#"
        $functions

        /* mutate SEED ROUNDS */
        int main(int argc, char **argv)
        {
            if (argc != 3)
                return 2;
            sj_test t = {strtoull(argv[1], NULL, 0), 0, 0, 0};
            const uint64_t rounds = strtoull(argv[2], NULL, 0);
            for (; t.k < rounds; t.k++) {
                $calls
            }
            printf("%u bodies accepted, %u wrong\n", (unsigned)t.calls, (unsigned)t.errors);
            return t.errors != 0;
        }
        "#,
        functions,
        calls,
    )
}

fn mutate(op: &Op<'_>, way: Direction) -> Code {
    let name = op.name();
    let draw_reply = match way {
        Direction::Request => Code::new(),
        Direction::Reply => c!("sj_draw_$name_reply(&sj_r, &sj_v);", name),
    };
    c!(
        r#"

        static void sj_mutate_$name_$way(sj_test *sj_t)
        {
            sj_random sj_r;
            sj_arena sj_a;
            memset(&sj_a, 0, sizeof sj_a);
            $args sj_v;
            $begin
            $reply
            const sj_test_body sj_p = sj_bytes_$name_$way(&sj_a, &sj_v);
            sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, 0, 3, 0);
            unsigned char *sj_b = (unsigned char *)malloc(sj_p.size ? sj_p.size : 1);
            if (!sj_b || !sj_p.ok)
                abort();
            if (sj_p.size)
                memcpy(sj_b, sj_p.bytes, sj_p.size);
            sj_in sj_i;
            memset(&sj_i, 0, sizeof sj_i);
            sj_i.body_len = sj_test_mutate(&sj_r, sj_b, sj_p.size);
            if (sj_i.body_len < sj_p.size)
                sj_b = (unsigned char *)realloc(sj_b, sj_i.body_len ? sj_i.body_len : 1);
            sj_i.body = sj_b;
            sj_i.n_fds = (uint8_t)sj_p.n_fds;
            $args sj_w;
            sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, $number, 1, $types);
            memset(&sj_w, 0, sizeof sj_w);
            sj_draw_$name_request(&sj_r, &sj_w);
            sj_prepare_$name(&sj_r, &sj_w);
            sj_dec sj_d;
            sj_dec_init(&sj_d, &sj_i, &sj_a, (sj_t->k & 1) == 0);
            $short
            if ($ok) {
                sj_t->calls++;
                const sj_test_body sj_q = sj_bytes_$name_$way(&sj_a, &sj_w);
                const sj_test_body sj_g = {sj_b, sj_i.body_len, 0, true};
                if (!sj_test_same(&sj_q, &sj_g)) {
                    sj_test_report("$name $way mutated", sj_t->k, &sj_q, &sj_g);
                    sj_t->errors++;
                }
            }
            free(sj_b);
            sj_arena_free(&sj_a);
        }
        "#,
        name,
        way = way.name(),
        args = op.args(),
        begin = begin_call(op, "sj_v"),
        reply = draw_reply,
        number = op.op.opnum,
        types = op.model.m.types.len(),
        short = if has_short(op, way) { compare_short(op) } else { Code::new() },
        ok = match has_short(op, way) {
            true => "sj_ok".to_owned(),
            false => format!("sj_of_{name}_{}_get(&sj_d, &sj_w)", way.name()),
        },
    )
}

fn has_short(op: &Op<'_>, way: Direction) -> bool {
    way == Direction::Request && op.has_short_way()
}

fn compare_short(op: &Op<'_>) -> Code {
    c!(
        r#"
        /* What the short way takes, the decoder takes, with the same values. */
        $args sj_k = sj_w;
        const bool sj_short = sj_of_$name_request_short(&sj_i, &sj_k);
        const bool sj_ok = sj_of_$name_request_get(&sj_d, &sj_w);
        if (sj_short) {
            const sj_test_body sj_c = sj_bytes_$name_request(&sj_a, &sj_k);
            const sj_test_body sj_g = {sj_b, sj_i.body_len, 0, true};
            if (!sj_ok || !sj_test_same(&sj_c, &sj_g)) {
                sj_test_report("$name request short", sj_t->k, &sj_c, &sj_g);
                sj_t->errors++;
            }
        }
        "#,
        args = op.args(),
        name = op.name(),
    )
}
