# MariaDB: a new data directory, transactions by several clients over a Unix socket and TCP, a large result.
#: deb=mariadb-server,mariadb-client limit=120
[ "$(id -u)" = 0 ] && U=--user=root || U=
mariadb-install-db $U --datadir="$D/data" --auth-root-authentication-method=normal --skip-test-db >install.log 2>&1
echo "installed $?"
mariadbd --no-defaults $U --datadir="$D/data" --socket="$D/m" --bind-address=127.0.0.1 --port="$PORT" --pid-file="$D/pid" --innodb-buffer-pool-size=16M --skip-log-bin >log 2>&1 &
S=$!
c="mariadb --no-defaults -u root -N"
await $c -S "$D/m" -e 'select 1'
$c -S "$D/m" -e "create user t@'127.0.0.1'; create database d; grant all on *.* to t@'127.0.0.1'; create table d.t (i int primary key, s varchar(200)) engine=innodb"
for way in "-u root -S $D/m" "-u t -h 127.0.0.1 -P $PORT"; do
    (for i in $(seq 150); do echo "replace into d.t values ($i, repeat('x', $((i % 200)))); select count(*), sum(length(s)) from d.t;"; done) | mariadb --no-defaults -N $way | sum
    mariadb --no-defaults -N $way -D d -e "select a.seq, repeat('y', 60) from seq_1_to_30000 a" | sum
    mariadb-slap --no-defaults $way --concurrency=4 --number-of-queries=200 --create-schema=slap --query='select sum(length(s)) from d.t' >slap 2>&1
    echo "slap $?"
done
mariadb-admin --no-defaults -u root -S "$D/m" shutdown
wait $S
echo "server $?"
