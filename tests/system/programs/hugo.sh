# Hugo: builds a site, and serves it with live reload switched off.
#: deb=hugo,curl load=on runs=hugo limit=90
# One request at a time: asked for one page twice at once, Hugo cuts it short now and then, plainly too.
mkdir -p site/content site/layouts/_default
cd site
echo "title = 't'" >config.toml
echo '<h1>{{ .Title }}</h1>{{ .Content }}' >layouts/_default/single.html
echo '{{ range .Pages }}{{ .Title }} {{ end }}' >layouts/_default/list.html
cp layouts/_default/list.html layouts/index.html
for i in $(seq 60); do printf -- '---\ntitle: p%s\n---\n' "$i" >content/p$i.md; for j in $(seq $i); do echo "* line $j"; done >>content/p$i.md; done
export HUGO_CACHEDIR=$D/cache
hugo --quiet -d "$D/out"
echo "built $?"
cat "$D"/out/p*/index.html | sum
hugo server --quiet --bind 127.0.0.1 -p "$PORT" --disableLiveReload --watch=false >"$D/log" 2>&1 &
S=$!
await curl -sf "http://127.0.0.1:$PORT/p1/"
ask() { for i in $(seq 4); do echo "http://127.0.0.1:$PORT/p[1-60]/?[1-6]"; done | xargs -n 2 curl -sS | sum; }
busy ask
kill -INT $S
wait $S
echo "server $?"
