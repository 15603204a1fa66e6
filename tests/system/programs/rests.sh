# A writer that has ended, and a reader that passes on what it has not read.
for end in exits closes; do
    for kind in pipe unix tcp; do
        for how in fork spawn exec; do
            python3 "$PROGRAMS/rests.py" $kind $end $how
        done
    done
done
# The bytes of a killed program that its kernel knows nothing of can only be had of a pipe.
for how in fork spawn exec; do
    python3 "$PROGRAMS/rests.py" pipe killed $how
done
