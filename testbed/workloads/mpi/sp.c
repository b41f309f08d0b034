// Alternating directions on a multi-partition of a cube: the communication of the NAS kernel SP, written anew. Each time step of
// a nonlinear diffusion of five unknowns a point exchanges faces two points deep and solves scalar pentadiagonal systems along
// x, y and z. With q x q processes the cube has q x q x q cells, of which each process has q, so placed that a sweep in any
// direction gives every process one cell at each of its q stages: a few messages of some ten KiB at every stage.
// The residual is verified against a run of the kernel on one process; the exit status is 1 if they differ.
//
//     mpirun -np 4 sp [S|W|A]
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "completed.h"
#include "usage.h"

static const char USAGE[] = "mpirun -np N sp [S|W|A], where N is 1, 4, 9, 16, ...";

enum { UNKNOWNS = 5, AXES = 3, DEPTH = 2, MOST_ITERATIONS = 100, TAG_FACE = 1, TAG_FORWARD = 9, TAG_BACK = 10 };

static const double STEP = 0.4, DISSIPATION = 0.05;

typedef struct class {
    char name;
    int points;
    int iterations;
} class;

static const class CLASSES[] = {{'S', 12, 100}, {'W', 36, 60}, {'A', 64, 30}};

// One value for each unknown.
typedef struct point {
    double of[UNKNOWNS];
} point;

// A row of a pentadiagonal system behind the elimination: its diagonal is 1, below it is nothing.
typedef struct row {
    double first, second;
} row;

// A cell has a border of two points of its neighbours; what is outside of the cube is 0.
typedef struct cell {
    int place[AXES];
    point *u;
    // The right-hand side, which the sweeps turn into the change of u.
    point *change;
    point *source;
    row *rows;
} cell;

typedef struct part {
    MPI_Comm comm;
    int q;
    // Points of a cell along an edge, and with the borders.
    int n, side;
    // Distance of neighbours along each axis.
    size_t stride[AXES];
    // The processes that have the neighbours of all cells, before and behind them along each axis.
    int before[AXES], behind[AXES];
    cell *cells;
    // A message for each of the six sides, out and in.
    double *out[2 * AXES], *in[2 * AXES];
    long messages;
} part;

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "sp: no memory for %zu elements\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static size_t at(const part *part, int x, int y, int z) {
    size_t side = (size_t)part->side;
    return ((size_t)(z + DEPTH) * side + (size_t)(y + DEPTH)) * side + (size_t)(x + DEPTH);
}

// The first point of a line along an axis, which crosses the other two axes at a and b.
static size_t line(const part *part, int axis, int a, int b) {
    return at(part, 0, 0, 0) + (size_t)a * part->stride[(axis + 1) % AXES] + (size_t)b * part->stride[(axis + 2) % AXES];
}

static void fill_source(const part *part, cell *cell, int points) {
    double h = 1.0 / (points + 1);
    for (int z = 0; z < part->n; z++) {
        for (int y = 0; y < part->n; y++) {
            for (int x = 0; x < part->n; x++) {
                double px = (cell->place[0] * part->n + x + 1) * h, py = (cell->place[1] * part->n + y + 1) * h;
                double pz = (cell->place[2] * part->n + z + 1) * h;
                for (int m = 0; m < UNKNOWNS; m++) {
                    cell->source[at(part, x, y, z)].of[m] = sin(3.0 * px + m) * cos(2.0 * py) + pz * (1.0 + 0.1 * m);
                }
            }
        }
    }
}

static int rank_of(int q, int i, int j) {
    return (i + q) % q * q + (j + q) % q;
}

static part new_part(MPI_Comm processes, int points) {
    part part = {.comm = processes};
    int count, rank;
    MPI_Comm_size(processes, &count);
    MPI_Comm_rank(processes, &rank);
    part.q = (int)lround(sqrt(count));
    part.n = points / part.q;
    part.side = part.n + 2 * DEPTH;
    size_t side = (size_t)part.side, total = side * side * side;
    part.stride[0] = 1;
    part.stride[1] = side;
    part.stride[2] = side * side;
    // The process (i, j) has the cells ((i + c) mod q, (j + c) mod q, c).
    int q = part.q, i = rank / q, j = rank % q;
    const int behind[AXES] = {rank_of(q, i + 1, j), rank_of(q, i, j + 1), rank_of(q, i - 1, j - 1)};
    const int before[AXES] = {rank_of(q, i - 1, j), rank_of(q, i, j - 1), rank_of(q, i + 1, j + 1)};
    part.cells = allocate((size_t)q, sizeof *part.cells);
    for (int c = 0; c < q; c++) {
        cell *cell = &part.cells[c];
        cell->place[0] = (i + c) % q;
        cell->place[1] = (j + c) % q;
        cell->place[2] = c;
        cell->u = allocate(total, sizeof(point));
        cell->change = allocate(total, sizeof(point));
        cell->source = allocate(total, sizeof(point));
        cell->rows = allocate(total, sizeof(row));
        fill_source(&part, cell, points);
    }
    // The largest messages have two points with their rows for every line, or a face of every cell but one.
    size_t face = (size_t)(part.n * part.n) * DEPTH, largest = face * (UNKNOWNS + 2) * (size_t)q;
    for (int axis = 0; axis < AXES; axis++) {
        part.behind[axis] = behind[axis];
        part.before[axis] = before[axis];
        for (int end = 0; end < 2; end++) {
            part.out[2 * axis + end] = allocate(largest, sizeof(double));
            part.in[2 * axis + end] = allocate(largest, sizeof(double));
        }
    }
    return part;
}

