# Go's net/http, server and client, which make their own system calls: one after the other, then 50 connections at once.
#: deb=golang-go load=on runs=m limit=150
cat >m.go <<'END'
package main
import ("fmt"; "hash/crc32"; "io"; "net/http"; "os"; "strings"; "sync")
func ask(c *http.Client, i int) []byte { r, e := c.Post(fmt.Sprintf("http://127.0.0.1:%s/%d", os.Args[2], i), "text/plain", strings.NewReader(strings.Repeat("g", i*97%20000))); if e != nil { fmt.Println(e); os.Exit(1) }; b, _ := io.ReadAll(r.Body); r.Body.Close(); return b }
func main() {
  if os.Args[1] == "serve" { http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { b, _ := io.ReadAll(r.Body); w.Write(b); io.WriteString(w, r.URL.Path) }); http.ListenAndServe("127.0.0.1:"+os.Args[2], nil) }
  c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}
  if os.Args[1] == "call" { s := crc32.NewIEEE(); for i := 0; i < 800; i++ { s.Write(ask(c, i)) }; fmt.Println(s.Sum32()); return }
  var w sync.WaitGroup
  sums := make([]uint32, 50)
  for n := range sums { w.Add(1); go func(n int) { defer w.Done(); s := crc32.NewIEEE(); for i := 0; i < 60; i++ { s.Write(ask(c, i * n % 60)) }; sums[n] = s.Sum32() }(n) }
  w.Wait()
  fmt.Println(sums)
}
END
HOME=$TOOLS GOFLAGS=-mod=mod GOTOOLCHAIN=local GOCACHE=$TOOLS/go-cache go build -o m m.go
echo "built $?"
./m serve "$PORT" &
await connects "$PORT"
busy timeout 30 ./m call "$PORT"
echo "client $?"
busy timeout 60 ./m many "$PORT" | sum
