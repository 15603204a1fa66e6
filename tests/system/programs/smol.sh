# A server and 20 connections on smol (Rust), whose epoll and timer calls are rustix's own, past the C library.
#: made=smol rewrite=on runs=smol-echo
"$TOOLS/made/smol-echo" serve "$PORT" &
await connects "$PORT"
busy timeout 60 "$TOOLS/made/smol-echo" call "$PORT"
echo "client $?"
