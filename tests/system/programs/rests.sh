# A writer that has ended, and a reader that passes on what it has not read.
for end in exits closes; do
    for kind in pipe unix tcp; do
        for how in fork spawn exec; do
            python3 "$PROGRAMS/rests.py" $kind $end $how
        done
    done
done
# After a kill, only a pipe lets the test obtain the bytes that the kernel has never had.
# The child of a fork may ask for them before the death is known, or just after.
for how in fork fork fork fork fork spawn exec; do
    python3 "$PROGRAMS/rests.py" pipe killed $how
done
# A descriptor that exec closes gets another number in the child, unseen, while the writer goes on.
for how in vfork posix_spawn; do
    for kind in pipe unix tcp; do
        python3 "$PROGRAMS/handed.py" $kind $how
    done
done
