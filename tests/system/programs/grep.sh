# grep and ripgrep over files and pipes, fd's list of files by xargs.
#: deb=grep,ripgrep,fd-find,findutils
mkdir tree
for i in $(seq 80); do mkdir -p tree/d$((i % 7)); seq $i 17 $((i * 3000)) >tree/d$((i % 7))/f$i.txt; done
seq 1 1500000 >data
search() {
    cat data | grep 77 | grep -v 777 | grep -c 5
    cat data | grep -o '9[0-9]*8' | sort | uniq | wc -l
    cat data | grep -E '^(12|34).*(56|78)$' | sum
    cat data | rg 77 | rg -v 777 | rg -c 5
    rg -N --no-filename --sort path '9{2,}' tree | wc
    rg --json --sort path 1999 tree | grep -c '"type":"match"'
    fdfind -e txt . tree | sort | xargs cat | grep -c 3
    fdfind -0 -e txt . tree | sort -z | xargs -0 -n 10 grep -h 444 | sum
    find tree -name '*.txt' | sort | xargs wc -l | tail -1
}
busy search
