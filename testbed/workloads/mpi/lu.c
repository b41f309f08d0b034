// A wavefront on a two-dimensional grid of processes: the communication of the NAS kernel LU, written anew. It solves a
// seven-point problem with five coupled unknowns a point by symmetric successive over-relaxation (SSOR). Each plane of a
// sweep needs the edges of its neighbours first, so many small messages follow each other through the grid like a wave.
// The residual is verified against a run of the kernel on one process; the exit status is 1 if they differ.
//
//     mpirun -np 4 lu [S|W|A]
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "completed.h"
#include "usage.h"

static const char USAGE[] = "mpirun -np N lu [S|W|A]";

enum { UNKNOWNS = 5, MOST_ITERATIONS = 60, TAG_LOWER = 1, TAG_UPPER = 2, TAG_FACE = 3 };

static const double RELAXATION = 1.2, DIAGONAL = 6.1, COUPLING = 0.05;

typedef struct class {
    char name;
    int points;
    int iterations;
} class;

static const class CLASSES[] = {{'S', 12, 50}, {'W', 33, 60}, {'A', 64, 40}};

// One value for each unknown.
typedef struct point {
    double of[UNKNOWNS];
} point;

// The part of the field that one process has, with one layer of points of its neighbours around it.
typedef struct part {
    MPI_Comm comm;
    int points;
    // The neighbours, and the first point and the number of points in each of the two divided dimensions.
    int west, east, south, north;
    int x_first, y_first;
    int nx, ny;
    point *u;
    point *residual;
    // The right-hand side of the equations.
    point *f;
    point *edge;
    long messages;
} part;

static size_t at(const part *part, int x, int y, int z) {
    return ((size_t)(z + 1) * (size_t)(part->ny + 2) + (size_t)(y + 1)) * (size_t)(part->nx + 2) + (size_t)(x + 1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "lu: no memory for %zu elements\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static void fill_source(part *part) {
    double h = 1.0 / (part->points + 1);
    for (int z = 0; z < part->points; z++) {
        for (int y = 0; y < part->ny; y++) {
            for (int x = 0; x < part->nx; x++) {
                double px = (part->x_first + x + 1) * h, py = (part->y_first + y + 1) * h, pz = (z + 1) * h;
                for (int m = 0; m < UNKNOWNS; m++) {
                    part->f[at(part, x, y, z)].of[m] = sin(3.0 * px + m) * cos(2.0 * py) + pz * (1.0 + 0.1 * m);
                }
            }
        }
    }
}

static part new_part(MPI_Comm processes, int points) {
    part part = {.points = points};
    int count, rank, sizes[2] = {0, 0}, periodic[2] = {0, 0}, place[2];
    MPI_Comm_size(processes, &count);
    MPI_Dims_create(count, 2, sizes);
    MPI_Cart_create(processes, 2, sizes, periodic, 0, &part.comm);
    MPI_Comm_rank(part.comm, &rank);
    MPI_Cart_coords(part.comm, rank, 2, place);
    MPI_Cart_shift(part.comm, 0, 1, &part.west, &part.east);
    MPI_Cart_shift(part.comm, 1, 1, &part.south, &part.north);
    part.x_first = points * place[0] / sizes[0];
    part.nx = points * (place[0] + 1) / sizes[0] - part.x_first;
    part.y_first = points * place[1] / sizes[1];
    part.ny = points * (place[1] + 1) / sizes[1] - part.y_first;
    size_t total = (size_t)(part.nx + 2) * (size_t)(part.ny + 2) * (size_t)(points + 2);
    part.u = allocate(total, sizeof(point));
    part.residual = allocate(total, sizeof(point));
    part.f = allocate(total, sizeof(point));
    fill_source(&part);
    part.edge = allocate((size_t)(part.nx + part.ny) * (size_t)points, sizeof(point));
    return part;
}

static void free_part(part *part) {
    free(part->u);
    free(part->residual);
    free(part->f);
    free(part->edge);
    MPI_Comm_free(&part->comm);
}

// Copies an edge of points, along x or along y, between the field and the message buffer, for planes z0 to z1 - 1.
static int copy_edge(part *part, point *field, bool along_x, int fixed, int z0, int z1, bool into_field) {
    int used = 0, length = along_x ? part->nx : part->ny;
    for (int z = z0; z < z1; z++) {
        for (int i = 0; i < length; i++) {
            point *place = &field[along_x ? at(part, i, fixed, z) : at(part, fixed, i, z)];
            if (into_field) {
                *place = part->edge[used++];
            } else {
                part->edge[used++] = *place;
            }
        }
    }
    return used * UNKNOWNS;
}

static void send_edge(part *part, point *field, bool along_x, int fixed, int z0, int z1, int to, int tag) {
    if (to != MPI_PROC_NULL) {
        int count = copy_edge(part, field, along_x, fixed, z0, z1, false);
        MPI_Send(part->edge, count, MPI_DOUBLE, to, tag, part->comm);
        part->messages++;
    }
}

static void receive_edge(part *part, point *field, bool along_x, int fixed, int z0, int z1, int from, int tag) {
    if (from != MPI_PROC_NULL) {
        int count = (along_x ? part->nx : part->ny) * (z1 - z0) * UNKNOWNS;
        MPI_Recv(part->edge, count, MPI_DOUBLE, from, tag, part->comm, MPI_STATUS_IGNORE);
        copy_edge(part, field, along_x, fixed, z0, z1, true);
    }
}

// Exchanges whole faces of u with one pair of neighbours: what leaves on one side arrives on the other.
static void exchange_faces(part *part, bool along_x, int low, int high) {
    int length = along_x ? part->nx : part->ny, edge = along_x ? part->ny : part->nx, planes = part->points;
    size_t total = (size_t)length * (size_t)planes;
    point *in = allocate(total, sizeof(point));
    int count = (int)total * UNKNOWNS;
    for (int up = 0; up < 2; up++) {
        int to = up ? high : low, from = up ? low : high;
        copy_edge(part, part->u, along_x, up ? edge - 1 : 0, 0, planes, false);
        MPI_Sendrecv(part->edge, count, MPI_DOUBLE, to, TAG_FACE, in, count, MPI_DOUBLE, from, TAG_FACE, part->comm,
                     MPI_STATUS_IGNORE);
        part->messages += to != MPI_PROC_NULL;
        if (from != MPI_PROC_NULL) {
            for (size_t i = 0; i < total; i++) {
                part->edge[i] = in[i];
            }
            copy_edge(part, part->u, along_x, up ? -1 : edge, 0, planes, true);
        }
    }
    free(in);
}

// residual = f - A u, where A has DIAGONAL on the diagonal, -1 to the six neighbours, and couples each unknown to the next.
// Returns the sum of the squares over all processes.
static double compute_residual(part *part) {
    exchange_faces(part, false, part->west, part->east);
    exchange_faces(part, true, part->south, part->north);
    const point *u = part->u;
    double sum = 0.0, total = 0.0;
    for (int z = 0; z < part->points; z++) {
        for (int y = 0; y < part->ny; y++) {
            for (int x = 0; x < part->nx; x++) {
                const size_t here = at(part, x, y, z), line = (size_t)part->nx + 2, plane = line * ((size_t)part->ny + 2);
                for (int m = 0; m < UNKNOWNS; m++) {
                    double around = u[here - 1].of[m] + u[here + 1].of[m] + u[here - line].of[m] + u[here + line].of[m] +
                                    u[here - plane].of[m] + u[here + plane].of[m];
                    double coupled = COUPLING * u[here].of[(m + 1) % UNKNOWNS];
                    double r = part->f[here].of[m] - (DIAGONAL * u[here].of[m] - around + coupled);
                    part->residual[here].of[m] = r;
                    sum += r * r;
                }
            }
        }
    }
    MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, part->comm);
    return total;
}

