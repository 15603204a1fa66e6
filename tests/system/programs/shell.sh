# Pipelines.
#: deb=gzip limit=90
mkdir tree
for i in $(seq 60); do seq 1 $((i * 100)) >tree/file$i; done
for n in 1 2 3; do
    tar c --sort=name tree | gzip -1 | gunzip | tar t | sum
    tar c --sort=name --mtime=@0 --owner=0 --group=0 tree | gzip -9n | gunzip | sum
    seq 1 300000 | sort -n | tail -1
    yes | head -c 20M | sha256sum
    seq 1 200000 | cat | grep 7 | wc
    cat tree/* | tee >(wc -l >lines) | cat | md5sum
    yes | (sleep 0.05; read -r x; echo "$x")
    # head closes its input before it writes its output, so only one of the two lines is shown.
    (yes; echo "yes $?" >&2) | head -1 > /dev/null
    echo "${PIPESTATUS[@]}"
    while read -r a b; do echo "$b$a"; done < <(seq 1 3000 | paste - -) | sum
done 2>&1
