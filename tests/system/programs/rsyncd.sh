# The daemon's own protocol, without ssh.
#: deb=rsync
mkdir -p tree/sub
for i in $(seq 60); do seq 1 $((i * 1000)) >tree/sub/$i; done
cat >conf <<END
port = $PORT
address = 127.0.0.1
use chroot = no
[tree]
path = $D/tree
[into]
path = $D
read only = no
$([ "$(id -u)" = 0 ] && printf 'uid = root\ngid = root\n')
END
rsync --daemon --no-detach --config=conf --log-file=log </dev/null &
await connects "$PORT"
rsync -a "rsync://127.0.0.1:$PORT/tree/" copy/
echo "down $?"
seq 1 99999 >copy/sub/9
rsync -a copy/ "rsync://127.0.0.1:$PORT/into/back/"
echo "up $?"
diff -r copy back && (cd back && cat sub/* | sum)
