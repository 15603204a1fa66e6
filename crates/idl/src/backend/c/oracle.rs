//! Generated tests, the programs that answer: a server that knows what must arrive, and decoders of
//! mutated bodies. What they share with the client is `testgen`'s.

use crate::ir::{Interface, Param, Ty};

use super::ctype::result_name;
use super::emit::Emit;
use super::model::Passing;
use super::op::{Direction, Op, Table};
use super::testgen::{begin_call, tested};
use super::text::path;

/// The server's program.
pub(super) fn server(emit: &mut Emit<'_>, interfaces: &[&Interface]) {
    for interface in interfaces {
        for op in tested(emit.model, interface) {
            implementation(emit, &op);
        }
    }
    let w = &mut emit.w;
    w.blank();
    w.line("/* server ADDRESS SEED */");
    w.function("int main(int argc, char **argv)");
    w.open("if (argc != 3)");
    w.line("fprintf(stderr, \"usage: %s ADDRESS SEED\\n\", argv[0]);");
    w.line("return 2;");
    w.close();
    w.line("const uint64_t seed = strtoull(argv[2], NULL, 0);");
    w.line("sj_router router;");
    w.line("sj_router_init(&router);");
    for interface in interfaces {
        let iface = &interface.name;
        w.line(format!("sj_test {iface}_test = {{seed, 0, 0, 0}};"));
        w.line(format!("{iface}_server {iface}_impl;"));
        w.line(format!("memset(&{iface}_impl, 0, sizeof {iface}_impl);"));
        w.line(format!("{iface}_impl.self = &{iface}_test;"));
        let table = Table::of(emit.model, interface);
        for op in tested(emit.model, interface) {
            if op.op.acf.impl_server.is_none() {
                w.line(format!("{iface}_impl.{} = sj_test_{};", table.member(&op), op.name()));
            }
        }
        w.line(format!("if (sj_router_add(&router, &{iface}_interface, &{iface}_impl) != SJ_OK)"));
        w.line("    return 2;");
    }
    w.line("int failed = sj_test_serve(argv[1], NULL, &router);");
    for interface in interfaces {
        let iface = &interface.name;
        w.line(format!("failed = failed || {iface}_test.errors;"));
    }
    w.line("return failed;");
    w.close();
}

fn implementation(emit: &mut Emit<'_>, op: &Op<'_>) {
    let name = op.name();
    let (params, result) = (
        super::server::implementation_params(op).join(", "),
        super::server::implementation_result(op),
    );
    let function =
        op.op.acf.impl_server.as_deref().map(path).unwrap_or_else(|| format!("sj_test_{name}"));
    let storage = if op.op.acf.impl_server.is_some() { "" } else { "static " };
    emit.w.blank();
    emit.w.function(format!("{storage}{result} {function}({params})"));
    emit.w.line("sj_test *sj_t = (sj_test *)self;");
    emit.w.line("sj_random sj_r;");
    emit.w.line("sj_arena sj_a;");
    emit.w.line("(void)call;");
    emit.w.line("memset(&sj_a, 0, sizeof sj_a);");
    emit.w.line(format!("{} sj_v, sj_x;", op.args()));
    emit.w.line("memset(&sj_v, 0, sizeof sj_v);");
    let shown: Vec<&Param> =
        op.op.params.iter().filter(|p| !op.op.acf.deferred || p.is_in()).collect();
    for p in shown {
        let f = &p.name;
        let cast = match (op.model.passing(op.op, p), op.model.resolve(&p.ty)) {
            (Passing::Pointer, _) => format!("({})", op.model.decl(&p.ty, "*")),
            (Passing::Decayed, Ty::Fixed(e, _)) => format!("({})", op.model.decl(e, "*")),
            (_, Ty::Array(_) | Ty::String(_) | Ty::Pointer(..)) => {
                format!("({})", op.model.name(&p.ty))
            }
            _ => String::new(),
        };
        emit.w.line(format!("sj_v.{f} = {cast}{f};"));
    }
    if op.op.result.is_some() && !op.op.acf.deferred {
        let f = result_name(op.op);
        emit.w.line(format!("sj_v.{f} = {f};"));
    }
    begin_call(emit, op, "sj_x");
    let w = &mut emit.w;
    w.line(format!("const sj_test_body sj_p = sj_bytes_{name}_request(&sj_a, &sj_v);"));
    w.line(format!("const sj_test_body sj_q = sj_bytes_{name}_request(&sj_a, &sj_x);"));
    w.open("if (!sj_test_same(&sj_p, &sj_q))");
    w.line(format!("sj_test_report(\"{name} request\", sj_t->k, &sj_p, &sj_q);"));
    w.line("sj_t->errors++;");
    w.close();
    if op.op.oneway {
        w.line("sj_t->k++;");
        w.line("sj_arena_free(&sj_a);");
        w.close();
        return;
    }
    implementation_reply(emit, op);
}

