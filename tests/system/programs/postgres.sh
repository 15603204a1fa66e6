# pgbench over TCP and over a Unix socket; the server refuses to be root.
#: deb=postgresql limit=90
P=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi; }
mkdir data
if [ "$(id -u)" = 0 ]; then chown -R postgres "$D"; fi
export HOME=$D PGUSER=tester PGDATABASE=postgres
as "$P/initdb" -D "$D/data" -A trust -U tester --no-sync >init.log 2>&1 || { cat init.log >&2; exit 1; }
as "$P/postgres" -D "$D/data" -p "$PORT" -k "$D" -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB -c dynamic_shared_memory_type=mmap >log 2>&1 &
S=$!
await as "$P/pg_isready" -h 127.0.0.1 -p "$PORT"
as "$P/pgbench" -h "$D" -p "$PORT" -i -q >out 2>&1
echo "initialized $?"
for h in 127.0.0.1 "$D"; do
    for m in simple extended prepared; do
        as "$P/pgbench" -h "$h" -p "$PORT" -n -c 4 -j 2 -t 100 -M $m >out 2>err
        echo "$m $?"
        grep -E 'transactions actually|failed' out
    done
    q() { as "$P/psql" -h "$h" -p "$PORT" -Atc "$1"; }
    q "select count(*) from pgbench_history"
    q "select sum(abalance) = (select sum(bbalance) from pgbench_branches) from pgbench_accounts"
    q "select i, repeat('x', 50) from generate_series(1, 20000) i" | sum
    seq 1 30000 | as "$P/psql" -h "$h" -p "$PORT" -c 'create temp table t(i int)' -c 'copy t from stdin' -c 'select sum(i) from t'
    q "select 1/0" 2>&1
done
kill -INT "$(head -1 data/postmaster.pid)"
wait $S
echo "server $?"
