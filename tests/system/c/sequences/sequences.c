/* `sequences SCRIPT OUT`: reads a script, makes its sessions, starts the actors A and B, and
 * watches them. `--actor N SCRIPT OUT` is an actor after exec, `--child` a program that an actor
 * starts. See sequences.h. */
#include "sequences.h"
#include <linux/futex.h>
#include <sys/prctl.h>

enum { LIMIT_MS = 15000, GUARD_US = 25000, PATIENCE_MS = 100, OVER = 1 << 20, NETWORK_NS = 30000000 };

struct shared *shared;
int actor, is_background;
unsigned char bytes[AMOUNT_MAX + 64];
const char *own_path, *out_path, *script_path;

static volatile sig_atomic_t broken_pipes;

void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fprintf(stderr, "sequences: ");
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    _exit(9);
}

/* ---- transcript ---- */

static char line[4000];
static int line_len;

void say(const char *format, ...) {
    va_list words;
    va_start(words, format);
    int len = vsnprintf(line + line_len, sizeof line - (size_t)line_len, format, words);
    va_end(words);
    line_len += len;
    if (line_len >= (int)sizeof line) fail("a long line");
}

/* Ends the line, and adds it to the transcript as a whole. */
static void end_line(void) {
    say("\n");
    int at = atomic_fetch_add(&shared->log_len, line_len);
    if (at + line_len >= LOG_MAX) fail("a long transcript");
    memcpy(shared->log + at, line, (size_t)line_len);
    line_len = 0;
}

long result(long value) {
    int error = errno;
    if (value == -1) say(" -1 %s", strerrorname_np(error));
    else say(" %ld", value);
    errno = error;
    return value;
}

/* ---- slots and bytes ---- */

struct slot *slot_of(long slot) {
    static struct slot none;
    none = (struct slot){-1, -1, 0};
    return slot >= 0 && slot < SLOTS ? &shared->slots[actor][slot] : &none;
}

int fd_of(long slot) { return slot_of(slot)->fd; }

void put_slot(long slot, int fd, long like) {
    struct slot of = {-1, -1, 0};
    if (like >= 0) of = *slot_of(like);
    of.fd = fd;
    *slot_of(slot) = of;
}

static unsigned char byte_at(unsigned long at, int session, int side) {
    return (unsigned char)(at * 31 + (at >> 8) * 7 + (at >> 16) * 3 + (unsigned)session * 57 + (unsigned)side * 101);
}

void fill(long slot, long amount) {
    const struct slot *own = slot_of(slot);
    unsigned long from = own->session < 0 ? 0 : shared->written[own->session][own->side];
    for (long i = 0; i < amount; i++) bytes[i] = byte_at(from + (unsigned long)i, own->session, own->side);
}

void sent(long slot, long amount) {
    const struct slot *own = slot_of(slot);
    if (own->session >= 0 && amount > 0) shared->written[own->session][own->side] += (unsigned long)amount;
}

void mix(long slot) {
    const struct slot *own = slot_of(slot);
    if (own->session >= 0) shared->is_mixed[own->session][own->side] = 1;
}

static int *full_of(long slot, int is_out) {
    static int none;
    const struct slot *own = slot_of(slot);
    none = 0;
    return own->session < 0 ? &none : &shared->is_full[own->session][is_out ? own->side : !own->side];
}

int is_full_out(long slot) { return *full_of(slot, 1); }

void set_full(long slot, int is_out, int is_full) {
    const struct slot *own = slot_of(slot);
    *full_of(slot, is_out) = is_full;
    if (is_full && own->session >= 0) shared->was_full[own->session][is_out ? own->side : !own->side] = 1;
}

void mix_from(long slot, long source) {
    const struct slot *own = slot_of(slot), *from = slot_of(source);
    mix(slot);
    if (own->session >= 0 && from->session >= 0 && shared->was_full[from->session][!from->side])
        shared->was_full[own->session][own->side] = 1;
}

static long told(long slot, int is_out, long n) {
    int is_certain = n < 0 && errno != EAGAIN && errno != EINTR;
    if (!*full_of(slot, is_out) || is_certain) return result(n);
    say(" ?");
    return n;
}

long sending(long slot, long n) { return told(slot, 1, n); }
long receiving(long slot, long n) { return told(slot, 0, n); }

void blank(long amount) { memset(bytes, 0xee, (size_t)amount + 32); }

