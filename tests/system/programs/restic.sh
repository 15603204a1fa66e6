# restic: backups into a repository behind rclone, which it speaks with by pipes, and from standard input; restores.
#: deb=restic,rclone load=on runs=restic,rclone limit=150
export RESTIC_PASSWORD=x RESTIC_CACHE_DIR=$D/cache RCLONE_CONFIG=$D/conf RESTIC_REPOSITORY=rclone:$D/repo
: >conf
mkdir src
for i in $(seq 40); do seq $i $((i * 500)) >src/f$i; done
restic init -q
echo "init $?"
backup() {
    restic backup -q src
    restic restore -q latest --target out && diff -r src out/src && echo same
    seq 1 100000 | restic backup -q --stdin --stdin-filename n
    restic dump -q latest n | sum
    restic check -q && echo checked
}
busy backup
restic snapshots -q --json | grep -o '"short_id"' | wc -l
