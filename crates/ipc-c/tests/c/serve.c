/* The server of the C tests. */
#define _GNU_SOURCE
#include "checks.h"

#include <pthread.h>
#include <signal.h>

#define KEPT_MAX 16

typedef struct state {
    sj_endpoint *endpoint;
    sj_server *server;
    sj_token kept[KEPT_MAX];
    unsigned n_kept;
    uint64_t sends;
    sj_kept *grant;
    int stop;
} state;

static void answer(sj_server *server, const sj_token *token, const void *body, size_t len)
{
    sj_out out;
    sj_reply_start(server, token, len, &out);
    memcpy(out.body, body, len);
    sj_status status = sj_reply(server, &out);
    CHECK(status == SJ_OK || status == SJ_GONE);
}

/* Begins an answer that is what came. */
static void start_echo(sj_server *server, sj_event *event, sj_out *out)
{
    sj_reply_start(server, &event->token, event->in.body_len, out);
    memcpy(out->body, event->in.body, event->in.body_len);
    for (unsigned i = 0; i < event->in.n_items; i++) {
        out->items[i].data = sj_item(&event->in, i);
        out->items[i].len = event->in.item_lens[i];
        CHECK(out->items[i].data != NULL);
    }
    out->n_items = event->in.n_items;
}

static void start_fds(state *s, sj_event *event, sj_out *out)
{
    int ends[2];
    for (unsigned i = 0; i < event->in.n_fds; i++) {
        int fd = event->in.fds[i];
        CHECK(sj_take_fd(&event->in, i) == fd);
        CHECK(sj_take_fd(&event->in, i) == -1);
        CHECK(write(fd, "hello", 5) == 5);
        close(fd);
    }
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "back", 4) == 4);
    close(ends[1]);
    sj_reply_start(s->server, &event->token, 0, out);
    out->fds[0] = ends[0];
    out->n_fds = 1;
    CHECK_STATUS(SJ_OK, sj_reply(s->server, out));
    close(ends[0]); /* it was duplicated */
}

static void start_who(state *s, sj_event *event, sj_out *out)
{
    sj_credentials who;
    uint64_t badge = event->badge;
    CHECK_STATUS(SJ_OK, sj_credentials_of(s->server, event->client, &who));
    sj_reply_start(s->server, &event->token, 20, out);
    memcpy(out->body, &who.pid, 4);
    memcpy(out->body + 4, &who.uid, 4);
    memcpy(out->body + 8, &who.gid, 4);
    memcpy(out->body + 12, &badge, 8);
}

static void start_grant(state *s, sj_event *event, sj_out *out)
{
    sj_in *in = &event->in;
    size_t len = in->grants[0].len;
    unsigned char *copy = malloc(len);
    uint64_t sum = 0;
    CHECK_STATUS(SJ_OK, sj_grant_copy(in, 0, copy, len));
    CHECK_STATUS(SJ_INVALID, sj_grant_copy(in, 0, copy, len + 1));
    CHECK_STATUS(SJ_INVALID, sj_grant_copy(in, 8, copy, 0));
    CHECK(memcmp(copy, sj_grant_map(in, 0), len) == 0);
    for (size_t i = 0; i < len; i++)
        sum += copy[i];
    free(copy);
    if (!(in->grants[0].flags & SJ_GRANT_WRITE))
        CHECK_STATUS(SJ_INVALID, sj_grant_write(in, 0, 0, &sum, sizeof sum));
    if (in->n_grants > 1) {
        CHECK_STATUS(SJ_OK, sj_grant_write(in, 1, 8, &sum, sizeof sum));
        CHECK_STATUS(SJ_INVALID, sj_grant_write(in, 1, in->grants[1].len - 7, &sum, sizeof sum));
    }
    sj_reply_start(s->server, &event->token, 8, out);
    memcpy(out->body, &sum, 8);
}

static void start_kept(state *s, sj_event *event, sj_out *out)
{
    unsigned char first = 0;
    if (!s->grant) {
        CHECK_STATUS(SJ_OK, sj_grant_keep(&event->in, 0, &s->grant));
        CHECK_STATUS(SJ_INVALID, sj_grant_keep(&event->in, 1, &s->grant));
    } else {
        size_t len;
        const unsigned char *memory = sj_kept_map(s->grant, &len);
        CHECK(memory && len == 100);
        first = memory[0];
        sj_kept_free(s->grant);
        s->grant = NULL;
    }
    sj_reply_start(s->server, &event->token, 1, out);
    out->body[0] = first;
}