// One plane of a sweep: d = (r + w (sum of d at the three neighbours that come first)) / DIAGONAL, in place of r.
static void sweep_plane(part *part, int z, int direction) {
    point *d = part->residual;
    const size_t line = (size_t)part->nx + 2, plane = line * ((size_t)part->ny + 2);
    for (int j = 0; j < part->ny; j++) {
        int y = direction > 0 ? j : part->ny - 1 - j;
        for (int i = 0; i < part->nx; i++) {
            int x = direction > 0 ? i : part->nx - 1 - i;
            size_t here = at(part, x, y, z);
            size_t a = direction > 0 ? here - 1 : here + 1, b = direction > 0 ? here - line : here + line;
            size_t c = direction > 0 ? here - plane : here + plane;
            for (int m = 0; m < UNKNOWNS; m++) {
                d[here].of[m] = (d[here].of[m] + RELAXATION * (d[a].of[m] + d[b].of[m] + d[c].of[m])) / DIAGONAL;
            }
        }
    }
}

static void lower_sweep(part *part) {
    point *d = part->residual;
    for (int z = 0; z < part->points; z++) {
        receive_edge(part, d, false, -1, z, z + 1, part->west, TAG_LOWER);
        receive_edge(part, d, true, -1, z, z + 1, part->south, TAG_LOWER);
        sweep_plane(part, z, 1);
        send_edge(part, d, false, part->nx - 1, z, z + 1, part->east, TAG_LOWER);
        send_edge(part, d, true, part->ny - 1, z, z + 1, part->north, TAG_LOWER);
    }
}

static void upper_sweep(part *part) {
    point *d = part->residual;
    for (int z = part->points - 1; z >= 0; z--) {
        receive_edge(part, d, false, part->nx, z, z + 1, part->east, TAG_UPPER);
        receive_edge(part, d, true, part->ny, z, z + 1, part->north, TAG_UPPER);
        sweep_plane(part, z, -1);
        send_edge(part, d, false, 0, z, z + 1, part->west, TAG_UPPER);
        send_edge(part, d, true, 0, z, z + 1, part->south, TAG_UPPER);
    }
}

