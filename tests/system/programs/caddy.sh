# Caddy: files, a reverse proxy before a second Caddy, compression, reloads by its own API; wrk and curl ask.
#: deb=caddy,curl,wrk load=on runs=caddy limit=90
mkdir -p www
for i in $(seq 30); do seq 1 $((i * 300)) >www/$i.txt; done
head -c 50M /dev/zero >www/zero
export XDG_DATA_HOME=$D/data XDG_CONFIG_HOME=$D/config
A=unix/$D/admin
cat >Caddyfile <<END
{
	admin $A
	auto_https off
}
http://127.0.0.1:$PORT {
	encode gzip
	root * $D/www
	file_server
}
http://127.0.0.1:$PORT2 {
	reverse_proxy 127.0.0.1:$PORT
}
END
caddy run --config Caddyfile --adapter caddyfile >log 2>&1 &
S=$!
await connects "$PORT"
await connects "$PORT2"
for p in "$PORT" "$PORT2"; do
    curl -s "http://127.0.0.1:$p/[1-30].txt" | sum
    curl -s --compressed "http://127.0.0.1:$p/30.txt" | sum
    curl -s "http://127.0.0.1:$p/zero" | wc -c
    curl -s -o /dev/null -w '%{http_code}\n' "http://127.0.0.1:$p/none"
    curl -s -r 10-99 "http://127.0.0.1:$p/7.txt" | sum
done
U=http://127.0.0.1
ask() { for i in 1 2 3 4 5 6 7 8; do echo "$U:$PORT/$i.txt?[1-150]"; echo "$U:$PORT2/$i.txt?[1-50]"; done | xargs -P 2 -n 2 sh -c 'curl -sS "$@" | wc -l' - | awk '{n += $1} END {print n}'; }
busy ask
caddy reload --config Caddyfile --adapter caddyfile --address "$A" >>log 2>&1
echo "reload $?"
wrk -t 2 -c 50 -d 1 "$U:$PORT/3.txt" | grep -c Non-2xx
curl -s "$U:$PORT2/12.txt" | sum
kill $S
wait $S
echo "server $?"
