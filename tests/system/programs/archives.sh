# tar by gzip, bzip2, xz, zstd and lz4, both ways, and cpio, by pipes.
#: deb=tar,gzip,bzip2,xz-utils,zstd,lz4,cpio limit=90
mkdir tree
for i in $(seq 40); do seq $i $((i * 150)) >tree/f$i; done
head -c 4M /dev/zero >tree/zero
pack() {
    local how
    for how in 'gzip -1' 'bzip2 -1' 'xz -0 -T1' 'zstd -q -1' 'lz4 -q -1'; do
        tar c --sort=name --mtime=@0 --owner=0 --group=0 tree | $how -c | $how -dc | tar xO | sum
    done
    tar c --sort=name tree | (mkdir -p out && cd out && tar x) && diff -r tree out/tree && echo same
    find tree -type f | sort | cpio -o --quiet -H newc | cpio -t --quiet | sum
    tar c --sort=name tree | tar t | wc -l
    tar c --use-compress-program='zstd -q' -f a.tzst tree && tar t --use-compress-program='zstd -q' -f a.tzst | sort | sum
}
busy pack
