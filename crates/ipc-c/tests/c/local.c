/* Client and server in one address space: ADDRESS. */
#include "checks.h"

#include <pthread.h>

static sj_endpoint *endpoint;

static void *run(void *server)
{
    serve(endpoint, server);
    return NULL;
}

/* A server thread that receives a call and ends without answering. */
static void *receive_and_end(void *argument)
{
    sj_server *server = argument;
    sj_event event;
    CHECK_STATUS(SJ_OK, sj_recv(server, SJ_FOREVER, &event));
    CHECK(event.kind == SJ_EVENT_CONNECTED);
    CHECK_STATUS(SJ_OK, sj_recv(server, SJ_FOREVER, &event));
    CHECK(event.kind == SJ_EVENT_CALL && event.in.body_len == 5);
    CHECK(memcmp(event.in.body, "hello", 5) == 0 && memcmp(sj_item(&event.in, 0), "world", 5) == 0);
    sj_server_free(server);
    return NULL;
}

/* What was lent is given back, the caller told that nobody will answer, and let go. */
static void check_end_within_call(const char *address)
{
    sj_server *server;
    sj_connection *c;
    pthread_t thread;
    sj_out out;
    sj_in in;
    CHECK_STATUS(SJ_OK, sj_server_new(endpoint, &server));
    CHECK(pthread_create(&thread, NULL, receive_and_end, server) == 0);
    CHECK_STATUS(SJ_OK, sj_connect(address, NULL, &c));
    sj_start(c, OP_ECHO, 5, &out);
    memcpy(out.body, "hello", 5);
    out.items[0].data = "world";
    out.items[0].len = 5;
    out.n_items = 1;
    CHECK_STATUS(SJ_FAULT, sj_call(c, &out, SJ_FOREVER, &in));
    CHECK(in.fault == 6);
    sj_start(c, OP_ECHO, 0, &out);
    CHECK_STATUS(SJ_DISCONNECTED, sj_call(c, &out, SJ_FOREVER, &in));
    CHECK(sj_reason(c) == SJ_REASON_CLOSED);
    pthread_join(thread, NULL);
    sj_disconnect(c);
}

int main(int argc, char **argv)
{
    sj_server *server;
    sj_connection *c;
    pthread_t thread;
    char name[32];
    int object, fd;
    CHECK(argc == 2);
    alarm(60);
    CHECK_STATUS(SJ_OK, sj_listen(argv[1], NULL, &endpoint));
    sj_endpoint_set_local(endpoint, &object);
    CHECK_STATUS(SJ_OK, sj_server_new(endpoint, &server));
    CHECK(pthread_create(&thread, NULL, run, server) == 0);
    CHECK_STATUS(SJ_OK, sj_connect(argv[1], NULL, &c));
    CHECK(sj_is_local(c) && sj_local(c) == &object);
    check_all(c, argv[1]);
    sj_disconnect(c);
    /* An offered socket is a connection as any other. */
    CHECK_STATUS(SJ_OK, sj_offer(endpoint, &fd));
    snprintf(name, sizeof name, "fd:%d", fd);
    CHECK_STATUS(SJ_OK, sj_connect(name, NULL, &c));
    check_stop(c);
    pthread_join(thread, NULL);
    sj_disconnect(c);
    sj_server_free(server);
    check_end_within_call(argv[1]);
    sj_close(endpoint);
    printf("passed\n");
    return 0;
}
