/* Calls that are never answered: ADDRESS. A child calls, this process receives and forgets, gives
 * up, or frees the handle. */
#include "checks.h"

#include <sys/wait.h>
#include <unistd.h>

#define DROPPED 6

enum { CALL_GIVEN_UP, CALL_FORGOTTEN, CALL_TWICE };

static void expect_dropped(sj_connection *c, sj_in *in, sj_pending pending)
{
    CHECK_STATUS(SJ_FAULT, sj_finish(c, pending, sj_now_ns() + INT64_C(20000000000), in));
    CHECK(in->fault == DROPPED);
}

static sj_pending submit(sj_connection *c, uint16_t op)
{
    sj_out out;
    sj_pending pending;
    sj_start(c, op, 8, &out);
    memset(out.body, 0, 8);
    CHECK_STATUS(SJ_OK, sj_submit(c, &out, SJ_FOREVER, &pending));
    return pending;
}

static void client(const char *address)
{
    sj_connection *c;
    sj_in in;
    CHECK_STATUS(SJ_OK, sj_connect(address, NULL, &c));
    expect_dropped(c, &in, submit(c, CALL_GIVEN_UP));
    /* Two at a time, so that more than one line has to be looked at. */
    sj_pending first = submit(c, CALL_FORGOTTEN), second = submit(c, CALL_TWICE);
    expect_dropped(c, &in, second);
    expect_dropped(c, &in, first);
    sj_out out;
    sj_start(c, 0, 0, &out);
    CHECK_STATUS(SJ_DISCONNECTED, sj_call(c, &out, SJ_FOREVER, &in));
    CHECK(sj_reason(c) == SJ_REASON_CLOSED);
    sj_disconnect(c);
}

/* The next call's token, by way of an event that says it is `op`. */
static sj_token receive(sj_server *server, uint16_t op)
{
    sj_event event;
    do
        CHECK_STATUS(SJ_OK, sj_recv(server, sj_now_ns() + INT64_C(20000000000), &event));
    while (event.kind != SJ_EVENT_CALL);
    CHECK(event.in.op == op);
    return event.token;
}

int main(int argc, char **argv)
{
    sj_endpoint *endpoint;
    sj_server *server, *answerer;
    int ready[2];
    char byte = 0;
    CHECK(argc == 2);
    alarm(60);
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        CHECK(read(ready[0], &byte, 1) == 1);
        client(argv[1]);
        return 0;
    }
    CHECK_STATUS(SJ_OK, sj_listen(argv[1], NULL, &endpoint));
    CHECK_STATUS(SJ_OK, sj_server_new(endpoint, &server));
    CHECK_STATUS(SJ_OK, sj_answerer_new(endpoint, &answerer));
    CHECK(write(ready[1], &byte, 1) == 1);

    sj_token given_up = receive(server, CALL_GIVEN_UP);
    CHECK_STATUS(SJ_OK, sj_token_drop(answerer, &given_up));
    CHECK_STATUS(SJ_INVALID, sj_token_drop(server, &given_up));
    CHECK_STATUS(SJ_INVALID, sj_token_drop(NULL, &given_up));
    CHECK_STATUS(SJ_INVALID, sj_token_drop(server, NULL));

    sj_token forgotten = receive(server, CALL_FORGOTTEN), twice = receive(server, CALL_TWICE);
    sj_out out;
    /* An answer begun and not sent is none. */
    sj_reply_start(answerer, &twice, 0, &out);
    sj_server_free(server);
    CHECK(sj_reply(answerer, &out) != SJ_OK);
    CHECK(sj_token_drop(answerer, &forgotten) != SJ_OK);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sj_server_free(answerer);
    sj_close(endpoint);
    printf("passed\n");
    return 0;
}
