/* Server that answers each request with its text in capitals.
 *
 *     ./server /run/user/1000/shout.sock
 *
 * One thread with one loop suffices: sending an answer and waiting for the next request is one
 * call. */
#include <sojourn/ipc.h>

#include <ctype.h>
#include <stdio.h>

static void shout(sj_server *server, sj_event *event, sj_out *out)
{
    sj_reply_start(server, &event->token, event->in.body_len, out);
    for (size_t i = 0; i < event->in.body_len; i++)
        out->body[i] = (unsigned char)toupper(event->in.body[i]);
}

int main(int argc, char **argv)
{
    sj_endpoint *endpoint;
    sj_server *server;
    sj_event event;
    sj_out out;
    if (argc != 2) {
        fprintf(stderr, "usage: %s ADDRESS\n", argv[0]);
        return 2;
    }
    if (sj_listen(argv[1], NULL, &endpoint) != SJ_OK || sj_server_new(endpoint, &server) != SJ_OK) {
        fprintf(stderr, "%s\n", sj_error());
        return 1;
    }
    printf("ready\n");
    fflush(stdout);
    sj_status status;
    int ready = 0;
    while ((status = sj_reply_wait(server, ready ? &out : NULL, SJ_FOREVER, &event)) == SJ_OK) {
        ready = event.kind == SJ_EVENT_CALL;
        if (ready)
            shout(server, &event, &out);
        else if (event.kind == SJ_EVENT_GONE)
            fprintf(stderr, "client %u: %s\n", event.client.index, sj_reason_text(event.reason));
    }
    fprintf(stderr, "%s\n", sj_status_text(status));
    sj_server_free(server);
    sj_close(endpoint);
    return 1;
}
