/* Cases in which the session server is killed while sessions are moved, and is started again. */
#include "conform.h"

CASE(killed, ANY, "m") {
    works("before");
    kill_server();
    works("without");
    for (int i = 0; i < 20; i++) {
        NEED(kind == POUT || (peer(OP_SEND, 1000) == 1000 && get(1000) == 1000));
        NEED(kind == PIN || (put(1000) == 1000 && peer(OP_RECV, 1000) == 1000));
    }
    start_server();
    works("with another");
}

CASE(killed_and_closed, ANY, "m") {
    kill_server();
    if (kind != PIN) {
        SAY(put(1000));
        SAY(close(S));
        SAY_PEER(OP_DRAIN, 0);
    } else {
        SAY_PEER(OP_SEND, 1000);
        SAY_PEER(OP_CLOSE, 0);
        SAY(get(2000));
    }
    start_server();
}

CASE(killed_with_bytes_on_the_way, ANY, "m") {
    if (kind != POUT) SAY_PEER(OP_SEND, 5000);
    if (kind != PIN) SAY(put(5000));
    kill_server();
    pid_t child = fork();
    if (child == 0) {
        if (kind != POUT) SAY(get(5000));
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (kind != PIN) SAY_PEER(OP_RECV, 5000);
    start_server();
}

CASE(killed_and_the_peer_too, ANY, "m") {
    kill_server();
    if (kind != POUT) SAY_PEER(OP_SEND, 5000);
    kill_peer();
    if (kind != POUT) SAY(get(6000));
    signal(SIGPIPE, SIG_IGN);
    if (kind != PIN && !(kind & TCP)) {
        /* Waits until this process has learned of the peer's death (docs/use/linux-differences.md).
         */
        struct pollfd one = {S, 0, 0};
        while (poll(&one, 1, 1000) == 0) {}
        SAY(put(10));
    }
    start_server();
}

CASE(another_brings_it_home, ANY, "m") {
    works("before");
    kill_server();
    works("without");
    start_server();
    /* Libraries look for a server every few seconds and report their sessions to it. */
    nap(getenv("CONFORM_HARNESS") ? 2600 : 1);
    go_home();
    works("at home");
    warm();
    works("moved again");
}

CASE(none_at_first, TCP | UNIX, "k") {
    kill_server();
    works("without");
    start_server();
    works("with");
}
