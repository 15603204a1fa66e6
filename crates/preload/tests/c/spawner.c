// pidfd_spawn(3) as a library has it whose C library is older: a child of which nobody hears.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int spawns(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[], char *const[]);

static int started(const char *name, int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, char *const words[], char *const variables[]) {
    pid_t pid;
    int error = ((spawns *)dlsym(dlopen("libc.so.6", RTLD_NOW), name))(&pid, path, actions, 0, words, variables);
    if (!error) *pidfd = syscall(SYS_pidfd_open, pid, 0);
    return error;
}

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
    return started("posix_spawn", pidfd, path, actions, words, variables);
}

int pidfd_spawnp(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
    return started("posix_spawnp", pidfd, path, actions, words, variables);
}
