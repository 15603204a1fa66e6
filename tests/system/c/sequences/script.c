/* Reads a script. See sequences.h. */
#include "sequences.h"

struct step steps[STEPS_MAX];
int steps_count, sessions_count;
const char *session_kinds[SESSIONS];

static const struct { const char *name; long value; } names[] = {
#define N(name) {#name, name}
    N(MSG_PEEK), N(MSG_TRUNC), N(MSG_WAITALL), N(MSG_DONTWAIT), N(MSG_OOB), N(MSG_MORE), N(MSG_NOSIGNAL), N(MSG_CTRUNC), N(MSG_EOR), N(MSG_CMSG_CLOEXEC),
    N(MSG_WAITFORONE), N(MSG_DONTROUTE), N(O_NONBLOCK), N(O_APPEND), N(O_ASYNC), N(O_DIRECT), N(FD_CLOEXEC), N(O_CLOEXEC), N(SHUT_RD), N(SHUT_WR), N(SHUT_RDWR),
    N(FIONREAD), N(SIOCOUTQ), N(SIOCATMARK), N(FIONBIO), N(FIOASYNC), N(FIOCLEX), N(FIONCLEX), N(TIOCGWINSZ), N(SIOCINQ),
    N(SOL_SOCKET), N(IPPROTO_TCP), N(SO_ERROR), N(SO_LINGER), N(TCP_CORK), N(TCP_NODELAY), N(TCP_QUICKACK), N(SO_RCVLOWAT), N(SO_RCVBUF), N(SO_SNDBUF), N(SO_TYPE),
    N(SO_ACCEPTCONN), N(SO_DOMAIN), N(SO_PROTOCOL), N(SO_KEEPALIVE), N(SO_REUSEADDR), N(SO_RCVTIMEO), N(SO_SNDTIMEO), N(SO_PEERCRED), N(SO_PASSCRED), N(SO_BROADCAST),
    N(SO_OOBINLINE), N(SO_PEEK_OFF), N(SO_TIMESTAMP), N(TCP_MAXSEG), N(TCP_DEFER_ACCEPT), N(TCP_USER_TIMEOUT), N(SO_PRIORITY),
    N(POLLIN), N(POLLOUT), N(POLLPRI), N(POLLRDHUP), N(POLLRDNORM), N(POLLWRNORM), N(POLLRDBAND), N(POLLWRBAND), N(POLLERR), N(POLLHUP), N(POLLNVAL),
    N(EPOLLIN), N(EPOLLOUT), N(EPOLLPRI), N(EPOLLRDHUP), N(EPOLLET), N(EPOLLONESHOT), N(EPOLLEXCLUSIVE), N(EPOLLERR), N(EPOLLHUP),
    N(EPOLL_CTL_ADD), N(EPOLL_CTL_MOD), N(EPOLL_CTL_DEL),
    N(SPLICE_F_NONBLOCK), N(SPLICE_F_MORE), N(SPLICE_F_MOVE), N(SEEK_SET), N(SEEK_CUR), N(SEEK_END), N(CLOSE_RANGE_CLOEXEC), N(CLOSE_RANGE_UNSHARE),
    N(F_GETFD), N(F_SETFD), N(F_GETFL), N(F_SETFL), N(F_GETOWN), N(F_DUPFD), N(F_DUPFD_CLOEXEC), N(F_SETPIPE_SZ), N(F_GETPIPE_SZ), N(F_GETLK),
#undef N
};

static long value_of(const char *word, size_t len) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == len && !strncmp(names[i].name, word, len)) return names[i].value;
    char *end;
    long value = strtol(word, &end, 0);
    if (end != word + len) fail("what is %.*s?", (int)len, word);
    return value;
}

static long argument(const char *word) {
    if (word[0] == 's' && word[1] >= '0' && word[1] <= '9') return atol(word + 1);
    if (word[0] >= 'A' && word[0] <= 'F' && !word[1]) return word[0] - 'A';
    long sum = 0;
    for (const char *at = word;;) {
        const char *end = strchrnul(at, '|');
        sum |= value_of(at, (size_t)(end - at));
        if (!*end) return sum;
        at = end + 1;
    }
}

static const struct call *call_of(const char *name) {
    const struct call *lists[] = {data_calls, descriptor_calls, option_calls, wait_calls, process_calls, extra_calls};
    for (int i = 0; i < 6; i++)
        for (const struct call *call = lists[i]; call->name; call++)
            if (!strcmp(call->name, name)) return call;
    fail("what does %s do?", name);
}

static void read_line(char *text) {
    char *rest, *word = strtok_r(text, " \n", &rest);
    if (!word || word[0] == '#') return;
    const char *name = strtok_r(NULL, " \n", &rest);
    if (!strcmp(word, "session")) {
        if (sessions_count == SESSIONS) fail("many sessions");
        session_kinds[sessions_count++] = strdup(name);
        return;
    }
    if (steps_count == STEPS_MAX) fail("a long script");
    struct step *step = &steps[steps_count++];
    step->actor = word[0] == 'H' ? HARNESS : word[0] - 'A';
    step->is_background = word[1] == '&';
    step->call = call_of(name);
    for (const char *next; (next = strtok_r(NULL, " \n", &rest));) {
        if (step->count == ARGS_MAX) fail("many arguments");
        step->args[step->count++] = argument(next);
    }
}

void read_script(void) {
    FILE *file = fopen(script_path, "re");
    char text[1000];
    if (!file) fail("no script: %m");
    while (fgets(text, sizeof text, file)) read_line(text);
    fclose(file);
}
