//! Generated tests: a client that calls every operation with random values, a server that answers,
//! and a program that decodes mutated bodies. All three follow `docs/reference/idl-random.md`, so
//! that they work with those of other languages.

use crate::ir::{Dir, Interface, Ty};

use super::client::argument_names;
use super::emit::Emit;
use super::model::{Model, Passing};
use super::op::{Direction, Op, Part, operations};
use super::random::{Item, List};

/// Operations that tests can call: not those whose stubs the user writes.
pub(super) fn tested<'a>(model: Model<'a>, interface: &'a Interface) -> Vec<Op<'a>> {
    operations(model, interface)
}

/// The part shared by the three programs: drawing and comparing.
pub(super) fn common(emit: &mut Emit<'_>, interfaces: &[&Interface]) {
    emit.draw_functions();
    for interface in interfaces {
        for op in tested(emit.model, interface) {
            for way in [Direction::Request, Direction::Reply] {
                if way == Direction::Reply && op.op.oneway {
                    continue;
                }
                draw_way(emit, &op, way);
                bytes(emit, &op, way);
            }
            prepare(emit, &op);
        }
    }
}

fn draw_way(emit: &mut Emit<'_>, op: &Op<'_>, way: Direction) {
    let parts = op.parts(way);
    emit.w.blank();
    emit.w.function(format!(
        "static inline void sj_draw_{}_{}(sj_random *sj_r, {} *sj_v)",
        op.name(),
        way.name(),
        op.args()
    ));
    emit.w.line("(void)sj_r, (void)sj_v;");
    for part in &parts {
        storage(emit, part);
    }
    let index = |part: &Part<'_>| {
        let p = part.param?;
        let i = op.op.params.iter().position(|x| std::ptr::eq(x, p))?;
        u32::try_from(i).ok()
    };
    let items: Vec<Item<'_>> = parts
        .iter()
        .map(|part| Item {
            index: index(part),
            lv: part.lv.clone(),
            ty: part.ty,
            range: part.range,
            in_buffer: part.passing == Passing::Buffer,
            ignore: false,
        })
        .collect();
    let mut types: Vec<&Ty> = op.op.params.iter().map(|p| &p.ty).collect();
    types.extend(op.op.result.iter());
    let known = (0_u32..)
        .zip(&op.op.params)
        .filter(|(_, p)| way == Direction::Reply && p.dir == Dir::In)
        .map(|(i, _)| i)
        .collect();
    // Sizes are checked for what travels, and in a request for the buffers of what will come back.
    emit.draw_list(&List { types, known }, &items, &op.scope());
    emit.w.close();
}

/// Memory behind the pointer that a parameter is, unless there is some.
fn storage(emit: &mut Emit<'_>, part: &Part<'_>) {
    let model = emit.model;
    let (cast, size) = match (part.passing, model.resolve(part.ty)) {
        (Passing::Pointer, _) => (model.decl(part.ty, "*"), model.name(part.ty)),
        (Passing::Decayed, Ty::Fixed(e, _)) => (model.decl(e, "*"), model.name(part.ty)),
        _ => return,
    };
    let f = &part.name;
    emit.w.line(format!("if (!sj_v->{f})"));
    emit.w.line(format!("    sj_v->{f} = ({cast})sj_random_memory(sj_r, 1, sizeof({size}));"));
}

/// The client's memory for everything that only comes back.
fn prepare(emit: &mut Emit<'_>, op: &Op<'_>) {
    emit.w.blank();
    emit.w.function(format!(
        "static inline void sj_prepare_{}(sj_random *sj_r, {} *sj_v)",
        op.name(),
        op.args()
    ));
    emit.w.line("(void)sj_r, (void)sj_v;");
    let sc = op.scope();
    for part in op.parts(Direction::Reply) {
        if part.passing == Passing::Buffer && part.param.is_some_and(|p| !p.is_in()) {
            let (element, cast) = match emit.model.resolve(part.ty) {
                Ty::Array(a) => (emit.model.name(&a.element), emit.model.name(part.ty)),
                Ty::String(s) if s.wide => ("uint16_t".to_owned(), "uint16_t *".to_owned()),
                _ => ("char".to_owned(), "char *".to_owned()),
            };
            let room = emit.room(&part, &sc);
            emit.w.line(format!(
                "sj_v->{} = ({cast})sj_random_memory(sj_r, (size_t){room}, sizeof({element}));",
                part.name
            ));
        } else {
            storage(emit, &part);
        }
    }
    emit.w.close();
}