fn implementation_reply(emit: &mut Emit<'_>, op: &Op<'_>) {
    let (name, opnum) = (op.name(), op.op.opnum);
    let types = emit.model.m.types.len();
    // A deferred answer is drawn into memory of the test's own.
    let (arena, value) =
        if op.op.acf.deferred { ("&sj_a", "sj_x") } else { ("call->arena", "sj_v") };
    let w = &mut emit.w;
    w.line(format!("sj_random_stream(&sj_r, {arena}, sj_t->seed + sj_t->k, {opnum}, 2, {types});"));
    w.line(format!("sj_draw_{name}_reply(&sj_r, &{value});"));
    w.line("sj_t->k++;");
    w.line("sj_outcome sj_o = sj_t->errors ? SJ_FAULT_USER : 0;");
    if op.op.acf.deferred {
        let mut args = vec!["later".to_owned()];
        args.extend(op.reply_inputs().iter().map(|p| format!("sj_x.{}", p.name)));
        let outs = op.op.params.iter().filter(|p| p.is_out());
        args.extend(outs.map(|p| format!("sj_x.{}", p.name)));
        if op.op.result.is_some() {
            args.push(format!("sj_x.{}", result_name(op.op)));
        }
        // A client may leave with its last answer before the server knows that it was sent.
        w.line(format!("sj_status sj_s = sj_o ? SJ_OK : {name}_reply({});", args.join(", ")));
        w.line("if (sj_s != SJ_OK && sj_s != SJ_GONE)");
        w.line("    sj_t->errors++;");
    }
    w.line("sj_arena_free(&sj_a);");
    w.line("return sj_o;");
    w.close();
}

/// The program that decodes mutated bodies.
pub(super) fn mutations(emit: &mut Emit<'_>, interfaces: &[&Interface]) {
    for interface in interfaces {
        for op in tested(emit.model, interface) {
            for way in [Direction::Request, Direction::Reply] {
                if way == Direction::Request || !op.op.oneway {
                    mutate(emit, &op, way);
                }
            }
        }
    }
    let w = &mut emit.w;
    w.blank();
    w.line("/* mutate SEED ROUNDS */");
    w.function("int main(int argc, char **argv)");
    w.line("if (argc != 3)");
    w.line("    return 2;");
    w.line("sj_test t = {strtoull(argv[1], NULL, 0), 0, 0, 0};");
    w.line("const uint64_t rounds = strtoull(argv[2], NULL, 0);");
    w.open("for (; t.k < rounds; t.k++)");
    for interface in interfaces {
        for op in tested(emit.model, interface) {
            for way in [Direction::Request, Direction::Reply] {
                if way == Direction::Request || !op.op.oneway {
                    w.line(format!("sj_mutate_{}_{}(&t);", op.name(), way.name()));
                }
            }
        }
    }
    w.close();
    w.line("printf(\"%u bodies accepted, %u wrong\\n\", (unsigned)t.calls, (unsigned)t.errors);");
    w.line("return t.errors != 0;");
    w.close();
}

