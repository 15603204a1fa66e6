# Files of 1 B to 8 MB, many requests over one connection, several connections at once.
SIZES="1 100 1447 1448 1449 4096 65535 65536 262145 1000000 8000000"
serve() {
    mkdir www tmp
    for size in $SIZES; do seq 1 2000000 | head -c "$size" >www/$size; done
    is_root && U='user root;' || U=
    cat >conf <<END
$U daemon off; worker_processes 2; pid $D/pid; error_log $D/err; events {}
http { access_log off; client_body_temp_path $D/tmp; proxy_temp_path $D/tmp; fastcgi_temp_path $D/tmp;
  uwsgi_temp_path $D/tmp; scgi_temp_path $D/tmp; sendfile ${SENDFILE:-off}; keepalive_requests 100000;
  server { listen $ADDRESS:$PORT; root $D/www; location /up/ { root $D/tmp; dav_methods PUT; client_max_body_size 20m; } } }
END
    mkdir tmp/up
    nginx -e "$D/err" -c "$D/conf" &
}
call() {
    u=http://$ADDRESS:$PORT
    for size in $SIZES; do
        curl -sS "$u/$size" | sum
    done
    for size in $SIZES; do echo "$u/$size"; done | xargs curl -sS | sum
    for round in 1 2 3; do curl -sS "$u/1448?[1-300]" | sum; done
    curl -sS -o /dev/null -w '%{num_connects}\n' "$u/100?[1-20]" | tr -d '\n'
    echo
    curl -sS -Z --parallel-max 8 -o '#1.got' "$u/1000000?[1-16]" 2>/dev/null || echo "curl $?"
    cat [0-9]*.got | sum
    curl -sS -o /dev/null -w '%{http_code} ' -T www/8000000 "$u/up/file"
    sum <tmp/up/file
    curl -sS -r 7000000-7000099 "$u/8000000" | sum
}
