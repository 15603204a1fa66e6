/* `crowd KIND RECORDS [until FILE] [fork]`: many threads of two processes at the two ends of one
 * session. See crowd.h.
 *
 * The output is the number of bytes that went through. On a failed check the program prints a line
 * and exits with status 1. */
#include "crowd.h"

enum { LIMIT_S = 40 };

int is_tcp, is_pipe;
long records;
const char *until;
static const char *kind;

void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fprintf(stderr, "crowd %s: ", kind);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    _exit(1);
}

static void hangs(int signal) {
    (void)signal;
    static const char text[] = "crowd: hangs\n";
    if (write(2, text, sizeof text - 1)) {}
    _exit(2);
}

static void watch(void) {
    signal(SIGALRM, hangs);
    alarm(LIMIT_S);
}

/* Makes a listener on a loopback address or a Unix name of its own, and returns its address. */
static int listen_at(struct sockaddr_storage *name, socklen_t *len) {
    memset(name, 0, sizeof *name);
    *len = sizeof(struct sockaddr_in6);
    if (!strcmp(kind, "unix")) {
        /* Autobind: the kernel chooses an abstract name (unix(7)). */
        name->ss_family = AF_UNIX, *len = sizeof(sa_family_t);
    } else if (!strcmp(kind, "tcp6")) {
        *(struct sockaddr_in6 *)name = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    } else {
        *(struct sockaddr_in *)name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        *len = sizeof(struct sockaddr_in);
    }
    int listener = socket(name->ss_family, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (void *)name, *len) || listen(listener, 1)) fail("no listener: %m");
    *len = sizeof *name;
    if (getsockname(listener, (void *)name, len)) fail("no name: %m");
    return listener;
}

static void make_session(int ends[2]) {
    if (is_pipe || !strcmp(kind, "pair")) {
        if (is_pipe ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) fail("no session: %m");
        return;
    }
    struct sockaddr_storage name;
    socklen_t len;
    int listener = listen_at(&name, &len);
    ends[0] = socket(name.ss_family, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&name, len)) fail("no connection: %m");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0) fail("nobody connects: %m");
    close(listener);
}

long balance(const struct table *table, const char *what) {
    long sum = 0;
    for (int i = 0; i <= CHILDREN; i++) {
        long written = table->written[i], found = table->found[i];
        if (written != found) fail("%s: writer %d wrote %ld bytes, %ld were found", what, i, written, found);
        sum += found;
    }
    return sum;
}

static pid_t start(int own, int other, struct table *to_us, struct table *from_us, int forks) {
    pid_t pid = fork();
    if (pid) return pid;
    close(other);
    watch();
    /* A pipe has one direction, from its second end to its first, so each process lacks one of the
     * two. */
    struct end end = {is_pipe && !to_us ? -1 : own, is_pipe && !from_us ? -1 : own, to_us, from_us};
    use_end(&end, forks);
    exit(0);
}

int main(int argc, char **argv) {
    if (argc < 3) return 64;
    kind = argv[1], records = atol(argv[2]);
    if (records > RECORDS_MAX) return 64;
    int forks = 0, ends[2], status;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "until")) until = argv[++i];
        else if (!strcmp(argv[i], "fork")) forks = 1;
    }
    is_tcp = !strncmp(kind, "tcp", 3), is_pipe = !strcmp(kind, "pipe");
    struct table *tables = mmap(NULL, 2 * sizeof *tables, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tables == MAP_FAILED) fail("no memory: %m");
    make_session(ends);
    pid_t first = start(ends[0], ends[1], &tables[0], is_pipe ? NULL : &tables[1], forks);
    pid_t second = start(ends[1], ends[0], is_pipe ? NULL : &tables[1], &tables[0], forks);
    close(ends[0]);
    close(ends[1]);
    watch();
    for (int i = 0; i < 2; i++)
        if (waitpid(i ? second : first, &status, 0) < 0 || status != 0) fail("side %d: status %x", i, status);
    printf("%ld\n", balance(&tables[0], "to the first") + balance(&tables[1], "to the second"));
    return 0;
}