static void free_part(part *part) {
    for (int c = 0; c < part->q; c++) {
        free(part->cells[c].u);
        free(part->cells[c].change);
        free(part->cells[c].source);
        free(part->cells[c].rows);
    }
    for (int message = 0; message < 2 * AXES; message++) {
        free(part->out[message]);
        free(part->in[message]);
    }
    free(part->cells);
}

// Copies two layers of points, which begin at `first` along an axis, between a field and a message. Returns the numbers used.
static int copy_layers(const part *part, point *field, int axis, int first, double *message, bool into_field) {
    int used = 0;
    for (int a = 0; a < part->n; a++) {
        for (int b = 0; b < part->n; b++) {
            for (int layer = first; layer < first + DEPTH; layer++) {
                point *place = field + (ptrdiff_t)line(part, axis, a, b) + layer * (ptrdiff_t)part->stride[axis];
                for (int m = 0; m < UNKNOWNS; m++, used++) {
                    if (into_field) {
                        place->of[m] = message[used];
                    } else {
                        message[used] = place->of[m];
                    }
                }
            }
        }
    }
    return used;
}

// Copies what the neighbours at one end of an axis need of all cells that have one there, or what they sent.
static int copy_side(const part *part, int axis, bool behind, double *message, bool into_border) {
    int used = 0, last = behind ? part->q - 1 : 0;
    int inside = behind ? part->n - DEPTH : 0, border = behind ? part->n : -DEPTH;
    for (int c = 0; c < part->q; c++) {
        // Both processes go through their cells in the order along z, so faces arrive in the order in which they are wanted.
        const cell *cell = &part->cells[c];
        if (cell->place[axis] != last) {
            used += copy_layers(part, cell->u, axis, into_border ? border : inside, message + used, into_border);
        }
    }
    return used;
}

static void exchange_faces(part *part) {
    MPI_Request requests[4 * AXES];
    int count = 0, numbers = part->n * part->n * DEPTH * UNKNOWNS * (part->q - 1);
    if (part->q == 1) {
        return;
    }
    for (int axis = 0; axis < AXES; axis++) {
        for (int end = 0; end < 2; end++) {
            int other = end ? part->behind[axis] : part->before[axis], message = 2 * axis + end;
            // What is sent to the end behind arrives as what came from before.
            MPI_Irecv(part->in[message], numbers, MPI_DOUBLE, other, TAG_FACE + 2 * axis + !end, part->comm, &requests[count++]);
        }
    }
    for (int axis = 0; axis < AXES; axis++) {
        for (int end = 0; end < 2; end++) {
            int other = end ? part->behind[axis] : part->before[axis], message = 2 * axis + end;
            copy_side(part, axis, end, part->out[message], false);
            MPI_Isend(part->out[message], numbers, MPI_DOUBLE, other, TAG_FACE + 2 * axis + end, part->comm, &requests[count++]);
            part->messages++;
        }
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int message = 0; message < 2 * AXES; message++) {
        copy_side(part, message / 2, message % 2, part->in[message], true);
    }
}

// How well the first unknown lets all of them spread at a point.
static double conductivity(const point *u) {
    double square = u->of[0] * u->of[0];
    return 1.0 + 0.1 * square / (1.0 + square);
}

// change = STEP * (source - (D2 + DISSIPATION * D4) u) with differences of second and fourth order. Returns the sum of the
// squares over the cells of this process.
static double compute_change(part *part) {
    double sum = 0.0;
    for (int c = 0; c < part->q; c++) {
        cell *cell = &part->cells[c];
        for (int z = 0; z < part->n; z++) {
            for (int y = 0; y < part->n; y++) {
                for (int x = 0; x < part->n; x++) {
                    const size_t here = at(part, x, y, z);
                    const point *u = cell->u + here;
                    double k = conductivity(u);
                    for (int m = 0; m < UNKNOWNS; m++) {
                        double spread = 0.0;
                        for (int axis = 0; axis < AXES; axis++) {
                            const ptrdiff_t s = (ptrdiff_t)part->stride[axis];
                            double near = u[-s].of[m] + u[s].of[m], far = u[-2 * s].of[m] + u[2 * s].of[m];
                            spread += near - 2.0 * u->of[m] - DISSIPATION * (far - 4.0 * near + 6.0 * u->of[m]);
                        }
                        double change = STEP * (cell->source[here].of[m] + k * spread);
                        cell->change[here].of[m] = change;
                        sum += change * change;
                    }
                }
            }
        }
    }
    return sum;
}

