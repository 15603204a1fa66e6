// Calls every function that is named on the command line, each in a process of its own as its
// first call of a function that the preload library replaces, once before any constructor has run
// and once after all have. Prints what each call answers, or how it ended the process.

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

typedef long (*function)(long, long, long, long, long, long);

// System calls that pass through no function of the C library.
static long call(long number, long a, long b, long c, long d) {
#ifdef __x86_64__
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                     : "memory");
    return x0;
#endif
}

static void print(const char *text) { call(SYS_write, 2, (long)text, strlen(text), 0); }

// Arguments that most functions refuse, and that let none of them wait.
static const long ARGUMENTS[2][3] = {{-1, 0, 0}, {1, 1, 0}};

static void in_child(const char *name, function f, const long *a) {
    char text[100];
    errno = 0;
    long result = f(a[0], a[1], a[2], 0, 0, 0);
    int error = errno;
    snprintf(text, sizeof text, "%s(%ld): %d, errno %d\n", name, a[0],
             ((int)result > 0) - ((int)result < 0), error);
    print(text);
    call(SYS_exit_group, 0, 0, 0, 0);
}

static void all(int count, char **names) {
    for (int i = 1; i < count; i++) {
        function f = (function)dlsym(RTLD_DEFAULT, names[i]);
        for (int which = 0; f && which < 2; which++) {
            long child = call(SYS_clone, SIGCHLD, 0, 0, 0);
            if (child == 0)
                in_child(names[i], f, ARGUMENTS[which]);
            int status = 0;
            call(SYS_wait4, child, (long)&status, 0, 0);
            if (status) {
                char text[100];
                snprintf(text, sizeof text, "%s(%ld) ended it: %d\n", names[i],
                         ARGUMENTS[which][0], status);
                print(text);
            }
        }
    }
}

static void before_constructors(int count, char **words, char **environment) {
    (void)environment;
    all(count, words);
}

// The C library calls these functions before any constructor (generic ABI, `DT_PREINIT_ARRAY`).
__attribute__((section(".preinit_array"), used)) static void (*const BEFORE[])(int, char **,
                                                                             char **) = {
    before_constructors};

int main(int count, char **words) {
    all(count, words);
    return 0;
}