static void start_large(state *s, sj_event *event, sj_out *out, int as_item)
{
    static unsigned char *memory; /* until the next one */
    size_t len = (size_t)load64(event->in.body);
    sj_reply_start(s->server, &event->token, as_item ? 1 : len, out);
    unsigned char *target = out->body;
    if (as_item) {
        free(memory);
        target = memory = malloc(len + 1);
        out->body[0] = 1;
        out->items[0].data = memory;
        out->items[0].len = len;
        out->n_items = 1;
    }
    CHECK(target);
    for (size_t i = 0; i < len; i++)
        target[i] = pattern(i);
}

/* Whatever C does with tokens and messages is an error and nothing worse. */
static void start_misuse(state *s, sj_event *event, sj_out *out)
{
    sj_out other;
    sj_token token = event->token, wrong = event->token, none;
    memset(&none, 0, sizeof none);
    CHECK_STATUS(SJ_INVALID, sj_reply_fault(s->server, &none, 1));
    wrong.opaque[1] ^= UINT64_C(1) << 40;
    CHECK_STATUS(SJ_INVALID, sj_reply_fault(s->server, &wrong, 1));
    wrong = token;
    wrong.opaque[1] |= 200;
    CHECK_STATUS(SJ_INVALID, sj_reply_fault(s->server, &wrong, 1));
    wrong = token;
    wrong.opaque[0] += UINT64_C(1) << 32;
    CHECK_STATUS(SJ_GONE, sj_reply_fault(s->server, &wrong, 1));
    wrong = token;
    wrong.opaque[0] |= 0xffffffffu;
    CHECK_STATUS(SJ_GONE, sj_reply_fault(s->server, &wrong, 1));
    wrong = token;
    wrong.opaque[2] ^= 1;
    CHECK_STATUS(SJ_INVALID, sj_reply_fault(s->server, &wrong, 1));
    /* A body for nobody can be written all the same. */
    sj_reply_start(s->server, &wrong, 5000, &other);
    memset(other.body, 1, 5000);
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, &other));
    /* Two under construction: the later counts. */
    sj_reply_start(s->server, &token, 8, &other);
    sj_reply_start(s->server, &token, 8, out);
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, &other));
    /* Parts that no answer has. */
    out->n_grants = 1;
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, 8, out);
    out->n_items = 17;
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, 8, out);
    out->n_items = 1;
    out->items[0].data = NULL;
    out->items[0].len = 5;
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, 8, out);
    out->n_fds = 1;
    out->fds[0] = -1;
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, 8, out);
    out->body_len = 9;
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    /* Larger than the client takes: the token is still good. */
    sj_reply_start(s->server, &token, (size_t)1 << 40, out);
    CHECK_STATUS(SJ_TOO_LARGE, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, (size_t)-1, out);
    CHECK(out->body == NULL);
    CHECK_STATUS(SJ_TOO_LARGE, sj_reply(s->server, out));
    sj_reply_start(s->server, &token, 3, out);
    memcpy(out->body, "end", 3);
    CHECK_STATUS(SJ_OK, sj_reply(s->server, out));
    /* Once is once. */
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    CHECK_STATUS(SJ_INVALID, sj_reply_fault(s->server, &token, 1));
    sj_reply_start(s->server, &token, 3, out);
    CHECK_STATUS(SJ_INVALID, sj_reply(s->server, out));
    CHECK_STATUS(SJ_INVALID, sj_item_copy(&event->in, 0, out, 0));
    CHECK(sj_item(&event->in, 16) == NULL && sj_take_fd(&event->in, 99) == -1);
}

typedef struct deferred_answer {
    sj_server *answerer;
    sj_token token;
    unsigned char body[8];
} deferred_answer;

static void *run_deferred_answer(void *argument)
{
    deferred_answer *e = argument;
    sj_event event;
    CHECK_STATUS(SJ_INVALID, sj_recv(e->answerer, 0, &event));
    answer(e->answerer, &e->token, e->body, sizeof e->body);
    sj_server_free(e->answerer);
    free(e);
    return NULL;
}