// Eliminates a line from its first point to its last; the two points before it have been eliminated.
static void eliminate(const part *part, cell *cell, int axis, size_t first) {
    const size_t s = part->stride[axis];
    for (size_t i = first, end = first + (size_t)part->n * s; i < end; i += s) {
        double k = STEP * conductivity(&cell->u[i]);
        double outer = k * DISSIPATION, inner = -k * (1.0 + 4.0 * DISSIPATION), diagonal = 1.0 + k * (2.0 + 6.0 * DISSIPATION);
        const row *two = &cell->rows[i - 2 * s], *one = &cell->rows[i - s];
        double lower = inner - outer * two->first;
        double pivot = 1.0 / (diagonal - outer * two->second - lower * one->first);
        cell->rows[i].first = (inner - lower * one->second) * pivot;
        cell->rows[i].second = outer * pivot;
        for (int m = 0; m < UNKNOWNS; m++) {
            double *d = &cell->change[i].of[m];
            *d = (*d - outer * cell->change[i - 2 * s].of[m] - lower * cell->change[i - s].of[m]) * pivot;
        }
    }
}

// Solves an eliminated line from its last point to its first; the two points behind it are solved.
static void substitute(const part *part, cell *cell, int axis, size_t first) {
    const size_t s = part->stride[axis];
    for (int place = part->n - 1; place >= 0; place--) {
        size_t i = first + (size_t)place * s;
        for (int m = 0; m < UNKNOWNS; m++) {
            cell->change[i].of[m] -= cell->rows[i].first * cell->change[i + s].of[m] + cell->rows[i].second * cell->change[i + 2 * s].of[m];
        }
    }
}

// Copies the rows of two layers of points between a cell and a message.
static int copy_rows(const part *part, cell *cell, int axis, int first, double *message, bool into_cell) {
    int used = 0;
    for (int a = 0; a < part->n; a++) {
        for (int b = 0; b < part->n; b++) {
            for (int layer = first; layer < first + DEPTH; layer++, used += 2) {
                row *place = cell->rows + (ptrdiff_t)line(part, axis, a, b) + layer * (ptrdiff_t)part->stride[axis];
                if (into_cell) {
                    *place = (row){message[used], message[used + 1]};
                } else {
                    message[used] = place->first;
                    message[used + 1] = place->second;
                }
            }
        }
    }
    return used;
}

// What is outside of the cube is 0 on both ends of all lines, for the rows and for the change.
static void clear_border(const part *part, cell *cell, int axis, int first) {
    const point zero = {{0}};
    for (int a = 0; a < part->n; a++) {
        for (int b = 0; b < part->n; b++) {
            for (int layer = first; layer < first + DEPTH; layer++) {
                ptrdiff_t place = (ptrdiff_t)line(part, axis, a, b) + layer * (ptrdiff_t)part->stride[axis];
                cell->change[place] = zero;
                cell->rows[place] = (row){0.0, 0.0};
            }
        }
    }
}

static cell *cell_at_stage(const part *part, int axis, int stage) {
    for (int c = 0; c < part->q; c++) {
        if (part->cells[c].place[axis] == stage) {
            return &part->cells[c];
        }
    }
    fprintf(stderr, "sp: no cell at stage %d\n", stage);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return NULL;
}

static void all_lines(const part *part, cell *cell, int axis, void (*solve)(const struct part *, struct cell *, int, size_t)) {
    for (int b = 0; b < part->n; b++) {
        for (int a = 0; a < part->n; a++) {
            solve(part, cell, axis, line(part, axis, a, b));
        }
    }
}

// Sends the last points of a cell that the next process needs, or the first ones, while this one goes on.
static MPI_Request send_points(part *part, int count, int to, int tag) {
    MPI_Request sent;
    MPI_Isend(part->out[0], count, MPI_DOUBLE, to, tag, part->comm, &sent);
    part->messages++;
    return sent;
}

