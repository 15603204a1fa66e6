/* The instructions by which a traced program says where it is (x86-64): loads of themselves.
 * Outside of a traced virtual machine they do nothing. See crates/memory/src/markers.rs. */
#ifndef SOJOURN_MARKERS_H
#define SOJOURN_MARKERS_H

#ifdef __x86_64__
#define SOJOURN_MARKER(register)                                                                   \
    __asm__ volatile(".balign 16\n1: movq 1b(%%rip), %%" register ::: register, "memory")
#else
#define SOJOURN_MARKER(register) ((void)0)
#endif

/* The trace begins: from here on the caches are fed. */
#define SOJOURN_TRACE() SOJOURN_MARKER("rax")
/* The measured part begins. */
#define SOJOURN_BEGIN() SOJOURN_MARKER("rcx")
/* The measured part ends, and so does the trace. */
#define SOJOURN_END() SOJOURN_MARKER("rdx")

#endif
