# Subversion by svnserve and by a tunnel of pipes.
#: deb=subversion
svnadmin create repo
printf '[general]\nanon-access = write\nauth-access = write\n' >repo/conf/svnserve.conf
svnserve -d --foreground --listen-host 127.0.0.1 --listen-port "$PORT" -r "$D/repo" &
await connects "$PORT"
u=svn://127.0.0.1:$PORT
s="svn --non-interactive --config-dir $D/c"
$s -q co "$u" wc
mkdir wc/trunk
for i in $(seq 40); do seq 1 $((i * 200)) >wc/trunk/f$i; done
$s -q add wc/trunk
$s ci -m one wc | tail -1
for i in 1 2 3 4; do seq 1 $((i * 1111)) >wc/trunk/f7; $s -q ci -m "n$i" wc; done
$s -q co "$u/trunk" copy
cat copy/f* | sum
$s -q export "$u/trunk@2" old
cat old/f* | sum
$s log -q "$u" | grep -c '^r'
