/* Measures how much of the caller's stack one call uses. `stack NAME STATE [KIND]` makes the call
   on a stack of its own. The parent process shares that stack, and afterwards finds the lowest byte
   that was written; so calls that never return can be measured, too. `stack list` prints the names
   of the calls. States: `fresh`, the first call of its kind; `away`, on a session that is away from
   the kernel (if there is a server), with unread bytes at both ends; `waits`, the same, but the
   bytes arrive later; `moves`, repeatedly while the session moves. */
#include "check.h"
#include <sys/resource.h>
#include <aio.h>
#include <argp.h>
#include <dlfcn.h>
#include <error.h>
#include <grp.h>
#include <mntent.h>
#include <pwd.h>
#include <shadow.h>
#include <sys/prctl.h>
#include <wchar.h>
#include <wordexp.h>

enum { LEN = 512 << 10 };
static unsigned char *area; /* the stack; its last page holds shared data */
static long (*fn)();
static int s, told[2], answers[2], door, p[2], ep, file, alive[2];
static pid_t peer;
static char b[256], *line = b;
static wchar_t wide[256];
static size_t room = sizeof b;
static FILE *stream;
static struct { unsigned gp, fp; void *over, *save; } va; /* a va_list of words only */
static long words[8];
static fd_set in, out;
static struct pollfd pf[40];
static struct epoll_event ev[4];
static struct iovec v[2];
static struct msghdr m;
static struct mmsghdr mm[2];
static struct timeval tv;
static struct rlimit few = {60, 60}; /* limit on processes */
static struct timespec ts;
static struct sigaction sa;
static struct aiocb cb, *cbs[1] = {&cb};
static struct passwd pw = {"a", "x", 1, 1, "a", "/", "/"}, *pwp;
static struct group gr = {"a", "x", 1, (char *[]){0}}, *grp;
static struct spwd sp = {"a", "x"}, *spp;
static struct mntent mnt = {"a", "b", "c", "d", 0, 0};
static struct argp argp;
static fpos_t pos;
static wordexp_t we;
static pthread_t thread;
static pid_t child;
static void *map;
static char *argv[] = {"true", 0}, *no_env[] = {0};
static posix_spawn_file_actions_t actions;
static struct sockaddr_in at;
static socklen_t at_len = sizeof at;
static sigset_t none;

static void handler(int n) { (void)n; }
static int nothing(void *a) { return (void)a, 0; }
static void *sleeper(void *a) { pause(); return a; }

/* Each call: the place of its session, the peer's bytes before the call, and the call. Places: S,
   any number; F, the same, and the call forks; H, the same, and the call ends a thread; I, number
   0; O, number 1; P, the matching end of a pipe is a session, too. */
