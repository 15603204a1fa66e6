# What every script here begins with. PORT, PORT2: ports of its own; the current directory is its own, too; TOOLS: what PyPI and npm gave.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
D=$PWD
trap 'kill $(jobs -p) 2>/dev/null' EXIT
await() { for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return; sleep 0.03; done; echo "never: $*" >&2; exit 1; }
connects() { (exec 3<>/dev/tcp/127.0.0.1/"$1"); }
sum() { sha256sum | cut -c1-64; }
py=$TOOLS/python/bin/python
export NODE_NO_WARNINGS=1 NODE_PATH=$TOOLS/node/node_modules HOME=$D
# busy COMMAND...: the part of a script that is timed; BUSY is the file that gets its beginning and its end.
busy() { local from=$EPOCHREALTIME status=0; "$@" || status=$?; echo "$from $EPOCHREALTIME" >>"${BUSY:-/dev/null}"; return $status; }
