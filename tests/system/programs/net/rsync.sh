# The daemon's own protocol, both ways, with differences.
serve() {
    mkdir -p tree/sub
    for i in $(seq 60); do seq 1 $((i * 1000)) >tree/sub/$i; done
    seq 1 1200000 >tree/large
    cat >conf <<END
port = $PORT
address = $ADDRESS
use chroot = no
[tree]
path = $D/tree
[into]
path = $D
read only = no
$(is_root && printf 'uid = root\ngid = root\n')
END
    rsync --daemon --no-detach --config=conf --log-file=log </dev/null &
}
call() {
    rsync -a "rsync://$ADDRESS:$PORT/tree/" copy/
    echo "down $?"
    seq 1 99999 >copy/sub/9
    printf x | dd of=copy/large bs=1 seek=3333333 conv=notrunc status=none
    rsync -a copy/ "rsync://$ADDRESS:$PORT/into/back/"
    echo "up $?"
    rsync -a --checksum --no-whole-file copy/ "rsync://$ADDRESS:$PORT/into/tree/"
    echo "differences $?"
    diff -r copy back && diff -r copy tree && (cd back && cat large sub/* | sum)
}
