/* The functions of <sojourn/ipc.h> within one process: one client, one server, one message at a
 * time.
 *
 * Lets generated code run without the transport. A client's and a server's program are compiled
 * with their main() renamed; this file's main() runs both. Memory is allocated to the byte, so that
 * sanitizers see every overrun. Not a model of the transport: no shared memory, no limits, nothing
 * hostile. */
#define _GNU_SOURCE
#include <sojourn/ipc.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A message in flight: private copies of everything. */
typedef struct message {
    unsigned char *body;
    size_t body_len;
    uint16_t op;
    uint8_t n_items, n_fds;
    unsigned char *items[SJ_ITEMS_MAX];
    size_t item_lens[SJ_ITEMS_MAX];
    int fds[SJ_FDS_MAX];
    uint32_t fault;
} message;

struct sj_connection { message *received; sj_wait waits; };
struct sj_endpoint { int unused; };
struct sj_server { message *received; };

enum { IDLE, REQUEST, ONE_WAY, SERVED, REPLY, GONE };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int state = IDLE, is_listening, expelled;
static message *in_flight;
size_t fake_threshold = 64;
sj_wait fake_waited; /* how the last call or one-way message waited */
void *fake_local;

static void release(message *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < m->n_items; i++)
        free(m->items[i]);
    for (unsigned i = 0; i < m->n_fds; i++)
        if (m->fds[i] >= 0)
            close(m->fds[i]);
    free(m->body);
    free(m);
}

static unsigned char *copy_of(const void *p, size_t n)
{
    unsigned char *c = malloc(n ? n : 1);
    if (!c)
        abort();
    if (n)
        memcpy(c, p, n);
    return c;
}

static void begin(sj_out *out, uint16_t op, size_t body_len)
{
    out->body = malloc(body_len ? body_len : 1);
    memset(out->body, 0xA5, body_len); /* what is not written must be seen */
    out->body_len = body_len;
    out->op = op;
    out->n_items = out->n_fds = out->n_grants = 0;
}

static message *sealed(sj_out *out)
{
    message *m = calloc(1, sizeof *m);
    m->body = out->body;
    m->body_len = out->body_len;
    m->op = out->op;
    m->n_items = out->n_items;
    m->n_fds = out->n_fds;
    for (unsigned i = 0; i < m->n_items; i++) {
        m->items[i] = copy_of(out->items[i].data, out->items[i].len);
        m->item_lens[i] = out->items[i].len;
    }
    for (unsigned i = 0; i < m->n_fds; i++)
        m->fds[i] = fcntl(out->fds[i], F_DUPFD_CLOEXEC, 0);
    return m;
}

static void show(sj_in *in, message *m)
{
    memset(in, 0, sizeof *in);
    in->body = m->body;
    in->body_len = m->body_len;
    in->op = m->op;
    in->fault = m->fault;
    in->n_items = m->n_items;
    in->n_fds = m->n_fds;
    memcpy(in->item_lens, m->item_lens, sizeof in->item_lens);
    memcpy(in->fds, m->fds, sizeof in->fds);
    in->private_[0] = (uint64_t)(uintptr_t)m;
}

static message *behind(sj_in *in) { return (message *)(uintptr_t)in->private_[0]; }

sj_status sj_connect(const char *address, const sj_options *options, sj_connection **out)
{
    (void)address, (void)options;
    pthread_mutex_lock(&lock);
    int ok = is_listening;
    pthread_mutex_unlock(&lock);
    *out = ok ? calloc(1, sizeof **out) : NULL;
    return ok ? SJ_OK : SJ_REFUSED;
}

void sj_disconnect(sj_connection *c)
{
    pthread_mutex_lock(&lock);
    state = GONE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    release(c->received);
    free(c);
}

int sj_reason(const sj_connection *c) { return (void)c, expelled; }
const char *sj_reason_text(int reason) { return reason ? "expelled" : "none"; }

const char *sj_status_text(sj_status s)
{
    static const char *const names[] = {"ok", "timeout", "disconnected", "fault", "invalid", "too large",
                                        "system", "bad message", "gone", "busy", "refused"};
    return names[s];
}

void sj_start(sj_connection *c, uint16_t op, size_t body_len, sj_out *out)
{
    (void)c;
    begin(out, op, body_len);
}

sj_status sj_set_wait(sj_connection *c, const sj_wait *wait, sj_wait *before)
{
    if (before)
        *before = c->waits;
    if (wait)
        c->waits = *wait;
    return SJ_OK;
}

static void hand_over(int next, message *m)
{
    in_flight = m;
    state = next;
    pthread_cond_broadcast(&changed);
}

sj_status sj_call(sj_connection *c, sj_out *out, int64_t deadline_ns, sj_in *in)
{
    (void)deadline_ns;
    fake_waited = c->waits;
    message *m = sealed(out);
    pthread_mutex_lock(&lock);
    while (state != IDLE && state != GONE)
        pthread_cond_wait(&changed, &lock);
    hand_over(REQUEST, m);
    while (state != REPLY && !expelled)
        pthread_cond_wait(&changed, &lock);
    release(c->received);
    c->received = expelled ? NULL : in_flight;
    state = IDLE;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!c->received)
        return SJ_DISCONNECTED;
    show(in, c->received);
    return in->fault ? SJ_FAULT : SJ_OK;
}

