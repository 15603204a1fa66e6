# etcd and etcdctl: puts and gets, transactions, a watch, a lease, a snapshot, its own load.
#: deb=etcd-server,etcd-client load=on runs=etcd,etcdctl limit=120
export ETCDCTL_API=3 ETCD_UNSUPPORTED_ARCH=
E=http://127.0.0.1:$PORT
etcd --name one --data-dir "$D/e" --listen-client-urls "$E" --advertise-client-urls "$E" --listen-peer-urls "http://127.0.0.1:$PORT2" --initial-advertise-peer-urls "http://127.0.0.1:$PORT2" --initial-cluster "one=http://127.0.0.1:$PORT2" --unsafe-no-fsync >log 2>&1 &
S=$!
c="etcdctl --endpoints=$E"
await $c get x
for i in $(seq 30); do $c put "k$i" "value $i" >/dev/null; done
$c get --prefix k | sum
seq 1 60000 | $c put big >/dev/null
$c get --print-value-only big | sum
printf 'value("k1") = "value 1"\n\nput k1 new\nget k2\n\nget k3\n\n' | $c txn
timeout 20 $c watch w >seen &
W=$!
seen() { $c put w first >/dev/null; grep -q first seen; }
await seen
for i in $(seq 20); do $c put w "$i" >/dev/null; done
last() { grep -qx 20 seen; }
await last
kill $W
wait $W 2>/dev/null
grep -E '^[0-9]+$' seen | sum
load() { for i in 1 2 3 4; do printf 'k%s\n' "$i"; done | xargs -P 4 -I{} curl -s --no-progress-meter -Z --parallel-max 4 -o /dev/null -w "%{http_code}\n" -d "{\"key\":\"$(printf k1 | base64)\"}" "$E/v3/kv/range?{}-[1-300]" | sort | uniq -c; }
busy load
$c del --prefix k
$c snapshot save snap >/dev/null 2>&1
$c snapshot status snap -w fields 2>/dev/null | grep -c Hash
kill $S
wait $S
echo "server $?"
