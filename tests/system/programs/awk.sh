# GNU awk, mawk and sed as filters, awk's own pipes and co-processes.
#: deb=gawk,mawk,sed
seq 1 200000 | paste - - >data
filters() {
    cat data | gawk '{s += $1; print $2}' | mawk '{s += $1 * 2} END {printf "%.0f\n", s}'
    cat data | sed 's/\([0-9]*\)\t\([0-9]*\)/\2 \1/' | gawk '{print $1 % 97}' | sort -n | uniq -c | sum
    cat data | mawk '{print > "/dev/stdout"} NR % 50000 == 0 {print NR}' | sed -n '/8$/p' | wc -l
    cat data | sed -e '1~3d' -e 's/1/one/g' -e 'y/23/32/' | tr -d o | sum
    gawk 'BEGIN {c = "sort -n"; for (i = 0; i < 30000; i++) print (i * 7919) % 30011 |& c; close(c, "to"); while ((c |& getline x) > 0) n = (n * 31 + x) % 1000003; print n}'
    gawk 'BEGIN {while (("cat data" | getline x) > 0) n += length(x); print n}'
    mawk 'BEGIN {while (("cat data" | getline x) > 0) n += length(x); print n}'
    mawk '{print $1 | "sort -rn | head -3"}' data
}
busy filters