sj_status sj_send(sj_connection *c, sj_out *out, int64_t deadline_ns)
{
    (void)deadline_ns;
    fake_waited = c->waits;
    message *m = sealed(out);
    pthread_mutex_lock(&lock);
    while (state != IDLE)
        pthread_cond_wait(&changed, &lock);
    hand_over(ONE_WAY, m);
    while (state != IDLE && state != SERVED && !expelled)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return expelled ? SJ_DISCONNECTED : SJ_OK;
}

void sj_copy(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }

sj_status sj_item_copy(sj_in *in, unsigned i, void *dst, size_t len)
{
    if (i >= in->n_items || len != in->item_lens[i])
        return SJ_INVALID;
    memcpy(dst, behind(in)->items[i], len);
    return SJ_OK;
}

const void *sj_item(sj_in *in, unsigned i) { return i < in->n_items ? behind(in)->items[i] : NULL; }

sj_status sj_grant_copy(sj_in *in, unsigned i, void *dst, size_t len)
{
    return (void)in, (void)i, (void)dst, (void)len, SJ_INVALID;
}

int sj_take_fd(sj_in *in, unsigned i)
{
    int fd = in->fds[i];
    behind(in)->fds[i] = -1;
    return fd;
}

size_t sj_reference_threshold(void) { return fake_threshold; }
void *sj_local(sj_connection *c) { return (void)c, fake_local; }

sj_status sj_listen(const char *address, const sj_options *options, sj_endpoint **out)
{
    (void)address, (void)options;
    *out = calloc(1, sizeof **out);
    pthread_mutex_lock(&lock);
    is_listening = 1;
    pthread_mutex_unlock(&lock);
    return SJ_OK;
}

void sj_close(sj_endpoint *e) { free(e); }
void sj_endpoint_set_local(sj_endpoint *e, void *object) { (void)e, fake_local = object; }

sj_status sj_server_new(sj_endpoint *e, sj_server **out)
{
    (void)e;
    *out = calloc(1, sizeof **out);
    return SJ_OK;
}

void sj_server_free(sj_server *s)
{
    release(s->received);
    free(s);
}

sj_status sj_recv(sj_server *s, int64_t deadline_ns, sj_event *event)
{
    (void)deadline_ns;
    pthread_mutex_lock(&lock);
    if (state == SERVED && s->received) { /* one-way: done with it */
        state = IDLE;
        pthread_cond_broadcast(&changed);
    }
    release(s->received);
    s->received = NULL;
    while (state != REQUEST && state != ONE_WAY && state != GONE)
        pthread_cond_wait(&changed, &lock);
    memset(event, 0, sizeof *event);
    event->client.generation = 1;
    if (state == GONE) {
        event->kind = SJ_EVENT_GONE;
    } else {
        event->kind = state == REQUEST ? SJ_EVENT_CALL : SJ_EVENT_SEND;
        s->received = in_flight;
        in_flight = NULL;
        show(&event->in, s->received);
        state = SERVED;
        if (event->kind == SJ_EVENT_SEND)
            pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return SJ_OK;
}

void sj_reply_start(sj_server *s, const sj_token *token, size_t body_len, sj_out *out)
{
    (void)s, (void)token;
    begin(out, 0, body_len);
}

static void answer(message *m)
{
    pthread_mutex_lock(&lock);
    hand_over(REPLY, m);
    pthread_mutex_unlock(&lock);
}

sj_status sj_reply(sj_server *s, sj_out *out)
{
    (void)s;
    answer(sealed(out));
    return SJ_OK;
}

sj_status sj_reply_fault(sj_server *s, const sj_token *token, uint32_t fault)
{
    (void)s, (void)token;
    message *m = calloc(1, sizeof *m);
    m->body = malloc(1);
    m->fault = fault;
    answer(m);
    return SJ_OK;
}

sj_status sj_reply_wait(sj_server *s, sj_out *out, int64_t deadline_ns, sj_event *event)
{
    if (out)
        sj_reply(s, out);
    return sj_recv(s, deadline_ns, event);
}

sj_status sj_expel(sj_server *s, sj_client client, int reason)
{
    (void)s, (void)client;
    pthread_mutex_lock(&lock);
    expelled = reason;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return SJ_OK;
}

int64_t sj_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifndef FAKE_WITHOUT_MAIN
int client_main(int argc, char **argv);
int server_main(int argc, char **argv);
static char *seed, *rounds;
static int server_result;

static void *serve(void *unused)
{
    char *argv[] = {(char *)"server", (char *)"fake", seed, NULL};
    (void)unused;
    server_result = server_main(3, argv);
    return NULL;
}

/* SEED ROUNDS THRESHOLD [SEED OF THE SERVER] */
int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    seed = argv[argc > 4 ? 4 : 1];
    rounds = argv[2];
    fake_threshold = strtoull(argv[3], NULL, 0);
    alarm(100);
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    char *args[] = {(char *)"client", (char *)"fake", argv[1], rounds, NULL};
    int result = client_main(4, args);
    if (result == 0)
        pthread_join(thread, NULL);
    return result ? result : server_result;
}
#endif
