/* Messages of several lengths between all pairs of ranks, and a sum over all. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char sent[1 << 20], got[1 << 20];

int main(int count, char **arguments) {
    int rank, ranks, sum = 0;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int len = 1; len <= 1 << 20; len *= 32) {
        for (int shift = 1; shift < ranks; shift++) {
            int to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
            memset(sent, rank + len, len);
            MPI_Sendrecv(sent, len, MPI_BYTE, to, 0, got, len, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 0; at < len; at++)
                if (got[at] != (char)(from + len))
                    MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
