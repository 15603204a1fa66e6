/* Sends each word to the server and prints the answer.
 *
 *     ./client /run/user/1000/shout.sock some words
 *
 * A call may take one second. */
#include <sojourn/ipc.h>

#include <stdio.h>
#include <string.h>

static int say(sj_connection *connection, const char *word)
{
    size_t len = strlen(word);
    sj_out out;
    sj_in in;
    sj_start(connection, 1, len, &out);
    memcpy(out.body, word, len);
    sj_status status = sj_call(connection, &out, sj_now_ns() + 1000000000, &in);
    if (status == SJ_OK)
        printf("%.*s\n", (int)in.body_len, (const char *)in.body);
    else
        fprintf(stderr, "%s (%s)\n", sj_status_text(status), sj_reason_text(sj_reason(connection)));
    return status != SJ_OK;
}

int main(int argc, char **argv)
{
    sj_connection *connection;
    int failed = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: %s ADDRESS WORD...\n", argv[0]);
        return 2;
    }
    if (sj_connect(argv[1], NULL, &connection) != SJ_OK) {
        fprintf(stderr, "%s\n", sj_error());
        return 1;
    }
    for (int i = 2; i < argc && !failed; i++)
        failed = say(connection, argv[i]);
    sj_disconnect(connection);
    return failed;
}
