// A rank that dies while the others send to it and wait for it: dying killed|exited|none [SECONDS]
//
// Each rank sends short and long messages to the next one. In the middle, the last rank kills itself, or ends without MPI_Finalize. With
// `none` all go on for some seconds (60), for tests that take the network away; rank 0 prints "running" once messages flow.
#define _POSIX_C_SOURCE 200809L

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "usage.h"

static const char USAGE[] = "mpirun -np N dying killed|exited|none [SECONDS]";

enum { LONG_BYTES = 100000, SHORT_BYTES = 8, MIDDLE = 300 };

int main(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    const char *how = count > 1 ? arguments[1] : "none";
    long seconds = count > 2 ? number(arguments[2], 1, 86400, USAGE) : 60;
    if (strcmp(how, "killed") != 0 && strcmp(how, "exited") != 0 && strcmp(how, "none") != 0) {
        fprintf(stderr, "usage: %s\n", USAGE);
        return 2;
    }
    MPI_Init(&count, &arguments);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double end = MPI_Wtime() + (double)seconds;
    static char sent[LONG_BYTES], received[LONG_BYTES];
    // Rank 0 alone looks at the clock: all ranks do the same number of steps.
    for (int step = 0, goes_on = 1; goes_on; step++) {
        if (step == MIDDLE && rank == 0) {
            puts("running");
            fflush(stdout);
        }
        if (step == MIDDLE && rank == ranks - 1) {
            if (strcmp(how, "killed") == 0) {
                kill(getpid(), SIGKILL);
            } else if (strcmp(how, "exited") == 0) {
                exit(0);
            }
        }
        int length = step % 3 == 0 ? LONG_BYTES : SHORT_BYTES;
        MPI_Sendrecv(sent, length, MPI_BYTE, (rank + 1) % ranks, 1, received, length, MPI_BYTE, (rank + ranks - 1) % ranks, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (step % 100 == 0) {
            goes_on = MPI_Wtime() < end;
            MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}
