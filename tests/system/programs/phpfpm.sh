# nginx with php-fpm behind a Unix socket and behind TCP, whose workers end after some requests; a script of the command line.
#: deb=nginx,php-fpm,php-cli,curl,wrk
F=$(ls /usr/sbin/php-fpm* | tail -1)
[ "$(id -u)" = 0 ] && R=-R U='user root;' O='user = root' || R= U= O=
mkdir www tmp
cat >www/a.php <<'END'
<?php header("X-A: b"); $n = (int)($_GET["n"] ?? 10); echo str_repeat(md5((string)$n), $n), "\n", strlen(file_get_contents("php://input")), "\n";
END
cat >fpm.conf <<END
[global]
error_log = $D/fpm.log
daemonize = no
[unix]
$O
listen = $D/fpm.sock
pm = static
pm.max_children = 3
pm.max_requests = 60
[tcp]
$O
listen = 127.0.0.1:$PORT2
pm = static
pm.max_children = 2
END
cat >conf <<END
$U daemon off; pid $D/pid; error_log $D/err; events {}
http { access_log off; client_body_temp_path $D/tmp; proxy_temp_path $D/tmp; fastcgi_temp_path $D/tmp; uwsgi_temp_path $D/tmp; scgi_temp_path $D/tmp;
  upstream u { server unix:$D/fpm.sock; keepalive 2; } upstream t { server 127.0.0.1:$PORT2; keepalive 2; }
  server { listen 127.0.0.1:$PORT; root $D/www; include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $D/www/a.php; fastcgi_keep_conn on;
    location /u { fastcgi_pass u; } location /t { fastcgi_pass t; } } }
END
$F $R -F -y fpm.conf &
P=$!
nginx -e "$D/err" -c "$D/conf" &
S=$!
await curl -sf "http://127.0.0.1:$PORT/u?n=1"
await curl -sf "http://127.0.0.1:$PORT/t?n=1"
seq 1 20000 >post
for w in u t; do
    for n in 0 1 100 5000; do curl -sS "http://127.0.0.1:$PORT/$w?n=$n" | sum; done
    curl -sS --data-binary @post "http://127.0.0.1:$PORT/$w?n=2" | sum
    (for i in $(seq 150); do echo "url = http://127.0.0.1:$PORT/$w?n=$i"; done) >urls
    curl -sS -K urls | sum
done
php -r 'echo array_sum(range(1, 100000)), "\n";'
php -r '$p = popen("seq 1 50000", "r"); $n = 0; while (($l = fgets($p)) !== false) $n += (int)$l; echo $n, " ", pclose($p), "\n";'
kill -QUIT $S $P
wait $S $P
echo "ended $?"
