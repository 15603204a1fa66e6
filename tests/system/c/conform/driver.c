/* Runs all cases of a program, each in a process of its own with a deadline, several at a time, and
 * prints their transcripts in order. See conform.h. */
#include "conform.h"
#include <sys/prctl.h>

void begin_case(const char *kind_word, int kind_bit, char phase_letter);
void end_case(void);
int be_peer(int end, pid_t parent);

struct entry { const char *name; int kinds; const char *phases; void (*run)(void); };
struct role { const char *name; int (*run)(int, char **); };
struct job { const struct entry *entry; int kind; char phase; pid_t pid; int out; long until; int status; int done; };

enum { CASES_MAX = 200, JOBS_MAX = 6000, LIMIT_MS = 15000 };
static struct entry entries[CASES_MAX];
static struct role roles[40];
static struct job jobs[JOBS_MAX];
static int entries_count, roles_count, jobs_count;

static const struct { int bit; const char *name; } kinds[] = {
    {TCP4, "tcp4"}, {TCP6, "tcp6"}, {UNIX, "unix"}, {PAIR, "pair"}, {PIN, "pipe-in"}, {POUT, "pipe-out"},
};

void enlist(const char *name, int which, const char *phases, void (*run)(void)) {
    if (entries_count == CASES_MAX) abort();
    entries[entries_count++] = (struct entry){name, which, phases, run};
}

void enlist_role(const char *name, int (*run)(int, char **)) {
    if (roles_count == 40) abort();
    roles[roles_count++] = (struct role){name, run};
}

static const char *name_of(int bit) {
    for (int i = 0; i < 6; i++)
        if (kinds[i].bit == bit) return kinds[i].name;
    return "?";
}

static int run_case(const char *name, const char *kind_word, char letter) {
    for (int i = 0; i < entries_count; i++) {
        if (strcmp(entries[i].name, name)) continue;
        for (int k = 0; k < 6; k++)
            if (!strcmp(kinds[k].name, kind_word)) {
                begin_case(kind_word, kinds[k].bit, letter);
                entries[i].run();
                end_case();
                return 0;
            }
    }
    return 95;
}

static void start(struct job *job) {
    job->out = memfd_create("said", MFD_CLOEXEC);
    job->until = now_ms() + LIMIT_MS;
    job->pid = fork();
    if (job->pid) return;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(job->out, 1);
    char letter[2] = {job->phase, 0};
    execl(self_path, self_path, "--case", job->entry->name, name_of(job->kind), letter, (char *)NULL);
    _exit(94);
}

static void whereabouts(pid_t pid) {
    char command[200];
    snprintf(command, sizeof command,
             "for p in %d $(ps -o pid= --ppid %d); do for t in /proc/$p/task/*; do echo \"# $t $(cat $t/wchan) $(cat $t/syscall)\" >&2; done; done",
             pid, pid);
    if (getenv("CONFORM_VERBOSE") && system(command)) {}
    /* For debugging a case that hangs: a command to run before the case is killed, with its process
     * ID. */
    if (getenv("CONFORM_HUNG")) {
        snprintf(command, sizeof command, "%s %d", getenv("CONFORM_HUNG"), pid);
        if (system(command)) {}
    }
}

static void print(struct job *job) {
    char *text = mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, job->out, 0);
    off_t len = lseek(job->out, 0, SEEK_END);
    if (len > 1 << 20) len = 1 << 20;
    for (off_t at = 0; at < len;) {
        char *end = memchr(text + at, '\n', len - at);
        int part = end ? (int)(end - (text + at)) : (int)(len - at);
        printf("%s/%s/%c: %.*s\n", job->entry->name, name_of(job->kind), job->phase, part, text + at);
        at += part + 1;
    }
    if (job->done == 2) printf("%s/%s/%c: HANGS\n", job->entry->name, name_of(job->kind), job->phase);
    else if (job->status) printf("%s/%s/%c: ended %s %d\n", job->entry->name, name_of(job->kind), job->phase,
                                 WIFSIGNALED(job->status) ? "by signal" : "with", WIFSIGNALED(job->status) ? WTERMSIG(job->status) : WEXITSTATUS(job->status));
    munmap(text, 1 << 20);
    close(job->out);
    fflush(stdout);
}

/* Collects the jobs that have ended or exceed their deadline; returns the number that still run. */
static int reap(int from, int to) {
    int running = 0;
    for (int i = from; i < to; i++) {
        struct job *job = &jobs[i];
        if (job->done) continue;
        if (waitpid(job->pid, &job->status, WNOHANG) == job->pid) job->done = 1;
        else if (now_ms() > job->until) {
            whereabouts(job->pid);
            kill(-job->pid, SIGKILL);
            waitpid(job->pid, &job->status, 0);
            job->done = 2;
        } else { running++; continue; }
        kill(-job->pid, SIGKILL); /* Ends processes that the case has left behind. */
    }
    return running;
}

static void run_jobs(int at_once) {
    int started = 0, printed = 0;
    while (printed < jobs_count) {
        int running = reap(printed, started);
        while (running < at_once && started < jobs_count && started - printed < 500) { start(&jobs[started++]); running++; }
        while (printed < started && jobs[printed].done) print(&jobs[printed++]);
        struct timespec span = {0, 300000};
        nanosleep(&span, NULL);
    }
}

/* Makes a job for each case that the arguments `[CASE [KIND [PHASE]]]` select. */
static void choose(int argc, char **argv) {
    for (int i = 0; i < entries_count; i++)
        for (int k = 0; k < 6; k++)
            for (const char *p = entries[i].phases; *p; p++) {
                if (!(entries[i].kinds & kinds[k].bit)) continue;
                if (argc > 1 && strcmp(argv[1], entries[i].name)) continue;
                if (argc > 2 && strcmp(argv[2], kinds[k].name)) continue;
                if (argc > 3 && argv[3][0] != *p) continue;
                if (jobs_count == JOBS_MAX) abort();
                jobs[jobs_count++] = (struct job){.entry = &entries[i], .kind = kinds[k].bit, .phase = *p};
            }
}

int main(int argc, char **argv) {
    ssize_t len = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
    if (len < 0) return 93;
    static_path = getenv("CONFORM_STATIC");
    if (argc == 5 && !strcmp(argv[1], "--case")) return run_case(argv[2], argv[3], argv[4][0]);
    if (argc == 4 && !strcmp(argv[1], "--peer")) return be_peer(atoi(argv[2]), atoi(argv[3]));
    if (argc > 2 && !strcmp(argv[1], "--role"))
        for (int i = 0; i < roles_count; i++)
            if (!strcmp(roles[i].name, argv[2])) return roles[i].run(argc - 2, argv + 2);
    const char *repeat = getenv("CONFORM_REPEAT");
    for (int n = repeat ? atoi(repeat) : 1; n > 0; n--) choose(argc, argv);
    const char *at_once = getenv("CONFORM_AT_ONCE");
    run_jobs(at_once ? atoi(at_once) : 4);
    return 0;
}
