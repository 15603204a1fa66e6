# Docker's registry: layers are pushed and pulled by curl, several at once.
#: deb=docker-registry,curl load=on runs=docker-registry limit=90
printf 'version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/r}, delete: {enabled: true}}\nhttp: {addr: "127.0.0.1:%s"}\n' "$D" "$PORT" >c.yml
docker-registry serve c.yml >log 2>&1 &
S=$!
U=http://127.0.0.1:$PORT/v2
await curl -sf "$U/"
push() {
    local d place
    d=sha256:$(sum <"$1")
    place=$(curl -s -X POST -D - -o /dev/null "$U/x/blobs/uploads/" | tr -d '\r' | sed -n 's/^Location: //Ip')
    curl -s -X PUT -H 'Content-Type: application/octet-stream' --data-binary "@$1" -o /dev/null -w '%{http_code}\n' "$place&digest=$d"
}
seq 1 400000 >one
head -c 10M /dev/zero >two
for i in $(seq 12); do seq 1 $((i * 5000)) >l$i; done
layers() {
    push one; push two
    for i in $(seq 12); do push l$i; done
    for i in 1 2 3; do for f in one two; do curl -s "$U/x/blobs/sha256:$(sum <$f)" | sum; done; done
    for i in $(seq 12); do curl -s "$U/x/blobs/sha256:$(sum <l$i)?[1-8]" | sum; done
}
busy layers
curl -s -o /dev/null -w '%{http_code}\n' "$U/x/blobs/sha256:$(echo no | sum)"
kill $S
wait $S
echo "server $?"