static void answer_elsewhere(state *s, sj_event *event)
{
    pthread_t thread;
    deferred_answer *e = malloc(sizeof *e);
    CHECK(e && event->in.body_len == sizeof e->body);
    CHECK_STATUS(SJ_OK, sj_answerer_new(s->endpoint, &e->answerer));
    e->token = event->token;
    memcpy(e->body, event->in.body, sizeof e->body);
    CHECK(pthread_create(&thread, NULL, run_deferred_answer, e) == 0);
    pthread_detach(thread);
}

/* Whether there is an answer to send. */
static int handle_call(state *s, sj_event *event, sj_out *out)
{
    switch (event->in.op) {
    case OP_RELEASE:
        for (unsigned i = 0; i < s->n_kept; i++)
            answer(s->server, &s->kept[i], "late", 4);
        s->n_kept = 0;
        start_echo(s->server, event, out);
        return 1;
    case OP_STOP:
        s->stop = 1;
        start_echo(s->server, event, out);
        return 1;
    case OP_ECHO: start_echo(s->server, event, out); return 1;
    case OP_WHO: start_who(s, event, out); return 1;
    case OP_GRANT: start_grant(s, event, out); return 1;
    case OP_KEPT: start_kept(s, event, out); return 1;
    case OP_LARGE: start_large(s, event, out, 0); return 1;
    case OP_ITEM: start_large(s, event, out, 1); return 1;
    case OP_COUNT:
        sj_reply_start(s->server, &event->token, 8, out);
        memcpy(out->body, &s->sends, 8);
        return 1;
    case OP_KEEP: s->kept[s->n_kept++ % KEPT_MAX] = event->token; return 0;
    case OP_FAULT: CHECK_STATUS(SJ_OK, sj_reply_fault(s->server, &event->token, 0x1234)); return 0;
    case OP_FDS: start_fds(s, event, out); return 0;
    case OP_NOTIFY:
        CHECK_STATUS(SJ_OK, sj_notify_client(s->server, event->client, load64(event->in.body) << 1));
        start_echo(s->server, event, out);
        return 1;
    case OP_DIE: kill(getpid(), SIGKILL); return 0;
    case OP_MISUSE: start_misuse(s, event, out); return 0;
    case OP_EXPEL:
        CHECK_STATUS(SJ_INVALID, sj_expel(s->server, event->client, 4711));
        CHECK_STATUS(SJ_OK, sj_expel(s->server, event->client, SJ_REASON_BAD_MESSAGE));
        CHECK_STATUS(SJ_GONE, sj_notify_client(s->server, event->client, 1));
        return 0;
    case OP_ELSEWHERE: answer_elsewhere(s, event); return 0;
    default: return 0;
    }
}

void serve(sj_endpoint *endpoint, sj_server *server)
{
    state s;
    sj_event event;
    sj_out out;
    int ready = 0;
    memset(&s, 0, sizeof s);
    s.endpoint = endpoint;
    s.server = server;
    while (!s.stop) {
        CHECK_STATUS(SJ_OK, sj_reply_wait(server, ready ? &out : NULL, SJ_FOREVER, &event));
        ready = 0;
        switch (event.kind) {
        case SJ_EVENT_CONNECTED: CHECK_STATUS(SJ_OK, sj_set_badge(server, event.client, BADGE)); break;
        case SJ_EVENT_CALL: ready = handle_call(&s, &event, &out); break;
        case SJ_EVENT_SEND:
            CHECK(event.badge == BADGE);
            CHECK_STATUS(SJ_INVALID, sj_reply_fault(server, &event.token, 1));
            s.sends++;
            break;
        case SJ_EVENT_NOTIFY:
            CHECK(event.badge == BADGE);
            CHECK_STATUS(SJ_OK, sj_notify_client(server, event.client, event.bits << 1));
            break;
        case SJ_EVENT_GONE:
            CHECK(event.reason == SJ_REASON_PEER_DIED || event.reason == SJ_REASON_BAD_MESSAGE);
            CHECK_STATUS(SJ_GONE, sj_set_badge(server, event.client, 1));
            break;
        }
    }
    sj_status status = sj_reply(server, &out);
    CHECK(status == SJ_OK || status == SJ_GONE); /* the client may be faster than we are */
}