#define ONES "1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n1 1\n"
#define CALLS(X)                                                                                                       \
    X(read, S, fn(s, b, 8)) X(__read, S, fn(s, b, 8)) X(__read_chk, S, fn(s, b, 8, sizeof b))                          \
    X(write, S, fn(s, b, 8)) X(__write, S, fn(s, b, 8)) X(readv, S, fn(s, v, 2)) X(writev, S, fn(s, v, 2))             \
    X(preadv2, S, fn(s, v, 2, -1L, 0)) X(preadv64v2, S, fn(s, v, 2, -1L, 0))                                           \
    X(pwritev2, S, fn(s, v, 2, -1L, 0)) X(pwritev64v2, S, fn(s, v, 2, -1L, 0))                                         \
    X(recv, S, fn(s, b, 8, 0)) X(__recv_chk, S, fn(s, b, 8, sizeof b, 0)) X(recvfrom, S, fn(s, b, 8, 0, 0, 0))         \
    X(__recvfrom_chk, S, fn(s, b, 8, sizeof b, 0, 0, 0)) X(recvmsg, S, fn(s, &m, 0))                                   \
    X(recvmmsg, S, fn(s, mm, 2, MSG_DONTWAIT, 0)) X(send, S, fn(s, b, 8, 0)) X(__send, S, fn(s, b, 8, 0))              \
    X(sendto, S, fn(s, b, 8, 0, 0, 0)) X(sendmsg, S, fn(s, &m, 0)) X(sendmmsg, S, fn(s, mm, 2, 0))                     \
    X(__sendmmsg, S, fn(s, mm, 2, 0)) X(sendfile, S, fn(s, file, 0, 8)) X(sendfile64, S, fn(s, file, 0, 8))            \
    X(splice, S, fn(s, 0, p[1], 0, 8, 0)) X(tee, P, fn(p[0], p[1], 8, SPLICE_F_NONBLOCK))                              \
    X(vmsplice, P, fn(p[1], v, 1, 0)) X(syscall, S, fn(SYS_write, s, b, 8))                                            \
    X(poll, S, fn(pf, 1, 100)) X(__poll, S, fn(pf, 40, 100)) X(__poll_chk, S, fn(pf, 1, 100, sizeof pf))               \
    X(ppoll, S, fn(pf, 40, &ts, &none)) X(__ppoll_chk, S, fn(pf, 1, &ts, 0, sizeof pf))                                \
    X(select, S, fn(1024, &in, &out, 0, &tv)) X(__select, S, fn(s + 1, &in, 0, 0, &tv))                                \
    X(pselect, S, fn(s + 1, &in, &out, 0, &ts, &none)) X(epoll_create, S, fn(1)) X(epoll_create1, S, fn(0))            \
    X(epoll_ctl, S, fn(ep, EPOLL_CTL_ADD, s, ev)) X(epoll_wait, E, fn(ep, ev, 4, 100))                                 \
    X(epoll_pwait, E, fn(ep, ev, 4, 100, &none)) X(epoll_pwait2, E, fn(ep, ev, 4, &ts, &none))                         \
    X(close, S, fn(s)) X(__close, S, fn(s)) X(close_range, S, fn(s, s, 0)) X(closefrom, S, fn(s))                      \
    X(dup, S, fn(s)) X(dup2, S, fn(s, 200)) X(__dup2, S, fn(p[0], s)) X(dup3, S, fn(s, 200, O_CLOEXEC))                \
    X(fcntl, S, fn(s, F_DUPFD, 100)) X(__fcntl, S, fn(s, F_SETFL, O_NONBLOCK)) X(fcntl64, S, fn(s, F_GETFL))           \
    X(ioctl, S, fn(s, FIONREAD, &room)) X(pipe, S, fn(b)) X(__pipe, S, fn(b)) X(pipe2, S, fn(b, O_CLOEXEC))            \
    X(socket, S, fn(AF_INET, SOCK_STREAM, 0)) X(__socket, S, fn(AF_UNIX, SOCK_STREAM, 0))                              \
    X(socketpair, S, fn(AF_UNIX, SOCK_STREAM, 0, b)) X(accept, D, fn(door, 0, 0)) X(accept4, D, fn(door, 0, 0, 0))     \
    X(connect, S, fn(file, &at, sizeof at)) X(__connect, S, fn(s, &at, sizeof at)) X(shutdown, S, fn(s, SHUT_WR))      \
    X(setsockopt, S, fn(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv))                                                   \
    X(getsockopt, S, fn(s, SOL_SOCKET, SO_ERROR, b, &at_len)) X(open, S, fn("/dev/null", O_RDWR))                      \
    X(open64, S, fn("/dev/null", O_RDWR)) X(__open, S, fn("/dev/null", O_RDWR))                                        \
    X(__open64, S, fn("/dev/null", O_RDWR)) X(__open_2, S, fn("/dev/null", O_RDWR))                                    \
    X(__open64_2, S, fn("/dev/null", O_RDWR)) X(openat, S, fn(AT_FDCWD, "/dev/null", O_RDWR))                          \
    X(openat64, S, fn(AT_FDCWD, "/proc/self/fd/0", O_RDWR)) X(__openat_2, S, fn(AT_FDCWD, "/dev/null", O_RDWR))        \
    X(__openat64_2, S, fn(AT_FDCWD, "/dev/null", O_RDWR)) X(creat, S, fn("/dev/null", 0600))                           \
    X(creat64, S, fn("/dev/null", 0600)) X(fopen, S, fn("/dev/null", "r")) X(fopen64, S, fn("/dev/null", "r"))         \
    X(fdopen, S, fn(s, "r")) X(freopen, I, fn("/dev/null", "r", stdin)) X(freopen64, O, fn("/dev/null", "w", stdout))  \
    X(fclose, I, fn(stdin)) X(fcloseall, I, fn()) X(popen, S, fn("true", "r")) X(pclose, Q, fn(stream))                \
    X(mprotect, S, fn(map, 4096, PROT_READ)) X(munmap, S, fn(map, 4096)) X(mremap, S, fn(map, 4096, 8192, 1))          \
    X(truncate, S, fn("/none", 0L)) X(truncate64, S, fn("/none", 0L)) X(ftruncate, S, fn(-1, 0L))                      \
    X(ftruncate64, S, fn(-1, 0L)) X(shmat, S, fn(-1, 0L, 0)) X(shmdt, S, fn(0L))                                       \
    X(pkey_mprotect, S, fn(map, 4096, PROT_READ, -1)) X(backtrace_symbols_fd, S, fn(&map, 1, s))                       \
    X(madvise, S, fn(map, 4096L, MADV_NORMAL)) X(process_madvise, S, fn(-1, 0L, 0L, 0, 0))                             \
    X(brk, S, fn(sbrk(0))) X(sbrk, S, fn(-0L)) X(__register_atfork, S, fn(0L, 0L, 0L, 0L))                             \
    X(__backtrace_symbols_fd, S, fn(&map, 1, s))                                                                       \
    X(_exit, S, fn(0)) X(_Exit, S, fn(0)) X(quick_exit, S, fn(0)) X(execl, S, fn("/bin/true", "true", (char *)0))                              \
    X(execle, S, fn("/bin/true", "true", (char *)0, no_env)) X(execlp, S, fn("true", "true", (char *)0))               \
    X(execv, S, fn("/bin/true", argv)) X(execve, S, fn("/bin/true", argv, no_env))                                     \
    X(execveat, S, fn(AT_FDCWD, "/bin/true", argv, no_env, 0)) X(execvp, S, fn("true", argv))                          \
    X(execvpe, S, fn("true", argv, no_env)) X(fexecve, S, fn(file, argv, no_env))                                      \
    X(posix_spawn, S, fn(&child, "/bin/true", 0, 0, argv, no_env))                                                     \
    X(posix_spawnp, S, fn(&child, "true", 0, 0, argv, environ))                                                        \
    X(pidfd_spawn, S, fn(&child, "/bin/true", 0, 0, argv, no_env))                                                     \
    X(pidfd_spawnp, S, fn(&child, "true", 0, 0, argv, environ))                                                        \
    X(posix_spawn_file_actions_adddup2, S, fn(&actions, s, 9)) X(system, S, fn("true")) X(wordexp, S, fn("a", &we, 0)) \
    X(fork, F, (int)fn() ? 0 : (_exit(0), 0)) X(__fork, F, (int)fn() ? 0 : (_exit(0), 0))                                     \
    X(_Fork, F, (int)fn() ? 0 : (_exit(0), 0)) X(vfork, S, fn() ? 0 : (_exit(0), 0))                                        \
    X(__vfork, S, fn() ? 0 : (_exit(0), 0)) X(clone, S, fn(nothing, area + LEN / 4, SIGCHLD, 0))                       \
    X(__clone, S, fn(nothing, area + LEN / 4, SIGCHLD, 0)) X(daemon, F, fn(1, 1)) X(login_tty, S, fn(s))               \
    X(forkpty, F, (int)fn(b, 0, 0, 0) ? 0 : (_exit(0), 0)) X(unshare, S, fn(0)) X(setns, S, fn(-1, 0))                      \
    X(chroot, S, fn("/none")) X(pivot_root, S, fn("/none", "/none")) X(setuid, S, fn(-1)) X(setreuid, S, fn(-1, -1))   \
    X(setresuid, S, fn(-1, -1, -1)) X(setrlimit, S, fn(RLIMIT_NPROC, &few)) X(setrlimit64, S, fn(RLIMIT_NPROC, &few))  \
    X(prlimit, S, fn(0, RLIMIT_NPROC, &few, 0)) X(prlimit64, S, fn(0, RLIMIT_NPROC, &few, 0))                          \
    X(pthread_exit, H, fn(0)) X(thrd_exit, H, fn(0)) X(mq_notify, S, fn(-1, 0))                                        \
    X(dlopen, S, fn("libm.so.6", RTLD_NOW)) X(dlmopen, S, fn(LM_ID_BASE, "libm.so.6", RTLD_NOW))                       \
    X(mmap, S, fn(0L, 4096L, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L))                                          \
    X(mmap64, S, fn(0L, 4096L, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L))                                        \
    X(prctl, S, fn(PR_SET_SECCOMP, 99L)) X(pthread_cancel, T, fn(thread))                                               \
    X(sigaction, S, fn(SIGUSR2, &sa, 0)) X(__sigaction, S, fn(SIGUSR2, &sa, &sa)) X(signal, S, fn(SIGUSR2, handler))   \
    X(bsd_signal, S, fn(SIGUSR2, handler)) X(ssignal, S, fn(SIGUSR2, handler)) X(sysv_signal, S, fn(SIGUSR2, handler)) \
    X(__sysv_signal, S, fn(SIGUSR2, handler)) X(sigset, S, fn(SIGUSR2, handler)) X(siginterrupt, S, fn(SIGUSR2, 1))    \
    X(aio_read, S, fn(&cb)) X(aio_read64, S, fn(&cb)) X(aio_write, S, fn(&cb)) X(aio_write64, S, fn(&cb))              \
    X(lio_listio, S, fn(LIO_WAIT, cbs, 1, 0)) X(lio_listio64, S, fn(LIO_WAIT, cbs, 1, 0))                              \
    X(dprintf, S, fn(s, "x%d", 1)) X(vdprintf, S, fn(s, "x%d", &va)) X(__dprintf_chk, S, fn(s, 1, "x%d", 1))           \
    X(__vdprintf_chk, S, fn(s, 1, "x%d", &va))                                                                         \
    X(printf, O, fn("x%d\n", 1)) X(vprintf, O, fn("x%d\n", &va)) X(puts, O, fn("x")) X(putchar, O, fn('x'))            \
    X(putchar_unlocked, O, fn('x')) X(wprintf, O, fn(L"x%d\n", 1)) X(vwprintf, O, fn(L"x%d\n", &va))                   \
    X(putwchar, O, fn('x')) X(putwchar_unlocked, O, fn('x')) X(__printf_chk, O, fn(1, "x%d", 1))                       \
    X(__vprintf_chk, O, fn(1, "x%d", &va)) X(__wprintf_chk, O, fn(1, L"x%d", 1))                                       \
    X(__vwprintf_chk, O, fn(1, L"x%d", &va)) X(fprintf, O, fn(stdout, "x%d", 1)) X(vfprintf, O, fn(stdout, "x", &va))  \
    X(fwprintf, O, fn(stdout, L"x%d", 1)) X(vfwprintf, O, fn(stdout, L"x%d", &va))                                     \
    X(__fprintf_chk, O, fn(stdout, 1, "x%d", 1)) X(__vfprintf_chk, O, fn(stdout, 1, "x%d", &va))                       \
    X(__fwprintf_chk, O, fn(stdout, 1, L"x%d", 1)) X(__vfwprintf_chk, O, fn(stdout, 1, L"x%d", &va))                   \
    X(fputs, O, fn("x", stdout)) X(fputs_unlocked, O, fn("x", stdout)) X(fputws, O, fn(L"x", stdout))                  \
    X(fputws_unlocked, O, fn(L"x", stdout)) X(fputc, O, fn('x', stdout)) X(fputc_unlocked, O, fn('x', stdout))         \
    X(putc, O, fn('x', stdout)) X(putc_unlocked, O, fn('x', stdout)) X(_IO_putc, O, fn('x', stdout))                   \
    X(fputwc, O, fn('x', stdout)) X(fputwc_unlocked, O, fn('x', stdout)) X(putwc, O, fn('x', stdout))                  \
    X(putwc_unlocked, O, fn('x', stdout)) X(putw, O, fn(1, stdout)) X(fwrite, O, fn("x", 1, 1, stdout))                \
    X(fwrite_unlocked, O, fn("x", 1, 1, stdout)) X(fflush, O, fn(stdout)) X(fflush_unlocked, O, fn(stdout))            \
    X(__overflow, O, fn(stdout, 'x')) X(__woverflow, W, fn(stdout, 'x'))                                               \
    X(getchar, I, fn()) X(getchar_unlocked, I, fn()) X(gets, I, fn(b)) X(__gets_chk, I, fn(b, sizeof b))               \
    X(getwchar, I, fn()) X(getwchar_unlocked, I, fn()) X(scanf, I, fn("%d", b)) X(vscanf, I, fn("%d", &va))            \
    X(wscanf, I, fn(L"%d", b)) X(vwscanf, I, fn(L"%d", &va)) X(__isoc99_scanf, I, fn("%d", b))                         \
    X(__isoc99_vscanf, I, fn("%d", &va)) X(__isoc99_wscanf, I, fn(L"%d", b)) X(__isoc99_vwscanf, I, fn(L"%d", &va))    \
    X(__isoc23_scanf, I, fn("%d", b)) X(__isoc23_vscanf, I, fn("%d", &va)) X(__isoc23_wscanf, I, fn(L"%d", b))         \
    X(__isoc23_vwscanf, I, fn(L"%d", &va)) X(getc, I, fn(stdin)) X(getc_unlocked, I, fn(stdin))                        \
    X(_IO_getc, I, fn(stdin)) X(fgetc, I, fn(stdin)) X(fgetc_unlocked, I, fn(stdin)) X(getwc, I, fn(stdin))            \
    X(getwc_unlocked, I, fn(stdin)) X(fgetwc, I, fn(stdin)) X(fgetwc_unlocked, I, fn(stdin)) X(getw, I, fn(stdin))     \
    X(fgets, I, fn(b, 8, stdin)) X(fgets_unlocked, I, fn(b, 8, stdin)) X(fgetws, I, fn(wide, 8, stdin))                \
    X(fgetws_unlocked, I, fn(wide, 8, stdin)) X(__fgets_chk, I, fn(b, 256, 8, stdin))                                  \
    X(__fgets_unlocked_chk, I, fn(b, 256, 8, stdin)) X(__fgetws_chk, I, fn(wide, 256, 8, stdin))                       \
    X(__fgetws_unlocked_chk, I, fn(wide, 256, 8, stdin)) X(fread, I, fn(b, 1, 8, stdin))                               \
    X(fread_unlocked, I, fn(b, 1, 8, stdin)) X(__fread_chk, I, fn(b, 256, 1, 8, stdin))                                \
    X(__fread_unlocked_chk, I, fn(b, 256, 1, 8, stdin)) X(getline, I, fn(&line, &room, stdin))                         \
    X(getdelim, I, fn(&line, &room, '\n', stdin)) X(__getdelim, I, fn(&line, &room, '\n', stdin))                      \
    X(fscanf, I, fn(stdin, "%d", b)) X(vfscanf, I, fn(stdin, "%d", &va)) X(fwscanf, I, fn(stdin, L"%d", b))            \
    X(vfwscanf, I, fn(stdin, L"%d", &va)) X(__isoc99_fscanf, I, fn(stdin, "%d", b))                                    \
    X(__isoc99_vfscanf, I, fn(stdin, "%d", &va)) X(__isoc99_fwscanf, I, fn(stdin, L"%d", b))                           \
    X(__isoc99_vfwscanf, I, fn(stdin, L"%d", &va)) X(__isoc23_fscanf, I, fn(stdin, "%d", b))                           \
    X(__isoc23_vfscanf, I, fn(stdin, "%d", &va)) X(__isoc23_fwscanf, I, fn(stdin, L"%d", b))                           \
    X(__isoc23_vfwscanf, I, fn(stdin, L"%d", &va)) X(ungetc, I, fn('x', stdin)) X(ungetwc, I, fn('x', stdin))          \
    X(__underflow, I, fn(stdin)) X(__uflow, I, fn(stdin)) X(__wunderflow, V, fn(stdin)) X(__wuflow, V, fn(stdin))      \
    X(fgetpwent, I, fn(stdin)) X(fgetpwent_r, I, fn(stdin, &pw, b, 256, &pwp)) X(fgetgrent, I, fn(stdin))              \
    X(fgetgrent_r, I, fn(stdin, &gr, b, 256, &grp)) X(fgetspent, I, fn(stdin))                                         \
    X(fgetspent_r, I, fn(stdin, &sp, b, 256, &spp)) X(getmntent, I, fn(stdin))                                         \
    X(getmntent_r, I, fn(stdin, &mnt, b, 256)) X(addmntent, O, fn(stdout, &mnt)) X(putpwent, O, fn(&pw, stdout))       \
    X(putgrent, O, fn(&gr, stdout)) X(putspent, O, fn(&sp, stdout)) X(malloc_info, O, fn(0, stdout))                   \
    X(argp_help, O, fn(&argp, stdout, ARGP_HELP_USAGE, "x")) X(argp_parse, O, fn(&argp, 1, argv, 0, 0, 0))             \
    X(getpass, I, fn("")) X(fseek, I, fn(stdin, 0L, 1)) X(fseeko, I, fn(stdin, 0L, 1)) X(fseeko64, I, fn(stdin, 0L, 1)) \
    X(rewind, I, fn(stdin)) X(fsetpos, I, fn(stdin, &pos)) X(fsetpos64, I, fn(stdin, &pos))                            \
    X(setvbuf, O, fn(stdout, 0, _IONBF, 0)) X(setbuf, O, fn(stdout, 0)) X(setbuffer, O, fn(stdout, 0, 0))              \
    X(setlinebuf, O, fn(stdout)) X(error, O, fn(0, 0, "x")) X(error_at_line, O, fn(0, 0, "x", 1, "x"))