static unsigned hash_of(long amount) {
    unsigned hash = 2166136261u;
    for (long i = 0; i < amount; i++) hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

void check(long slot, long amount, int is_peek, int has_no_bytes) {
    const struct slot *own = slot_of(slot);
    long len = amount > 0 ? amount : 0;
    for (long i = len; i < len + 16 && !has_no_bytes; i++)
        if (bytes[i] != 0xee) { say(" OVERRUN"); break; }
    if (amount <= 0) return;
    if (own->session < 0 || shared->is_mixed[own->session][!own->side]) {
        int is_known = own->session < 0 || !shared->was_full[own->session][!own->side];
        if (!has_no_bytes && is_known) say(" #%08x", hash_of(amount));
        return;
    }
    unsigned long *at = &shared->taken[own->session][!own->side];
    for (long i = 0; i < amount && !has_no_bytes; i++)
        if (bytes[i] != byte_at(*at + (unsigned long)i, own->session, !own->side)) {
            say(" WRONG BYTE at %ld", i);
            /* Said once: what follows stands at other places, too. */
            shared->is_mixed[own->session][!own->side] = shared->was_full[own->session][!own->side] = 1;
            break;
        }
    if (!is_peek) *at += (unsigned long)amount;
}

/* ---- signals ---- */

static void on_signal(int signal) { (void)signal; }
static void on_broken_pipe(int signal) { (void)signal; broken_pipes++; }

static void handle_signals(void) {
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = on_broken_pipe, .sa_flags = SA_RESTART}, NULL);
}

static void timer(long us) {
    int error = errno;
    struct itimerval value = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &value, NULL);
    errno = error;
}

void guard(void) {
    if (!is_background) timer(GUARD_US);
    errno = 0;
}

void unguard(void) {
    if (!is_background) timer(0);
}

/* ---- turns ---- */

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_turn(int seen, long ms) {
    struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    syscall(SYS_futex, &shared->turn, FUTEX_WAIT, seen, &span, NULL, 0);
}

static int has_far_host(void) {
    for (int i = 0; i < sessions_count; i++)
        if (!strncmp(session_kinds[i], "far", 3) || !strncmp(session_kinds[i], "near", 4)) return 1;
    return 0;
}

/* Gives the turn to the next step whose actor lives. */
static void pass_turn(int from) {
    int next = from + 1;
    /* A network takes as long as it likes. What is on its way arrives before the next step. */
    if (has_far_host()) syscall(SYS_nanosleep, &(struct timespec){0, NETWORK_NS}, NULL);
    while (next < steps_count && steps[next].actor != HARNESS && !shared->is_alive[steps[next].actor]) next++;
    /* Who watches may have done so already. */
    if (atomic_compare_exchange_strong(&shared->turn, &from, next))
        syscall(SYS_futex, &shared->turn, FUTEX_WAKE, 100, NULL, NULL, 0);
}

static int is_anyone_busy(void) {
    for (int which = 0; which < ACTORS; which++)
        if (shared->busy[which]) return 1;
    return 0;
}

void act(void) {
    int turn, done = -1;
    /* A child has its parent's line so far. */
    line_len = 0;
    /* Who watches ends those that have nothing to do any more: all together, as an end is an event
     * for the others. */
    while ((turn = atomic_load(&shared->turn)) != OVER) {
        if (turn <= done || turn >= steps_count || steps[turn].actor != actor) { wait_turn(turn, 100); continue; }
        broken_pipes = 0;
        is_background = steps[turn].is_background;
        if (is_background) atomic_store(&shared->busy[actor], turn + 1);
        say("%d", turn);
        steps[turn].call->run(steps[turn].args, steps[turn].count);
        if (broken_pipes) say(" SIGPIPE");
        end_line();
        done = turn;
        /* Who watches gives the turn on while there are steps in the background. */
        atomic_store(&shared->busy[actor], 0);
        int must_settle = is_background || is_anyone_busy();
        atomic_store(&shared->done[actor], turn + 1);
        if (!must_settle) pass_turn(turn);
    }
}

static void map_out(void) {
    int fd = open(out_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *shared)) fail("no place for the transcript: %m");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) fail("no memory: %m");
    close(fd);
}

/* ---- sessions ---- */

