// Prints the resident memory of every rank, after MPI_Init and after it exchanged one message with every other rank, to
// compare what transports need for each peer.
//
//     mpirun -np 4 memory [BYTES OF A MESSAGE]
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage.h"

enum { VALUES = 4 };

static const char USAGE[] = "mpirun -np N memory [BYTES OF A MESSAGE]";

// Reads the resident memory now (VmRSS) and at its highest (VmHWM), in KiB.
static void read_memory(long *now_kib, long *highest_kib) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    *now_kib = *highest_kib = 0;
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            *now_kib = strtol(line + 6, NULL, 10);
        } else if (strncmp(line, "VmHWM:", 6) == 0) {
            *highest_kib = strtol(line + 6, NULL, 10);
        }
    }
    if (status == NULL) {
        perror("/proc/self/status");
    } else {
        fclose(status);
    }
}

static void print_table(const long *all, int ranks) {
    static const char *const NAMES[] = {"rank", "init RSS", "init HWM", "peers RSS", "peers HWM", "difference"};
    for (int i = 0; i < 6; i++) {
        printf("%*s", i == 0 ? 5 : 11, NAMES[i]);
    }
    puts("   (KiB)");
    long sums[VALUES] = {0};
    for (int rank = 0; rank < ranks; rank++) {
        const long *row = all + rank * VALUES;
        printf("%5d%11ld%11ld%11ld%11ld%11ld\n", rank, row[0], row[1], row[2], row[3], row[2] - row[0]);
        for (int i = 0; i < VALUES; i++) {
            sums[i] += row[i];
        }
    }
    printf(" mean%11ld%11ld%11ld%11ld%11ld\n", sums[0] / ranks, sums[1] / ranks, sums[2] / ranks, sums[3] / ranks,
           (sums[2] - sums[0]) / ranks);
}

int main(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    int length = count > 1 ? (int)number(arguments[1], 0, 1 << 30, USAGE) : 1024;
    MPI_Init(&count, &arguments);
    long memory[VALUES];
    read_memory(&memory[0], &memory[1]);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = calloc((size_t)length + 1, 1), *in = calloc((size_t)length + 1, 1);
    for (int distance = 1; distance < ranks; distance++) {
        int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
        MPI_Sendrecv(out, length, MPI_BYTE, to, 1, in, length, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    read_memory(&memory[2], &memory[3]);
    long *all = calloc((size_t)ranks * VALUES, sizeof *all);
    MPI_Gather(memory, VALUES, MPI_LONG, all, VALUES, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("resident memory of %d ranks, one message of %d bytes between each two\n", ranks, length);
        print_table(all, ranks);
    }
    free(all);
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
