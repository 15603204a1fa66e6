# Builds Debian's Redis with musl, statically: redis-server-musl, redis-cli-musl and redis-benchmark-musl.
#: deb=musl-tools,make,dpkg-dev,linux-libc-dev
set -eu
mkdir -p apt/parts apt/lists/partial
# The same archives as the system's, for sources.
sed -s 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/*.sources >apt/parts/all.sources 2>/dev/null || true
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list >apt/parts/all.list 2>/dev/null || true
get() { apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/parts" -o Dir::State::lists="$PWD/apt/lists" "$@"; }
get update
get source redis
cd redis-*/
# The kernel's headers are where the C library's are; musl's own come first.
make -j2 -C src redis-server redis-cli redis-benchmark CC=musl-gcc MALLOC=libc USE_SYSTEMD=no LDFLAGS=-static CFLAGS="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
for name in server cli benchmark; do cp "src/redis-$name" "$MADE/redis-$name-musl"; done