/* Connects two hosts: the driver's listener is on the other one. The first end is on this one. */
static void connected_hosts(int family, int ends[2]) {
    const char *text = getenv(family == AF_INET ? "SEQUENCES_FAR4" : "SEQUENCES_FAR6");
    int listener = text ? atoi(text) : -1;
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    if (getsockname(listener, (void *)&name, &len)) fail("no listener: %m");
    ends[0] = socket(family, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&name, len)) fail("no connection: %m");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0) fail("nobody connects: %m");
    int on = 1;
    for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Closes the driver's listeners, before their numbers matter. */
static void forget_hosts(void) {
    const char *texts[] = {getenv("SEQUENCES_FAR4"), getenv("SEQUENCES_FAR6")};
    for (int i = 0; i < 2; i++)
        if (texts[i]) close(atoi(texts[i]));
}

static void connected(int family, int ends[2]) {
    struct sockaddr_storage name = {.ss_family = (sa_family_t)family};
    socklen_t len = sizeof name;
    if (family == AF_INET) *(struct sockaddr_in *)&name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (family == AF_INET6) *(struct sockaddr_in6 *)&name = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    socklen_t own = family == AF_UNIX ? sizeof(sa_family_t) : family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (void *)&name, own) || listen(listener, 1) || getsockname(listener, (void *)&name, &len)) fail("no listener: %m");
    ends[0] = socket(family, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&name, len)) fail("no connection: %m");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0) fail("nobody connects: %m");
    close(listener);
    int on = 1;
    for (int i = 0; i < 2 && family != AF_UNIX; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Makes the two ends; A's is the first. */
static void make_session(const char *kind, int ends[2]) {
    int made = 0, pipe_ends[2], is_far = !strncmp(kind, "far", 3), other_ends[2] = {-1, -1};
    if (!strcmp(kind, "tcp4")) connected(AF_INET, ends);
    else if (!strcmp(kind, "tcp6")) connected(AF_INET6, ends);
    else if (!strcmp(kind, "near4") || !strcmp(kind, "far4")) connected_hosts(AF_INET, other_ends);
    else if (!strcmp(kind, "near6") || !strcmp(kind, "far6")) connected_hosts(AF_INET6, other_ends);
    else if (!strcmp(kind, "unix")) connected(AF_UNIX, ends);
    else if (!strcmp(kind, "pair")) made = socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    else if (!strcmp(kind, "pipe") || !strcmp(kind, "epip")) {
        made = pipe(pipe_ends);
        int writes = !strcmp(kind, "pipe");
        ends[0] = pipe_ends[writes], ends[1] = pipe_ends[!writes];
    } else fail("no session is a %s", kind);
    if (other_ends[0] >= 0) ends[is_far] = other_ends[0], ends[!is_far] = other_ends[1];
    if (made) fail("no session: %m");
}

static void start_actor(int which, int ends[SESSIONS][2], int channel[2]) {
    pid_t pid = fork();
    if (pid < 0) fail("fork: %m");
    if (pid) { shared->pids[which] = pid; return; }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    actor = which;
    dup2(channel[which], CHANNEL);
    fcntl(CHANNEL, F_SETFD, 0);
    close(channel[0]), close(channel[1]);
    /* The sessions get the lowest numbers, whatever was open before. */
    for (int i = 0; i < sessions_count; i++) {
        dup2(ends[i][which], CHANNEL + 1 + i);
        close(ends[i][0]), close(ends[i][1]);
    }
    for (int i = 0; i < sessions_count; i++) {
        int fd = fcntl(CHANNEL + 1 + i, F_DUPFD, 3);
        close(CHANNEL + 1 + i);
        shared->slots[which][i] = (struct slot){fd, i, which};
    }
    handle_signals();
    shared->is_alive[which] = 1;
    act();
    _exit(0);
}

/* ---- watching ---- */

/* True if the process has ended, also if nobody has waited for it. */
static int has_ended(pid_t pid) {
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) return 1;
    struct pollfd one = {fd, POLLIN, 0};
    int ended = poll(&one, 1, 0) == 1;
    close(fd);
    return ended;
}

static void bury(int which, int turn) {
    int status = 0;
    atomic_store(&shared->is_alive[which], 0);
    atomic_store(&shared->busy[which], 0);
    say("%d", turn);
    if (waitpid(shared->pids[which], &status, 0) != shared->pids[which]) say(" ended");
    else if (WIFSIGNALED(status)) say(" ended by signal %d", WTERMSIG(status));
    else say(" ended with %d", WEXITSTATUS(status));
    end_line();
    pass_turn(turn);
}

