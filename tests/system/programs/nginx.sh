# Static files by keep-alive, then reloads under load: not one request may fail.
#: deb=nginx,curl,wrk
mkdir www tmp
: >www/none
head -c 1024 /dev/zero | tr '\0' k >www/small
seq 1 200000 | head -c 1048576 >www/large
[ "$(id -u)" = 0 ] && U='user root;' || U=
cat >conf <<END
$U daemon off; worker_processes 2; pid $D/pid; error_log $D/err; events {}
http { access_log off; client_body_temp_path $D/tmp; proxy_temp_path $D/tmp; fastcgi_temp_path $D/tmp;
  uwsgi_temp_path $D/tmp; scgi_temp_path $D/tmp; sendfile off;
  server { listen 127.0.0.1:$PORT; root $D/www; } }
END
nginx -e "$D/err" -c "$D/conf" &
S=$!
await connects "$PORT"
u=http://127.0.0.1:$PORT
for i in 1 2 3 4 5; do
    curl -sS "$u/none" "$u/small" "$u/large" "$u/small" "$u/none" "$u/large" | sum
done
curl -s -o /dev/null -w '%{http_code} %{num_connects}\n' "$u/missing" "$u/small"
wrk -t1 -c10 -d1 "$u/small" >wrk.out
grep -cE 'Socket errors|Non-2xx' wrk.out
load() {
    n=0
    while [ ! -e end ]; do
        curl -sS "$u/small" "$u/large" "$u/small" >got.$1 2>>failed || echo "curl $?" >>failed
        [ "$(wc -c <got.$1)" = 1050624 ] || echo short >>failed
        n=$((n + 1))
    done
    [ $n -gt 5 ] || echo "only $n" >>failed
}
load 1 &
A=$!
load 2 &
B=$!
for i in $(seq 8); do
    sleep 0.3
    nginx -e "$D/err" -c "$D/conf" -s reload || echo reload >>failed
done
: >end
wait $A $B
cat failed 2>/dev/null
kill -QUIT $S
wait $S
echo "server $?"
