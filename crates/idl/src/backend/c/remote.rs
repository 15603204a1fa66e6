//! Client stubs that reach a server: marshal, send, wait, unmarshal. Not here: the functions that
//! users call (`client`).

use crate::ir::Sync;

use super::op::{Direction, Op};
use super::template::{Code, c};

/// A way to wait as the numbers of `sj_wait`.
pub(super) struct Wait {
    pub(super) way: u32,
    /// Microseconds of spinning.
    pub(super) spin_us: u32,
}

impl Wait {
    pub(super) fn of(sync: Sync) -> Self {
        let (way, spin_us) = match sync {
            Sync::Adaptive => (0, 0),
            Sync::Spin(None) => (1, 0),
            Sync::Spin(Some(us)) => (1, u32::try_from(us).unwrap_or(u32::MAX)),
            Sync::Park => (2, 0),
        };
        Self { way, spin_us }
    }
}

/// Marshal, send, wait, unmarshal.
pub(super) fn remote(op: &Op<'_>) -> Code {
    let has_arena = op.needs_arena(Direction::Request);
    let (arena, free) = match has_arena {
        true => (
            c!("
                SJ_ALIGNED(16) unsigned char sj_memory[SJ_STUB_STACK];
                sj_arena sj_a;
                sj_arena_init(&sj_a, sj_memory, sizeof sj_memory);
                "),
            c!("sj_arena_free(&sj_a);"),
        ),
        false => (Code::new(), Code::new()),
    };
    c!(
        "

        SJ_INLINE sj_status sj_of_$name_remote(sj_stub *sj_s, $args *sj_v)
        {
            sj_out sj_o;
            sj_enc sj_e;
            $arena
            $encode
            $limit
            sj_status sj_r = $call;
            $free
            $reply
        }
        ",
        name = op.name(),
        args = op.args(),
        arena,
        encode = encode(op, has_arena),
        limit = limit(op, has_arena),
        call = call(op),
        free,
        reply = reply(op),
    )
}

/// A status as it is returned before the call.
fn failed(status: &str, has_arena: bool) -> String {
    let free = if has_arena { "sj_arena_free(&sj_a), " } else { "" };
    format!("{free}{status}")
}

/// The request in its place.
fn encode(op: &Op<'_>, has_arena: bool) -> Code {
    let arena = if has_arena { "&sj_a" } else { "NULL" };
    let threshold = op.threshold("sj_s->threshold");
    let opnum = format!("(uint16_t)(sj_s->base + {}u)", op.op.opnum);
    let (invalid, large) = (failed("SJ_INVALID", has_arena), failed("SJ_TOO_LARGE", has_arena));
    if !op.is_planned(Direction::Request) {
        return c!(
            "
            sj_enc_init_grow(&sj_e, $arena, $threshold, &sj_s->scratch);
            if (SJ_UNLIKELY(!sj_of_$name_request_put(&sj_e, sj_v)))
                return $invalid;
            if (SJ_UNLIKELY(!sj_stub_start(sj_s, $opnum, &sj_e, &sj_o)))
                return $large;
            ",
            arena,
            threshold,
            name = op.name(),
            invalid,
            opnum,
            large,
        );
    }
    let attach = match op.is_fixed(Direction::Request) {
        true => Code::new(),
        false => c!("sj_enc_attach(&sj_e, &sj_o);"),
    };
    c!(
        "
        struct sj_of_$name_request_plan sj_p;
        sj_enc_init(&sj_e, $arena, $threshold);
        if (SJ_UNLIKELY(!sj_of_$name_request_plan(&sj_e, sj_v, &sj_p)))
            return $invalid;
        sj_start(sj_s->connection, $opnum, sj_p.size, &sj_o);
        if (SJ_UNLIKELY(!sj_o.body))
            return $large;
        sj_enc_into(&sj_e, &sj_o, $size);
        if (SJ_UNLIKELY(!sj_of_$name_request_put(&sj_e, sj_v, &sj_p)))
            return $invalid;
        $attach
        ",
        name = op.name(),
        arena,
        threshold,
        invalid,
        opnum,
        large,
        size = op.layout(Direction::Request).size,
        attach,
    )
}

/// `max_message`.
fn limit(op: &Op<'_>, has_arena: bool) -> Code {
    let Some(max) = op.op.acf.max_message else { return Code::new() };
    c!(
        "
        if (SJ_UNLIKELY(sj_exceeds(&sj_e, sj_o.body_len, $max)))
            return $large;
        ",
        max = format!("{max}u"),
        large = failed("SJ_TOO_LARGE", has_arena),
    )
}

fn call(op: &Op<'_>) -> String {
    let call = if op.op.oneway { "sj_stub_send" } else { "sj_stub_call" };
    let timeout = op.op.acf.timeout_ms.unwrap_or(0).saturating_mul(1_000_000);
    let timeout = timeout.min(i64::MAX as u64);
    match op.op.acf.sync.map(Wait::of) {
        Some(Wait { way, spin_us }) => {
            format!("{call}_waiting(sj_s, &sj_o, INT64_C({timeout}), {way}u, {spin_us}u)")
        }
        None => format!("{call}(sj_s, &sj_o, INT64_C({timeout}))"),
    }
}

/// What follows the call: the answer taken apart.
fn reply(op: &Op<'_>) -> Code {
    if op.op.oneway {
        return c!("return sj_r;");
    }
    let name = op.name();
    let decode = match op.reply_has_wire_layout() {
        true => c!(
            "
            sj_dec_init(&sj_d, &sj_s->in, NULL, true);
            return sj_stub_finish_plain(sj_of_$name_reply_get(&sj_d, sj_v));
            ",
            name,
        ),
        false => c!(
            "
            sj_dec_init(&sj_d, &sj_s->in, sj_stub_arena(sj_s), sj_s->results == NULL);
            return sj_stub_finish(sj_s, &sj_d, sj_of_$name_reply_get(&sj_d, sj_v));
            ",
            name,
        ),
    };
    c!(
        "
        if (SJ_UNLIKELY(sj_r != SJ_OK))
            return sj_stub_failed(sj_s, sj_r);
        sj_dec sj_d;
        $decode
        ",
        decode,
    )
}
