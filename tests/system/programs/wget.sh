# wget and curl from nginx: a recursive copy, ranges, many at once, large files to pipes.
#: deb=wget,curl,nginx
mkdir -p www/a/b logs
for i in $(seq 40); do seq 1 $((i * 200)) >www/a/$i.txt; cp www/a/$i.txt www/a/b; done
head -c 25M /dev/zero >www/zero
seq 1 300000 >www/big
chmod -R a+rX .
cat >nginx.conf <<END
daemon off; pid $D/pid; error_log $D/error;
events {}
http { access_log off; client_body_temp_path $D/logs; proxy_temp_path $D/logs; fastcgi_temp_path $D/logs; uwsgi_temp_path $D/logs; scgi_temp_path $D/logs;
server { listen 127.0.0.1:$PORT; root $D/www; autoindex on; } }
END
[ "$(id -u)" = 0 ] && sed -i '1s/^/user root; /' nginx.conf
nginx -e error -c "$D/nginx.conf" &
S=$!
await connects "$PORT"
U=http://127.0.0.1:$PORT
fetch() {
    wget -q -r -np -nH -R 'index.html*' "$U/a/" && find a -type f | sort | xargs cat | sum
    for i in 1 2 3; do wget -qO- "$U/zero" | wc -c; done
    for i in 1 2 3; do curl -s "$U/big" | sum; done
    for i in 1 2 3; do curl -s -o copy "$U/zero"; wc -c <copy; done
    curl -s -r 1000-200000 "$U/big" | sum
    curl -s "$U/a/[1-40].txt" | sum
    curl -s --no-progress-meter -Z --parallel-max 8 -o 'z#1' "$U/a/[1-40].txt"
    cat z* | sum
    wget -q -c -O part "$U/big" && sum <part
    curl -s -o /dev/null -w '%{http_code} %{size_download}\n' "$U/none"
}
busy fetch
kill $S
wait $S
echo "nginx $?"