/// The body of one direction in memory of its own, everything in form 1.
fn bytes(emit: &mut Emit<'_>, op: &Op<'_>, way: Direction) {
    let (name, way_name) = (op.name(), way.name());
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "static inline sj_test_body sj_bytes_{name}_{way_name}(sj_arena *sj_a, const {} *sj_v)",
        op.args()
    ));
    w.line("sj_test_body sj_b;");
    w.line("sj_enc sj_e;");
    if op.is_planned(way) {
        w.line(format!("struct sj_of_{name}_{way_name}_plan sj_p;"));
        w.line("sj_enc_init(&sj_e, sj_a, SIZE_MAX);");
        w.line(format!("bool sj_ok = sj_of_{name}_{way_name}_plan(&sj_e, sj_v, &sj_p);"));
        w.open("if (sj_ok)");
        w.line("sj_e.body = (unsigned char *)sj_arena_alloc(sj_a, sj_p.size);");
        w.line("sj_e.end = sj_p.size;");
        w.line(format!("sj_e.pos = {};", op.layout(way).size));
        w.line(format!(
            "sj_ok = sj_e.body && sj_of_{name}_{way_name}_put(&sj_e, sj_v, &sj_p) && sj_e.pos == sj_p.size;"
        ));
        w.close();
    } else {
        w.line("sj_buffer sj_g = {NULL, 0};");
        w.line("sj_enc_init_grow(&sj_e, sj_a, SIZE_MAX, &sj_g);");
        w.line(format!("bool sj_ok = sj_of_{name}_{way_name}_put(&sj_e, sj_v);"));
        w.line("if (sj_ok && sj_e.pos)");
        w.line("    sj_e.body = (unsigned char *)sj_arena_copy(sj_a, sj_e.body, sj_e.pos);");
        w.line("sj_buffer_free(&sj_g);");
    }
    w.line("sj_test_body_end(&sj_b, &sj_e, sj_ok);");
    w.line("return sj_b;");
    w.close();
}

/// Draws the request, and a second one for comparison where values are changed by the call.
pub(super) fn begin_call(emit: &mut Emit<'_>, op: &Op<'_>, variable: &str) {
    let types = emit.model.m.types.len();
    let (name, opnum) = (op.name(), op.op.opnum);
    emit.w.line(format!(
        "sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, {opnum}, 1, {types});"
    ));
    emit.w.line(format!("memset(&{variable}, 0, sizeof {variable});"));
    emit.w.line(format!("sj_draw_{name}_request(&sj_r, &{variable});"));
    emit.w.line(format!("sj_prepare_{name}(&sj_r, &{variable});"));
}

/// The client's program.
pub(super) fn client(emit: &mut Emit<'_>, interfaces: &[&Interface]) {
    for interface in interfaces {
        let iface = &interface.name;
        for op in tested(emit.model, interface).iter().filter(|op| op.has_client()) {
            client_call(emit, op, iface);
        }
        client_run(emit, interface, iface);
    }
    let w = &mut emit.w;
    w.blank();
    w.line("/* client ADDRESS SEED ROUNDS */");
    w.function("int main(int argc, char **argv)");
    w.open("if (argc != 4)");
    w.line("fprintf(stderr, \"usage: %s ADDRESS SEED ROUNDS\\n\", argv[0]);");
    w.line("return 2;");
    w.close();
    w.line(
        "const uint64_t seed = strtoull(argv[2], NULL, 0), rounds = strtoull(argv[3], NULL, 0);",
    );
    w.line("sj_connection *c = sj_test_connect(argv[1], NULL);");
    w.line("if (!c)");
    w.line("    return 2;");
    w.line("int failed = 0;");
    for interface in interfaces {
        let iface = &interface.name;
        w.line(format!("failed = failed || sj_test_{iface}(c, seed, rounds);"));
    }
    w.line("sj_disconnect(c);");
    w.line("return failed;");
    w.close();
}