#define DEFINE(name, where, call) static void run_##name(void) { (void)(call); }
CALLS(DEFINE)
#define LIST(name, where, call) {#name, #where[0], run_##name},
static const struct one { const char *name; char where; void (*run)(void); } calls[] = {CALLS(LIST)};

static const char *payload(const char *name) {
    if (strstr(name, "pwent")) return "a:x:1:1:a:/:/\n";
    if (strstr(name, "grent")) return "a:x:1:\n";
    if (strstr(name, "spent")) return "a:x:1::::::\n";
    if (strstr(name, "mntent")) return "a b c d 0 0\n";
    return ONES;
}

/* The peer sends each block of 64 bytes back, until it is told to send the last bytes. */
static void be_peer(int fd, const char *last) {
    char c[64];
    while (read(told[0], c, 1) == 1) {
        /* The descriptor has a duplicate for a moment, so the session goes home. */
        if (*c == 'h') CHECK(close(dup(fd)) == 0);
        else if (*c == 'w') usleep(30000), CHECK(write(fd, last, strlen(last)) > 0);
        else if (*c == 'e') {
            CHECK(recv(fd, c, 64, MSG_WAITALL) == 64 && write(fd, c, 64) == 64);
            while (recv(fd, c + 1, 60, MSG_DONTWAIT) > 0) {}
        }
        else CHECK(write(fd, last, strlen(last)) > 0);
        CHECK(*c == 'w' || write(answers[1], c, 1) == 1);
    }
    _exit(0);
}

