# Go's net/http, server and client, which make their own system calls.
#: deb=golang-go limit=150
cat >m.go <<'END'
package main
import ("fmt"; "hash/crc32"; "io"; "net/http"; "os"; "strings")
func main() {
  if os.Args[1] == "serve" { http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { b, _ := io.ReadAll(r.Body); w.Write(b); io.WriteString(w, r.URL.Path) }); http.ListenAndServe("127.0.0.1:"+os.Args[2], nil) }
  c := crc32.NewIEEE()
  for i := 0; i < 600; i++ { r, e := http.Post(fmt.Sprintf("http://127.0.0.1:%s/%d", os.Args[2], i), "text/plain", strings.NewReader(strings.Repeat("g", i*97%20000))); if e != nil { fmt.Println(e); return }; io.Copy(c, r.Body); r.Body.Close() }
  fmt.Println(c.Sum32())
}
END
HOME=$TOOLS GOFLAGS=-mod=mod GOTOOLCHAIN=local GOCACHE=$TOOLS/go-cache go build -o m m.go
echo "built $?"
./m serve "$PORT" &
await connects "$PORT"
timeout 30 ./m call "$PORT"
echo "client $?"
