# Go's most used Redis client, 50 connections at once, against Debian's Redis: sets, gets, pipelines, a subscriber.
#: deb=golang-go,redis-server,redis-tools go=github.com/redis/go-redis/v9@v9.7.0 load=on runs=m,redis-server limit=150
cat >m.go <<'END'
package main
import ("context"; "fmt"; "os"; "sync"; "github.com/redis/go-redis/v9")
func must(e error) { if e != nil { fmt.Println(e); os.Exit(1) } }
func main() {
  x := context.Background()
  c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], PoolSize: 60, DisableIndentity: true})
  if os.Args[2] == "load" {
    var w sync.WaitGroup
    for i := 0; i < 50; i++ { w.Add(1); go func(i int) { defer w.Done()
      for j := 0; j < 200; j++ { k := fmt.Sprintf("k%d-%d", i, j % 40); must(c.Set(x, k, j, 0).Err()); v, e := c.Get(x, k).Int(); must(e); if v != j { fmt.Println("wrong", v, j); os.Exit(1) } } }(i) }
    w.Wait()
    n, e := c.DBSize(x).Result(); must(e)
    fmt.Println("keys", n)
    return
  }
  s := c.Subscribe(x, "news"); _, e := s.Receive(x); must(e)
  for i := 0; i < 300; i++ { must(c.Publish(x, "news", fmt.Sprint(i)).Err()); m, e := s.ReceiveMessage(x); must(e); if m.Payload != fmt.Sprint(i) { fmt.Println("wrong", m.Payload) } }
  p := c.Pipeline(); for i := 0; i < 5000; i++ { p.Incr(x, "n") }
  r, e := p.Exec(x); must(e)
  fmt.Println(len(r), r[4999].(*redis.IntCmd).Val())
  b := make([]byte, 3000000); must(c.Set(x, "big", b, 0).Err()); g, e := c.Get(x, "big").Bytes(); must(e); fmt.Println(len(g))
}
END
cp "$TOOLS/go-client/go.mod" "$TOOLS/go-client/go.sum" .
HOME=$TOOLS GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off GOMODCACHE=$TOOLS/go-modules GOCACHE=$TOOLS/go-cache go build -o m m.go
echo "built $?"
redis-server --port "$PORT" --bind 127.0.0.1 --save '' --dir "$D" --logfile "$D/log" --daemonize no &
S=$!
await redis-cli -p "$PORT" ping
busy timeout 60 ./m "$PORT" load
timeout 60 ./m "$PORT" rest
echo "client $?"
redis-cli -p "$PORT" shutdown nosave
wait $S
echo "server $?"
