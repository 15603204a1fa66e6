# rclone: serves a folder by WebDAV and HTTP, copies there and back, checks, cats to pipes.
#: deb=rclone,curl load=on runs=rclone limit=120
export RCLONE_CONFIG=$D/conf RCLONE_LOG_LEVEL=ERROR
: >conf
mkdir -p src base
for i in $(seq 40); do seq 1 $((i * 700)) >src/f$i; done
head -c 15M /dev/zero >src/zero
rclone serve webdav --addr "127.0.0.1:$PORT" base >log 2>&1 &
rclone serve http --addr "127.0.0.1:$PORT2" src >log2 2>&1 &
await connects "$PORT"
await connects "$PORT2"
dav=":webdav,url='http://127.0.0.1:$PORT',vendor=other:"
copies() {
    rclone copy src "$dav/to" && diff -r src base/to && echo up
    rclone copy "$dav/to" back && diff -r src back && echo down
    for i in $(seq 3); do rclone cat "$dav/to/zero" | wc -c; done
    for i in $(seq 3); do curl -s "http://127.0.0.1:$PORT2/zero" | wc -c; done
}
busy copies
rclone lsf "$dav/to" | sort | sum
cat src/f40 | rclone rcat "$dav/piped" && cmp src/f40 base/piped && echo piped
rclone check --download src "$dav/to" && echo checked
kill %1 %2
wait