fn client_call(emit: &mut Emit<'_>, op: &Op<'_>, iface: &str) {
    let name = op.name();
    emit.w.blank();
    emit.w.function(format!("static int sj_test_{name}({iface}_client *sj_c, sj_test *sj_t)"));
    emit.w.line("sj_random sj_r;");
    emit.w.line("sj_arena sj_a;");
    emit.w.line("memset(&sj_a, 0, sizeof sj_a);");
    emit.w.line(format!("{} sj_v, sj_x;", op.args()));
    begin_call(emit, op, "sj_v");
    begin_call(emit, op, "sj_x");
    let mut args = vec!["sj_c".to_owned()];
    for (i, a) in argument_names(op).iter().enumerate() {
        match op.op.params.get(i).filter(|p| op.is_callers(p)) {
            Some(p) => {
                let cast = op.model.name(&p.ty);
                emit.w.line(format!("*sj_v.{a} = ({cast})sj_random_memory(&sj_r, 64, 64);"));
                args.push(format!("*sj_v.{a}"));
                args.push("64".to_owned());
            }
            None => args.push(format!("sj_v.{a}")),
        }
    }
    let suffix = if op.op.acf.impl_client.is_some() { "_stub" } else { "" };
    emit.w.line(format!("sj_status sj_s = {name}{suffix}({});", args.join(", ")));
    emit.w.line("int sj_bad = sj_s != SJ_OK;");
    emit.w.line("if (sj_bad)");
    emit.w.line(format!(
        "    fprintf(stderr, \"{name}: call %llu: %s, fault %u\\n\", (unsigned long long)sj_t->k, sj_status_text(sj_s), (unsigned)sj_c->stub.fault);"
    ));
    if !op.op.oneway {
        emit.w.open("if (!sj_bad)");
        compare_reply(emit, op);
        emit.w.close();
    }
    emit.w.line("sj_t->k++;");
    emit.w.line("sj_arena_free(&sj_a);");
    emit.w.line("return sj_bad;");
    emit.w.close();
}

fn compare_reply(emit: &mut Emit<'_>, op: &Op<'_>) {
    let (name, opnum) = (op.name(), op.op.opnum);
    let types = emit.model.m.types.len();
    let w = &mut emit.w;
    w.line(format!("sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, {opnum}, 2, {types});"));
    w.line(format!("sj_draw_{name}_reply(&sj_r, &sj_x);"));
    // A buffer of the caller's cannot say that there was nothing.
    for p in op.op.params.iter().filter(|p| op.is_callers(p)) {
        let f = &p.name;
        w.line(format!("if (!*sj_x.{f})"));
        w.line(format!("    *sj_v.{f} = NULL;"));
    }
    w.line(format!("const sj_test_body sj_p = sj_bytes_{name}_reply(&sj_a, &sj_v);"));
    w.line(format!("const sj_test_body sj_q = sj_bytes_{name}_reply(&sj_a, &sj_x);"));
    w.line("sj_bad = !sj_test_same(&sj_p, &sj_q);");
    w.line("if (sj_bad)");
    w.line(format!("    sj_test_report(\"{name} reply\", sj_t->k, &sj_p, &sj_q);"));
}

fn client_run(emit: &mut Emit<'_>, interface: &Interface, iface: &str) {
    let ops = tested(emit.model, interface);
    let w = &mut emit.w;
    w.blank();
    w.function(format!(
        "static int sj_test_{iface}(sj_connection *connection, uint64_t seed, uint64_t rounds)"
    ));
    w.line(format!("static {iface}_client sj_c;"));
    w.line("sj_test sj_t = {seed, 0, 0, 0};");
    w.line(format!("sj_status sj_s = {iface}_bind(&sj_c, connection);"));
    w.open("if (sj_s != SJ_OK)");
    w.line(format!("fprintf(stderr, \"{iface}: bind: %s\\n\", sj_status_text(sj_s));"));
    w.line("return 1;");
    w.close();
    w.line("int sj_bad = 0;");
    w.open("for (uint64_t i = 0; i < rounds && !sj_bad; i++)");
    for op in ops.iter().filter(|op| op.has_client()) {
        w.line(format!("sj_bad = sj_bad || sj_test_{}(&sj_c, &sj_t);", op.name()));
    }
    w.close();
    w.line(format!("{iface}_unbind(&sj_c);"));
    w.line(format!("printf(\"{iface}: %llu calls, %s\\n\", (unsigned long long)sj_t.k, sj_bad ? \"failed\" : \"as expected\");"));
    w.line("return sj_bad;");
    w.close();
}
