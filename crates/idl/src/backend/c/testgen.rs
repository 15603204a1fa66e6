//! Generated tests: a client that calls every operation with random values, a server that answers,
//! and a program that decodes mutated bodies. All three follow `docs/reference/idl-random.md`, so
//! that they work with those of other languages.

use crate::ir::{Dir, Interface, Ty};

use super::buffer::BufferType;
use super::client::argument_names;
use super::emit::Emit;
use super::model::{Model, Passing};
use super::op::{Direction, Op, Part, operations};
use super::random::{Item, List};
use super::template::{Code, c};

/// Operations that tests can call: not those whose stubs the user writes.
pub(super) fn tested<'a>(model: Model<'a>, interface: &'a Interface) -> Vec<Op<'a>> {
    operations(model, interface)
}

/// Directions in which an operation's messages travel.
pub(super) fn directions(op: &Op<'_>) -> &'static [Direction] {
    match op.op.oneway {
        true => &[Direction::Request],
        false => &[Direction::Request, Direction::Reply],
    }
}

/// The part shared by the three programs: drawing and comparing.
pub(super) fn common(emit: &mut Emit<'_>, interfaces: &[&Interface]) -> Code {
    let mut out = emit.draw_functions();
    for interface in interfaces {
        for op in tested(emit.model, interface) {
            for way in directions(&op) {
                out += &draw_way(emit, &op, *way);
                out += &bytes(&op, *way);
            }
            out += &prepare(emit, &op);
        }
    }
    out
}

fn draw_way(emit: &mut Emit<'_>, op: &Op<'_>, way: Direction) -> Code {
    let parts = op.parts(way);
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
    c!(
        "

        static inline void sj_draw_$name_$way(sj_random *sj_r, $args *sj_v)
        {
            (void)sj_r, (void)sj_v;
            $memory
            $draw
        }
        ",
        name = op.name(),
        way = way.name(),
        args = op.args(),
        memory = parts.iter().map(|part| storage(emit.model, part)).collect::<Code>(),
        // Sizes are checked for what travels, and in a request for the buffers of what comes back.
        draw = emit.draw_list(&List { types, known }, &items, &op.scope()),
    )
}

/// Memory behind the pointer that a parameter is, unless there is some.
fn storage(model: Model<'_>, part: &Part<'_>) -> Code {
    let (cast, size) = match (part.passing, model.resolve(part.ty)) {
        (Passing::Pointer, _) => (model.decl(part.ty, "*"), model.name(part.ty)),
        (Passing::Decayed, Ty::Fixed(e, _)) => (model.decl(e, "*"), model.name(part.ty)),
        _ => return Code::new(),
    };
    c!(
        "
        if (!sj_v->$f)
            sj_v->$f = ($cast)sj_random_memory(sj_r, 1, sizeof($size));
        ",
        f = part.name,
        cast,
        size,
    )
}

/// The client's memory for everything that only comes back.
fn prepare(emit: &Emit<'_>, op: &Op<'_>) -> Code {
    let sc = op.scope();
    let memory = |part: &Part<'_>| {
        if part.passing != Passing::Buffer || part.param.is_none_or(|p| p.is_in()) {
            return storage(emit.model, part);
        }
        let BufferType { element, pointer: cast } = emit.buffer_type(part);
        c!(
            "sj_v->$f = ($cast)sj_random_memory(sj_r, (size_t)$room, sizeof($element));",
            f = part.name,
            cast,
            room = emit.room(part, &sc),
            element,
        )
    };
    c!(
        "

        static inline void sj_prepare_$name(sj_random *sj_r, $args *sj_v)
        {
            (void)sj_r, (void)sj_v;
            $memory
        }
        ",
        name = op.name(),
        args = op.args(),
        memory = op.parts(Direction::Reply).iter().map(memory).collect::<Code>(),
    )
}

/// The body of one direction in memory of its own, everything in form 1.
fn bytes(op: &Op<'_>, way: Direction) -> Code {
    let (name, way_name) = (op.name(), way.name());
    let encode = if op.is_planned(way) {
        c!(
            "
            struct sj_of_$name_$way_plan sj_p;
            sj_enc_init(&sj_e, sj_a, SIZE_MAX);
            bool sj_ok = sj_of_$name_$way_plan(&sj_e, sj_v, &sj_p);
            if (sj_ok) {
                sj_e.body = (unsigned char *)sj_arena_alloc(sj_a, sj_p.size);
                sj_e.end = sj_p.size;
                sj_e.pos = $size;
                sj_ok = sj_e.body && sj_of_$name_$way_put(&sj_e, sj_v, &sj_p) && sj_e.pos == sj_p.size;
            }
            ",
            name,
            way = way_name,
            size = op.layout(way).size,
        )
    } else {
        c!(
            "
            sj_buffer sj_g = {NULL, 0};
            sj_enc_init_grow(&sj_e, sj_a, SIZE_MAX, &sj_g);
            bool sj_ok = sj_of_$name_$way_put(&sj_e, sj_v);
            if (sj_ok && sj_e.pos)
                sj_e.body = (unsigned char *)sj_arena_copy(sj_a, sj_e.body, sj_e.pos);
            sj_buffer_free(&sj_g);
            ",
            name,
            way = way_name,
        )
    };
    c!(
        "

        static inline sj_test_body sj_bytes_$name_$way(sj_arena *sj_a, const $args *sj_v)
        {
            sj_test_body sj_b;
            sj_enc sj_e;
            $encode
            sj_test_body_end(&sj_b, &sj_e, sj_ok);
            return sj_b;
        }
        ",
        name,
        way = way_name,
        args = op.args(),
        encode,
    )
}