static void ask(char what) { CHECK(write(told[1], &what, 1) == 1 && read(answers[0], &what, 1) == 1); }

static int is_away(void) {
    static char text[1 << 16];
    int maps = syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY), found = 0, got, kept = 0;
    while ((got = syscall(SYS_read, maps, text + kept, sizeof text - 1 - kept)) > 0) {
        text[kept + got] = 0;
        found |= strstr(text, "memfd:sojourn-stream") != 0;
        kept = kept + got > 64 ? 64 : 0;
    }
    syscall(SYS_close, maps);
    return found;
}

static void prepare(const struct one *one, int away, int is_late, int tcp) {
    int pair[2];
    CHECK(!(tcp ? tcp_pair(pair) : socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) && !pipe(told) && !pipe(answers));
    peer = fork();
    if (peer == 0) {
        close(alive[1]), close(pair[0]), close(told[1]), close(answers[0]);
        be_peer(pair[1], payload(one->name));
    }
    s = pair[0], close(pair[1]), close(told[0]), close(answers[1]);
    if (strchr("IV", one->where)) s = dup2(s, 0), close(pair[0]);
    if (strchr("OW", one->where)) s = dup2(s, 1), close(pair[0]);
    ep = epoll_create1(EPOLL_CLOEXEC);
    ev->events = EPOLLIN;
    if (one->where == 'E') CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, s, ev));
    int64_t start = now_ms();
    for (int i = 0; away && (i < 300 || !is_away()); i++) {
        CHECK(now_ms() - start < 60000);
        CHECK(write(s, b, 64) == 64), ask('e'), CHECK(recv(s, b, 64, MSG_WAITALL) == 64);
        if (one->where == 'E') CHECK(epoll_wait(ep, ev, 4, 0) >= 0);
    }
    if (away) CHECK(write(s, b, 64) == 64);
    if (!is_late) ask('l');
    door = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(!bind(door, (void *)&at, sizeof at) && !listen(door, 4) && !getsockname(door, (void *)&at, &at_len));
    file = one->where == 'D' || strcmp(one->name, "connect") == 0 ? socket(AF_INET, SOCK_STREAM, 0) : open("/bin/true", O_RDONLY | O_CLOEXEC);
    if (one->where == 'D') CHECK(!connect(file, (void *)&at, sizeof at));
    CHECK(!pipe(p));
    if (one->where == 'T') CHECK(!pthread_create(&thread, 0, sleeper, 0));
    if (one->where == 'Q') CHECK((stream = popen("true", "r")) != 0);
    if (one->where == 'W') fwide(stdout, 1);
    if (one->where == 'V') fwide(stdin, 1);
    map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    posix_spawn_file_actions_init(&actions);
    words[0] = (long)b;
    va.gp = 48, va.fp = 304, va.over = va.save = words;
    FD_SET(s, &in), FD_SET(s, &out);
    for (int i = 0; i < 40; i++) pf[i] = (struct pollfd){i ? -1 : s, POLLIN, 0};
    v[0] = (struct iovec){b, 4}, v[1] = (struct iovec){b + 8, 4};
    m.msg_iov = v, m.msg_iovlen = 2, mm[0].msg_hdr = m, mm[1].msg_hdr = m;
    tv.tv_sec = ts.tv_sec = 1, sa.sa_handler = handler;
    cb.aio_fildes = s, cb.aio_buf = b, cb.aio_nbytes = 8, cb.aio_lio_opcode = LIO_WRITE;
    if ((line = malloc(room)) == 0) exit(1);
}

