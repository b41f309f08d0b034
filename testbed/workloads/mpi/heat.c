// The heat equation on a square plate: each rank computes a strip of lines and exchanges its two border lines with its
// neighbours in every step. Rank 0 writes the field as a picture, of which plot.py makes a drawing with axes.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const char USAGE[] = "usage: mpirun -np 4 heat [POINTS [STEPS [PICTURE]]]\n";

static int save(const char *name, const double *field, int n, int steps, int ranks) {
    FILE *picture = fopen(name, "w");
    if (picture == NULL) {
        perror(name);
        return 0;
    }
    fprintf(picture, "P2\n# %d steps on %d ranks\n%d %d 65535\n", steps, ranks, n, n);
    for (int i = 0; i < n * n; i++) {
        fprintf(picture, "%d%c", (int)(field[i] * 65535), i % n == n - 1 ? '\n' : ' ');
    }
    return fclose(picture) == 0;
}

int main(int count, char **arguments) {
    int rank, ranks, saved = 1, n = count > 1 ? atoi(arguments[1]) : 128, steps = count > 2 ? atoi(arguments[2]) : 2000;
    if (n < 1 || steps < 1) {
        return fputs(USAGE, stderr), 2;
    }
    MPI_Init(&count, &arguments);
    const char *name = count > 3 ? arguments[3] : "heat.pgm";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (n < ranks || n % ranks != 0) {
        fprintf(stderr, "heat: the number of points must be a multiple of the number of ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int lines = n / ranks, above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    double *old = calloc((size_t)(lines + 2) * n, sizeof *old), *new = calloc((size_t)(lines + 2) * n, sizeof *new);
    for (int x = 0; x < n && rank == 0; x++) {
        old[n + x] = new[n + x] = 1.0;  // The upper edge of the plate is hot; the other three are cold.
    }
    for (int step = 0; step < steps; step++) {
        MPI_Sendrecv(old + n, n, MPI_DOUBLE, above, 0, old + (lines + 1) * n, n, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(old + lines * n, n, MPI_DOUBLE, below, 0, old, n, MPI_DOUBLE, above, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int y = rank == 0 ? 2 : 1; y <= (rank == ranks - 1 ? lines - 1 : lines); y++) {
            for (int i = y * n + 1; i < y * n + n - 1; i++) {
                new[i] = old[i] + 0.24 * (old[i - 1] + old[i + 1] + old[i - n] + old[i + n] - 4 * old[i]);
            }
        }
        double *swap = old;
        old = new;
        new = swap;
    }
    double *field = rank == 0 ? calloc((size_t)n * n, sizeof *field) : NULL, sum = 0;
    MPI_Gather(old + n, lines * n, MPI_DOUBLE, field, lines * n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < n * n; i++) {
            sum += field[i];
        }
        saved = save(name, field, n, steps, ranks);
        printf("%d steps on %d ranks: mean temperature %.6f, picture in %s\n", steps, ranks, sum / n / n, name);
    }
    MPI_Finalize();
    return saved ? 0 : 1;
}
