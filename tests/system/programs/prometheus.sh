# Prometheus, which scrapes itself every 200 ms and is asked by curl; promtool checks and asks.
#: deb=prometheus,curl load=on runs=prometheus,promtool limit=90
printf 'global: {scrape_interval: 200ms}\nscrape_configs: [{job_name: own, static_configs: [{targets: ["127.0.0.1:%s"]}]}]\n' "$PORT" >p.yml
promtool check config p.yml | grep -c SUCCESS
prometheus --config.file=p.yml --storage.tsdb.path="$D/t" --web.listen-address="127.0.0.1:$PORT" --web.enable-lifecycle >log 2>&1 &
S=$!
U=http://127.0.0.1:$PORT
await curl -sf "$U/-/ready"
q() { curl -s "$U/api/v1/query" --data-urlencode "query=$1"; }
scraped() { q up | grep -q '"1"\]'; }
await scraped
q 'sum(up)' | grep -o '"1"\]'
q 'vector(6) * 7' | grep -o '"42"'
promtool query instant "$U" 'scalar(vector(5)) + 1' | cut -d' ' -f2
ask() { curl -s "$U/api/v1/query?query=count(up)%2b[1-800]" | grep -o '"[0-9]*"\]' | sort | sum; curl -s "$U/metrics?[1-30]" | grep -c '^prometheus_build_info'; }
busy ask
curl -s -X POST "$U/-/reload" -w '%{http_code}\n'
curl -s "$U/api/v1/targets" | grep -o '"health":"up"'
curl -s -X POST "$U/-/quit"; echo
wait $S
echo "server $?"