static const struct one *moving;

/* Makes the call again and again, with 64 bytes to read, while the session moves. */
static void move(void) {
    int must = getenv("LD_PRELOAD") != 0, since = 0;
    int64_t start = now_ms();
    for (int i = 0; since < 1000; i++) {
        CHECK(now_ms() - start < 60000);
        CHECK(write(s, b, 64) == 64), ask('e');
        moving->run();
        while (recv(s, b, 64, MSG_DONTWAIT) > 0) {}
        /* The session is used in one place for a while, then the peer calls it home. */
        if (since || !must || (i % 16 == 0 && is_away())) since++;
        if (since % 250 == 249) ask('h');
        tv.tv_sec = 1, FD_SET(s, &in), FD_SET(s, &out);
    }
}

/* Calls `run` on the stack that ends at `top`. */
static void __attribute__((noinline)) on(unsigned char *top, void (*run)(void)) {
    __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp" : : "r"(top), "r"(run)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void *in_thread(void *run) { return ((void (*)(void))run)(), (void *)0; }

/* Returns how many bytes were written to, without those below `at`. */
static size_t lowest(size_t at) {
    while (at < LEN && area[at] == 0xA5) at++;
    return LEN - at;
}

int main(int argc, char **argv) {
    if (!strcmp(argv[1], "list")) {
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) puts(calls[i].name);
        return 0;
    }
    const struct one *one = calls;
    while (strcmp(one->name, argv[1])) one++;
    int away = (!strcmp(argv[2], "away") || !strcmp(argv[2], "waits")) && getenv("LD_PRELOAD") != 0, status;
    /* After a fork each process needs a stack of its own, so the parent's side measures its own
       stack. */
    int sharing = one->where == 'F' ? MAP_PRIVATE : MAP_SHARED;
    area = mmap(0, LEN, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    size_t *taken = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fn = dlsym(RTLD_DEFAULT, one->name);
    if (!fn) return puts("absent"), 0;
    CHECK(!pipe2(alive, O_CLOEXEC));
    pid_t who = fork();
    if (who == 0) {
        close(alive[0]), signal(SIGPIPE, SIG_IGN);
        int waits = !strcmp(argv[2], "waits"), moves = !strcmp(argv[2], "moves");
        prepare(moving = one, away, waits || moves, argc > 3);
        memset(area, 0xA5, LEN);
        if (waits) CHECK(write(told[1], "w", 1) == 1);
        if (one->where == 'H') {
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            CHECK(!pthread_attr_setstack(&attributes, area, LEN));
            CHECK(!pthread_create(&thread, &attributes, in_thread, one->run) && !pthread_join(thread, 0));
            _exit(0);
        }
        on(area + LEN, moves ? move : one->run);
        if (one->where == 'F') *taken = lowest(0);
        _exit(0);
    }
    close(alive[1]);
    struct pollfd gone = {alive[0], POLLIN, 0};
    CHECK(poll(&gone, 1, 30000) == 1);
    CHECK(waitpid(who, &status, 0) == who); if (status) printf("status %x\n", status), exit(1);
    /* The new process of `clone` uses the lower part. */
    if (one->where != 'F') *taken = lowest(strstr(one->name, "clone") ? LEN / 4 : 0);
    printf("%zu\n", *taken);
    return 0;
}
