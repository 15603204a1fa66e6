# cat, head, tail, wc, cut, tr, sort, uniq, tee, dd, split, paste, comm, tac, rev by pipes.
#: deb=coreutils,util-linux limit=90
seq 1 100000 >data
busy head -c 500M /dev/zero | cat | wc -c
lines() {
    head -n 90000 data | tail -n +1000 | cut -c2-5 | tr 0-9 a-j | sort | uniq -c | sort -k1,1n -k2 | sum
    cat data | tee copy | wc
    dd if=data bs=4k status=none | dd bs=64k iflag=fullblock status=none | cat - | md5sum
    cat data | split -l 20000 - part.
    cat part.* | cmp - data && cat copy | cmp data
    cut -d1 -f1 data | tr -s 2 | rev | tac | paste - - - | nl | sum
    sort -R --random-source=data data | sort -n | comm -12 --nocheck-order - data | wc -l
    cat data | tail -n 5 | shuf --random-source=data | sum
    cat data data data | od -An -tx1 | head -n 50000 | fold -w 20 | sum
    yes 0123456789abcdef | head -n 900000 | wc -l
}
busy lines