static char state_of(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 'X';
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = 0;
    char *state = strrchr(text, ')');
    return state ? state[2] : 'X';
}

/* Waits until each step in the background is over, or its actor sleeps. */
static void settle(void) {
    for (int asleep = 0; asleep < 4; usleep(500)) {
        int all = 1;
        for (int which = 0; which < ACTORS; which++)
            if (shared->busy[which]) all &= state_of(shared->pids[which]) != 'R';
        asleep = all ? asleep + 1 : 0;
    }
}

/* Gives the turn on if nobody else does: the step is over, or it is one in the background. */
static void watch_step(int which, int turn) {
    int is_over = shared->done[which] > turn, is_background = shared->busy[which] == turn + 1;
    if (!is_over && !is_background) { wait_turn(turn, 1); return; }
    settle();
    if (atomic_load(&shared->turn) == turn) pass_turn(turn);
}

/* Interrupts the call that the actor still makes, if it does not end by itself soon. */
static void interrupt(int which) {
    int busy = atomic_load(&shared->busy[which]);
    for (int ms = 0; busy && shared->busy[which] == busy && !has_ended(shared->pids[which]); ms++) {
        if (ms > 3000) { say("%d HANGS", busy - 1); end_line(); return; }
        usleep(1000);
        if (ms >= PATIENCE_MS && shared->busy[which] == busy) kill(shared->pids[which], SIGALRM);
    }
}

static void watch(void) {
    long until = now_ms() + LIMIT_MS;
    int turn;
    while ((turn = atomic_load(&shared->turn)) < steps_count) {
        int which = steps[turn].actor;
        if (now_ms() > until) { say("%d HANGS", turn); end_line(); return; }
        if (which == HARNESS) {
            say("%d", turn);
            steps[turn].call->run(steps[turn].args, steps[turn].count);
            end_line();
            settle();
            pass_turn(turn);
            continue;
        }
        int busy = atomic_load(&shared->busy[which]);
        if (busy && busy != turn + 1) interrupt(which);
        if (has_ended(shared->pids[which])) {
            if (turn == atomic_load(&shared->turn)) bury(which, turn);
        } else watch_step(which, turn);
    }
    for (int which = 0; which < ACTORS; which++) interrupt(which);
}

static void run(void) {
    int ends[SESSIONS][2], channel[2];
    for (int a = 0; a < ACTORS; a++)
        for (int i = 0; i < SLOTS; i++) shared->slots[a][i] = (struct slot){-1, -1, 0};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel)) fail("no channel: %m");
    for (int i = 0; i < sessions_count; i++) make_session(session_kinds[i], ends[i]);
    forget_hosts();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Nobody has the turn until both have their descriptors. */
    atomic_store(&shared->turn, -1);
    start_actor(0, ends, channel);
    start_actor(1, ends, channel);
    for (int i = 0; i < sessions_count; i++) close(ends[i][0]), close(ends[i][1]);
    close(channel[0]), close(channel[1]);
    long until = now_ms() + LIMIT_MS;
    while (!(shared->is_alive[0] && shared->is_alive[1])) {
        if (now_ms() > until) fail("the actors do not start");
        usleep(200);
    }
    pass_turn(-1);
    watch();
    atomic_store(&shared->turn, OVER);
    for (int a = 0; a < ACTORS; a++)
        if (shared->is_alive[a]) kill(shared->pids[a], SIGKILL);
    say("over");
    end_line();
    for (int at = 0; at < shared->log_len;) {
        ssize_t n = write(1, shared->log + at, (size_t)(shared->log_len - at));
        if (n < 0) fail("no output: %m");
        at += (int)n;
    }
}

int main(int argc, char **argv) {
    own_path = "/proc/self/exe";
    int is_actor = argc == 5 && !strcmp(argv[1], "--actor");
    if (argc == 4 && !strcmp(argv[1], "--child")) return be_child();
    if (!is_actor && argc != 3) return 64;
    script_path = argv[argc - 2], out_path = argv[argc - 1];
    read_script();
    map_out();
    if (!is_actor) { run(); return 0; }
    actor = atoi(argv[2]);
    /* Whoever has the turn next may send a signal. */
    handle_signals();
    /* The line that the process began before exec is lost. */
    int turn = atomic_load(&shared->turn);
    say("%d exec", turn);
    end_line();
    pass_turn(turn);
    act();
    return 0;
}
