/* New programs whose environment was emptied by their parent: prints the library's variables that
   they find. */
#include "check.h"

extern char **environ;

static void say(void) {
    int settings = 0, others = 0, mapped = 0;
    char line[512];
    for (char **at = environ; *at; at++) settings += !strncmp(*at, "SOJOURN_", 8), others += !strncmp(*at, "OTHER", 5);
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f)) mapped |= strstr(line, "libsojourn_preload.so") != 0;
    fclose(f);
    char *list = getenv("LD_PRELOAD");
    printf("%s %d %d %s\n", mapped ? "with" : "without", settings > 0, others, list && strchr(list, ':') ? "both" : "one");
}

static void start(const char *how, char **words, char **variables) {
    pid_t c;
    int status;
    if (!strcmp(how, "spawn")) CHECK(!posix_spawn(&c, "/proc/self/exe", 0, 0, words, variables));
    else if (!strcmp(how, "spawnp")) CHECK(!posix_spawnp(&c, words[0], 0, 0, words, variables));
    else if (!strcmp(how, "vfork")) {
        if ((c = vfork()) == 0) execve("/proc/self/exe", words, variables), _exit(9);
    } else if ((c = fork()) == 0) {
        if (!strcmp(how, "execve")) execve("/proc/self/exe", words, variables);
        if (!strcmp(how, "execvpe")) execvpe(words[0], words, variables);
        if (!strcmp(how, "user")) CHECK(!setresuid(1, 1, 1)), execve("/proc/self/exe", words, variables);
        if (!strcmp(how, "cleared")) clearenv(), execv("/proc/self/exe", words);
        if (!strcmp(how, "written")) {
            /* Overwritten as by programs that change their line in ps(1). */
            for (char **at = environ; *at; at++) memset(*at, 0, strlen(*at));
            *environ = 0, execvp(words[0], words);
        }
        if (!strcmp(how, "bad")) CHECK(execve((char *)8, words, variables) && errno == EFAULT && execve(0, words, variables) && errno == EFAULT), say(), fflush(stdout), _exit(0);
        if (!strcmp(how, "badlist")) CHECK(execve("/proc/self/exe", words, (char **)8) && errno == EFAULT), say(), fflush(stdout), _exit(0);
        _exit(9);
    }
    CHECK(waitpid(c, &status, 0) == c), SAY(WEXITSTATUS(status));
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "say")) return say(), 0;
    char *none[] = {0}, *other[] = {"OTHER=1", "LD_PRELOAD=libm.so.6", 0};
    for (int i = 1; i < count; i++) {
        char *again[] = {words[0], "say", 0};
        printf("%s: ", words[i]), fflush(stdout), start(words[i], again, none);
        printf("%s: ", words[i]), fflush(stdout), start(words[i], again, other);
    }
    return 0;
}