/// Draws the request, and a second one for comparison where values are changed by the call.
pub(super) fn begin_call(op: &Op<'_>, variable: &str) -> Code {
    c!(
        "
        sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, $number, 1, $types);
        memset(&$variable, 0, sizeof $variable);
        sj_draw_$name_request(&sj_r, &$variable);
        sj_prepare_$name(&sj_r, &$variable);
        ",
        number = op.op.opnum,
        types = op.model.m.types.len(),
        variable,
        name = op.name(),
    )
}

/// The client's program.
pub(super) fn client(model: Model<'_>, interfaces: &[&Interface]) -> Code {
    let (mut functions, mut runs) = (Code::new(), Code::new());
    for interface in interfaces {
        let ops = tested(model, interface);
        functions += &ops.iter().filter(|op| op.has_client()).map(client_call).collect::<Code>();
        functions += &client_run(&ops, &interface.name);
        runs += &c!("failed = failed || sj_test_$iface(c, seed, rounds);", iface = interface.name,);
    }
    c!(
        r#"
        $functions

        /* client ADDRESS SEED ROUNDS */
        int main(int argc, char **argv)
        {
            if (argc != 4) {
                fprintf(stderr, "usage: %s ADDRESS SEED ROUNDS\n", argv[0]);
                return 2;
            }
            const uint64_t seed = strtoull(argv[2], NULL, 0), rounds = strtoull(argv[3], NULL, 0);
            sj_connection *c = sj_test_connect(argv[1], NULL);
            if (!c)
                return 2;
            int failed = 0;
            $runs
            sj_disconnect(c);
            return failed;
        }
        "#,
        functions,
        runs,
    )
}

fn client_call(op: &Op<'_>) -> Code {
    let mut args = vec!["sj_c".to_owned()];
    let mut memory = Code::new();
    for (i, a) in argument_names(op).iter().enumerate() {
        match op.op.params.get(i).filter(|p| op.is_callers(p)) {
            Some(p) => {
                let cast = op.model.name(&p.ty);
                memory += &c!("*sj_v.$a = ($cast)sj_random_memory(&sj_r, 64, 64);", a, cast);
                args.push(format!("*sj_v.{a}"));
                args.push("64".to_owned());
            }
            None => args.push(format!("sj_v.{a}")),
        }
    }
    c!(
        r#"

        static int sj_test_$name($iface_client *sj_c, sj_test *sj_t)
        {
            sj_random sj_r;
            sj_arena sj_a;
            memset(&sj_a, 0, sizeof sj_a);
            $args sj_v, sj_x;
            $first
            $second
            $memory
            sj_status sj_s = $name$suffix($values);
            int sj_bad = sj_s != SJ_OK;
            if (sj_bad)
                fprintf(stderr, "$name: call %llu: %s, fault %u\n", (unsigned long long)sj_t->k, sj_status_text(sj_s), (unsigned)sj_c->stub.fault);
            $compare
            sj_t->k++;
            sj_arena_free(&sj_a);
            return sj_bad;
        }
        "#,
        name = op.name(),
        iface = op.interface.name,
        args = op.args(),
        first = begin_call(op, "sj_v"),
        second = begin_call(op, "sj_x"),
        memory,
        suffix = if op.op.acf.impl_client.is_some() { "_stub" } else { "" },
        values = args.join(", "),
        compare = if op.op.oneway { Code::new() } else { compare_reply(op) },
    )
}

fn compare_reply(op: &Op<'_>) -> Code {
    // A buffer of the caller's cannot say that there was nothing.
    let null = |p: &crate::ir::Param| {
        c!(
            "
            if (!*sj_x.$f)
                *sj_v.$f = NULL;
            ",
            f = p.name,
        )
    };
    c!(
        r#"
        if (!sj_bad) {
            sj_random_stream(&sj_r, &sj_a, sj_t->seed + sj_t->k, $number, 2, $types);
            sj_draw_$name_reply(&sj_r, &sj_x);
            $nulls
            const sj_test_body sj_p = sj_bytes_$name_reply(&sj_a, &sj_v);
            const sj_test_body sj_q = sj_bytes_$name_reply(&sj_a, &sj_x);
            sj_bad = !sj_test_same(&sj_p, &sj_q);
            if (sj_bad)
                sj_test_report("$name reply", sj_t->k, &sj_p, &sj_q);
        }
        "#,
        number = op.op.opnum,
        types = op.model.m.types.len(),
        name = op.name(),
        nulls = op.op.params.iter().filter(|p| op.is_callers(p)).map(null).collect::<Code>(),
    )
}

fn client_run(ops: &[Op<'_>], iface: &str) -> Code {
    let calls: Code = ops
        .iter()
        .filter(|op| op.has_client())
        .map(|op| c!("sj_bad = sj_bad || sj_test_$name(&sj_c, &sj_t);", name = op.name()))
        .collect();
    c!(
        r#"

        static int sj_test_$iface(sj_connection *connection, uint64_t seed, uint64_t rounds)
        {
            static $iface_client sj_c;
            sj_test sj_t = {seed, 0, 0, 0};
            sj_status sj_s = $iface_bind(&sj_c, connection);
            if (sj_s != SJ_OK) {
                fprintf(stderr, "$iface: bind: %s\n", sj_status_text(sj_s));
                return 1;
            }
            int sj_bad = 0;
            for (uint64_t i = 0; i < rounds && !sj_bad; i++) {
                $calls
            }
            $iface_unbind(&sj_c);
            printf("$iface: %llu calls, %s\n", (unsigned long long)sj_t.k, sj_bad ? "failed" : "as expected");
            return sj_bad;
        }
        "#,
        iface,
        calls,
    )
}
