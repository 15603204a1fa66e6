# An HTTP server in threads, asyncio at both ends, and a selector.
serve() { python3 "$PROGRAMS/net/asyncio_both.py" serve "$ADDRESS" "$PORT" & }
call() { timeout 40 python3 "$PROGRAMS/net/asyncio_both.py" call "$ADDRESS" "$PORT"; }