// Adds the factor times the residual's field to u (`into_u`), or only scales the field.
static void scale(part *part, double factor, bool into_u) {
    for (int z = 0; z < part->points; z++) {
        for (int y = 0; y < part->ny; y++) {
            for (int x = 0; x < part->nx; x++) {
                size_t here = at(part, x, y, z);
                for (int m = 0; m < UNKNOWNS; m++) {
                    double value = factor * part->residual[here].of[m];
                    if (into_u) {
                        part->u[here].of[m] += value;
                    } else {
                        part->residual[here].of[m] = value;
                    }
                }
            }
        }
    }
}

// What is outside of the field, and what neighbours have, counts as 0 where a sweep begins.
static void clear_border(part *part) {
    const point zero = {{0}};
    for (int z = -1; z <= part->points; z++) {
        for (int y = -1; y <= part->ny; y++) {
            for (int x = -1; x <= part->nx; x++) {
                if (x < 0 || y < 0 || z < 0 || x == part->nx || y == part->ny || z == part->points) {
                    part->residual[at(part, x, y, z)] = zero;
                }
            }
        }
    }
}

typedef struct result {
    // The norm of the residual at the start and after every iteration.
    double norms[MOST_ITERATIONS + 1];
    double seconds;
    double messages;
} result;

// Solves on all processes of the communicator.
static result solve(MPI_Comm processes, const class *class) {
    part part = new_part(processes, class->points);
    result result = {.norms = {sqrt(compute_residual(&part))}};
    MPI_Barrier(part.comm);
    double start = MPI_Wtime();
    for (int i = 0; i < class->iterations; i++) {
        clear_border(&part);
        lower_sweep(&part);
        scale(&part, DIAGONAL, false);
        clear_border(&part);
        upper_sweep(&part);
        scale(&part, RELAXATION * (2.0 - RELAXATION), true);
        result.norms[i + 1] = sqrt(compute_residual(&part));
    }
    double mine = MPI_Wtime() - start, messages = (double)part.messages;
    MPI_Allreduce(&mine, &result.seconds, 1, MPI_DOUBLE, MPI_MAX, part.comm);
    MPI_Allreduce(&messages, &result.messages, 1, MPI_DOUBLE, MPI_SUM, part.comm);
    free_part(&part);
    return result;
}

static class class_of(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    char name = count > 1 ? arguments[1][0] : 'S';
    for (size_t i = 0; i < sizeof CLASSES / sizeof CLASSES[0]; i++) {
        if (CLASSES[i].name == name && (count < 2 || arguments[1][1] == 0)) {
            return CLASSES[i];
        }
    }
    fprintf(stderr, "usage: %s\n", USAGE);
    exit(2);
}

// Whether the norms of all iterations agree with the serial run and become smaller. Only the order of their sums differs; a
// wrong value in any message would show, even if later iterations mended it.
static bool is_verified(const class *class, const result *parallel, const result *serial) {
    bool equal = true;
    for (int i = 0; i <= class->iterations; i++) {
        equal = equal && fabs(parallel->norms[i] - serial->norms[i]) <= 1e-11 * serial->norms[i];
    }
    return equal && parallel->norms[class->iterations] < 0.5 * parallel->norms[0];
}

static void print_result(const class *class, int ranks, const result *parallel, const result *serial, bool successful) {
    int last = class->iterations;
    printf(" Residual at the start    %.13e\n Residual at the end      %.13e\n Residual of a serial run %.13e\n",
           parallel->norms[0], parallel->norms[last], serial->norms[last]);
    double points = pow(class->points, 3);
    // Two sweeps of 6 operations and a residual of about 12, for each unknown.
    double operations = points * UNKNOWNS * 24.0 * class->iterations;
    print_completed(&(completed){
        .name = "LU",
        .class = class->name,
        .points = class->points,
        .iterations = class->iterations,
        .ranks = ranks,
        .seconds = parallel->seconds,
        .operations = operations,
        .messages = parallel->messages,
        .successful = successful,
    });
}

int main(int count, char **arguments) {
    class class = class_of(count, arguments);
    MPI_Init(&count, &arguments);
    int rank, ranks, successful = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > class.points * class.points / 4) {
        if (rank == 0) {
            fprintf(stderr, "lu: class %c is too small for %d processes\n", class.name, ranks);
        }
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        printf(" SSOR wavefront\n Size: %4dx%4dx%4d  (class %c)\n Iterations: %d\n Number of processes: %d\n\n",
               class.points, class.points, class.points, class.name, class.iterations, ranks);
    }
    result parallel = solve(MPI_COMM_WORLD, &class);
    if (rank == 0) {
        result serial = solve(MPI_COMM_SELF, &class);
        successful = is_verified(&class, &parallel, &serial);
        print_result(&class, ranks, &parallel, &serial, successful);
    }
    MPI_Bcast(&successful, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return successful ? 0 : 1;
}