static void sweep(part *part, int axis) {
    MPI_Request sent = MPI_REQUEST_NULL;
    int points = part->n * part->n * DEPTH * UNKNOWNS, rows = part->n * part->n * DEPTH * 2;
    for (int stage = 0; stage < part->q; stage++) {
        cell *cell = cell_at_stage(part, axis, stage);
        if (stage == 0) {
            clear_border(part, cell, axis, -DEPTH);
        } else {
            MPI_Recv(part->in[0], points + rows, MPI_DOUBLE, part->before[axis], TAG_FORWARD, part->comm, MPI_STATUS_IGNORE);
            copy_layers(part, cell->change, axis, -DEPTH, part->in[0], true);
            copy_rows(part, cell, axis, -DEPTH, part->in[0] + points, true);
        }
        all_lines(part, cell, axis, eliminate);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
        if (stage < part->q - 1) {
            copy_layers(part, cell->change, axis, part->n - DEPTH, part->out[0], false);
            copy_rows(part, cell, axis, part->n - DEPTH, part->out[0] + points, false);
            sent = send_points(part, points + rows, part->behind[axis], TAG_FORWARD);
        }
    }
    for (int stage = part->q - 1; stage >= 0; stage--) {
        cell *cell = cell_at_stage(part, axis, stage);
        if (stage == part->q - 1) {
            clear_border(part, cell, axis, part->n);
        } else {
            MPI_Recv(part->in[0], points, MPI_DOUBLE, part->behind[axis], TAG_BACK, part->comm, MPI_STATUS_IGNORE);
            copy_layers(part, cell->change, axis, part->n, part->in[0], true);
        }
        all_lines(part, cell, axis, substitute);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
        if (stage > 0) {
            copy_layers(part, cell->change, axis, 0, part->out[0], false);
            sent = send_points(part, points, part->before[axis], TAG_BACK);
        }
    }
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

static void add_change(part *part) {
    for (int c = 0; c < part->q; c++) {
        cell *cell = &part->cells[c];
        for (int z = 0; z < part->n; z++) {
            for (int y = 0; y < part->n; y++) {
                for (int x = 0; x < part->n; x++) {
                    size_t here = at(part, x, y, z);
                    for (int m = 0; m < UNKNOWNS; m++) {
                        cell->u[here].of[m] += cell->change[here].of[m];
                    }
                }
            }
        }
    }
}

typedef struct result {
    // The norm of the right-hand side before each step and after the last.
    double norms[MOST_ITERATIONS + 1];
    double seconds;
    double messages;
} result;

// Runs all steps on all processes of the communicator.
static result solve(MPI_Comm processes, const class *class) {
    part part = new_part(processes, class->points);
    result result = {.norms = {0}};
    double sums[MOST_ITERATIONS + 1] = {0};
    // Connections that are made at the first message are no part of what is timed.
    exchange_faces(&part);
    part.messages = 0;
    MPI_Barrier(part.comm);
    double start = MPI_Wtime();
    for (int i = 0; i < class->iterations; i++) {
        exchange_faces(&part);
        sums[i] = compute_change(&part);
        for (int axis = 0; axis < AXES; axis++) {
            sweep(&part, axis);
        }
        add_change(&part);
    }
    exchange_faces(&part);
    sums[class->iterations] = compute_change(&part);
    double mine = MPI_Wtime() - start, messages = (double)part.messages;
    MPI_Allreduce(sums, result.norms, class->iterations + 1, MPI_DOUBLE, MPI_SUM, part.comm);
    for (int i = 0; i <= class->iterations; i++) {
        result.norms[i] = sqrt(result.norms[i]);
    }
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

// Whether the norms of all steps agree with the serial run and become smaller. Only the order of their sums differs.
static bool is_verified(const class *class, const result *parallel, const result *serial) {
    bool equal = true;
    for (int i = 0; i <= class->iterations; i++) {
        equal = equal && fabs(parallel->norms[i] - serial->norms[i]) <= 1e-11 * serial->norms[i];
    }
    return equal && parallel->norms[class->iterations] < 0.9 * parallel->norms[0];
}

static void print_result(const class *class, int ranks, const result *parallel, const result *serial, bool successful) {
    int last = class->iterations;
    printf(" Residual at the start    %.13e\n Residual at the end      %.13e\n Residual of a serial run %.13e\n",
           parallel->norms[0], parallel->norms[last], serial->norms[last]);
    print_completed(&(completed){
        .name = "SP",
        .class = class->name,
        .points = class->points,
        .iterations = last,
        .ranks = ranks,
        .seconds = parallel->seconds,
        // 36 for the right-hand side, three times 8 for the sweeps and 1 for the sum, for each unknown; 3 times 24 for the rows.
        .operations = pow(class->points, 3) * (UNKNOWNS * 61.0 + 72.0) * last,
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
    int q = (int)lround(sqrt(ranks));
    if (q * q != ranks || class.points % q != 0 || class.points / q < DEPTH) {
        if (rank == 0) {
            fprintf(stderr, "sp: class %c cannot be divided among %d processes\n", class.name, ranks);
        }
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        printf(" Alternating directions, multi-partition\n Size: %4dx%4dx%4d  (class %c)\n Iterations: %d\n Number of processes: %d\n\n",
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
