# xargs, GNU parallel, zstd and pigz with threads, mapfile, coprocesses, named pipes.
#: deb=zstd,pigz,parallel,coreutils
seq 1 400000 >data
zstd -q -T2 -c data | zstd -dc | sum
pigz -p 2 -c data | pigz -dc | sum
tar c data | zstd -q -T2 | zstd -dc | tar xO | sum
seq 1 60 | xargs -P 4 -n 5 sh -c 'seq 1 $((100 * $1)) | wc -l' - | sort -n | sum
seq 1 30 | parallel --will-cite -k -j 4 'seq 1 {}000 | sort -rn | head -1' | sum
parallel --will-cite --pipe -j 2 --block 200k wc -l <data | awk '{n += $1} END {print n}'
mkfifo f
(for i in $(seq 2000); do echo "line $i"; done >f) &
sum <f
coproc C { while read -r x; do echo "$((x * 2))"; done; }
for i in $(seq 500); do echo "$i" >&"${C[1]}"; read -r y <&"${C[0]}"; s=$((${s:-0} + y)); done
echo "$s"
mapfile -t lines < <(seq 1 30000)
echo "${#lines[@]} ${lines[29999]}"
split -n l/4 --filter='sort -rn | tail -1' data
sort --parallel=2 -S 1M -rn data | sum