fn mutate(emit: &mut Emit<'_>, op: &Op<'_>, way: Direction) {
    let (name, way_name, opnum) = (op.name(), way.name(), op.op.opnum);
    let types = emit.model.m.types.len();
    emit.w.blank();
    emit.w.function(format!("static void sj_mutate_{name}_{way_name}(sj_test *sj_t)"));
    emit.w.line("sj_random sj_r;");
    emit.w.line("sj_arena sj_a;");
    emit.w.line("memset(&sj_a, 0, sizeof sj_a);");
    emit.w.line(format!("{} sj_v;", op.args()));
    begin_call(emit, op, "sj_v");
    let w = &mut emit.w;
    if way == Direction::Reply {
        w.line(format!("sj_draw_{name}_reply(&sj_r, &sj_v);"));
    }
    w.line(format!("const sj_test_body sj_p = sj_bytes_{name}_{way_name}(&sj_a, &sj_v);"));
    w.line("sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, 0, 3, 0);");
    w.line("unsigned char *sj_b = (unsigned char *)malloc(sj_p.size ? sj_p.size : 1);");
    w.line("if (!sj_b || !sj_p.ok)");
    w.line("    abort();");
    w.line("if (sj_p.size)");
    w.line("    memcpy(sj_b, sj_p.bytes, sj_p.size);");
    w.line("sj_in sj_i;");
    w.line("memset(&sj_i, 0, sizeof sj_i);");
    w.line("sj_i.body_len = sj_test_mutate(&sj_r, sj_b, sj_p.size);");
    w.line("if (sj_i.body_len < sj_p.size)");
    w.line("    sj_b = (unsigned char *)realloc(sj_b, sj_i.body_len ? sj_i.body_len : 1);");
    w.line("sj_i.body = sj_b;");
    w.line("sj_i.n_fds = (uint8_t)sj_p.n_fds;");
    w.line(format!("{} sj_w;", op.args()));
    w.line(format!("sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, {opnum}, 1, {types});"));
    w.line("memset(&sj_w, 0, sizeof sj_w);");
    w.line(format!("sj_draw_{name}_request(&sj_r, &sj_w);"));
    w.line(format!("sj_prepare_{name}(&sj_r, &sj_w);"));
    w.line("sj_dec sj_d;");
    w.line("sj_dec_init(&sj_d, &sj_i, &sj_a, (sj_t->k & 1) == 0);");
    if way == Direction::Request && op.has_short_way() {
        w.line("/* What the short way takes, the decoder takes, with the same values. */");
        w.line(format!("{} sj_k = sj_w;", op.args()));
        w.line(format!("const bool sj_short = sj_of_{name}_request_short(&sj_i, &sj_k);"));
        w.line(format!("const bool sj_ok = sj_of_{name}_request_get(&sj_d, &sj_w);"));
        w.open("if (sj_short)");
        w.line(format!("const sj_test_body sj_c = sj_bytes_{name}_request(&sj_a, &sj_k);"));
        w.line("const sj_test_body sj_g = {sj_b, sj_i.body_len, 0, true};");
        w.open("if (!sj_ok || !sj_test_same(&sj_c, &sj_g))");
        w.line(format!("sj_test_report(\"{name} {way_name} short\", sj_t->k, &sj_c, &sj_g);"));
        w.line("sj_t->errors++;");
        w.close();
        w.close();
        w.open("if (sj_ok)");
    } else {
        w.open(format!("if (sj_of_{name}_{way_name}_get(&sj_d, &sj_w))"));
    }
    w.line("sj_t->calls++;");
    w.line(format!("const sj_test_body sj_q = sj_bytes_{name}_{way_name}(&sj_a, &sj_w);"));
    w.line("const sj_test_body sj_g = {sj_b, sj_i.body_len, 0, true};");
    w.open("if (!sj_test_same(&sj_q, &sj_g))");
    w.line(format!("sj_test_report(\"{name} {way_name} mutated\", sj_t->k, &sj_q, &sj_g);"));
    w.line("sj_t->errors++;");
    w.close();
    w.close();
    w.line("free(sj_b);");
    w.line("sj_arena_free(&sj_a);");
    w.close();
}
