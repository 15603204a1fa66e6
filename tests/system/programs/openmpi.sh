# OpenMPI: four processes over TCP, and over shared memory: a ring, sums, messages of 1 MB.
#: deb=openmpi-bin,libopenmpi-dev,gcc limit=90
cat >m.c <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int n, char **v) { int me, all, i; double s = 0, t; MPI_Init(&n, &v); MPI_Comm_rank(MPI_COMM_WORLD, &me); MPI_Comm_size(MPI_COMM_WORLD, &all);
  static char b[1 << 20]; long x = 0;
  for (i = 0; i < 300; i++) { if (me == 0) { MPI_Send(&x, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD); MPI_Recv(&x, 1, MPI_LONG, all - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
    else { MPI_Recv(&x, 1, MPI_LONG, me - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); x += me; MPI_Send(&x, 1, MPI_LONG, (me + 1) % all, 0, MPI_COMM_WORLD); } }
  for (i = 0; i < 50; i++) { t = me + i; double r; MPI_Allreduce(&t, &r, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); s += r; }
  for (i = 0; i < 10; i++) { b[i] = i + me; MPI_Bcast(b, sizeof b, MPI_CHAR, i % all, MPI_COMM_WORLD); s += b[i]; }
  MPI_Barrier(MPI_COMM_WORLD); if (me == 0) printf("%ld %.0f\n", x, s); MPI_Finalize(); return 0; }
END
mpicc -O1 -o m m.c
echo "compiled $?"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$D OMPI_MCA_orte_tmpdir_base=$D OMPI_MCA_plm_rsh_agent=false OMPI_MCA_mpi_yield_when_idle=1
for net in tcp,self vader,self; do
    timeout 60 mpirun --oversubscribe -np 3 --mca btl $net --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo ./m 2>err
    echo "$net $?"
    grep -v '^$' err | head -5
done
