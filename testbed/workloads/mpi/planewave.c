// Electrons in plane waves: the communication of the program Abinit. The lowest states of a Hamiltonian in a periodic box are found
// band by band with conjugate gradients, as electronic-structure programs do: each step applies the Hamiltonian by two
// three-dimensional Fourier transforms, each of which transposes the grid with an MPI_Alltoall, and computes its scalar products, which
// are complex numbers, with MPI_Allreduce of 16 bytes.
// The energies after every step are verified against a run on one process; the exit status is 1 if they differ.
//
//     mpirun -np 4 planewave [S|W|A]
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "completed.h"
#include "usage.h"

static const char USAGE[] = "mpirun -np N planewave [S|W|A], where N divides 16, 32 or 64";

enum { MOST_BANDS = 8, MOST_STEPS = 200 };

static const double PI = 3.14159265358979323846;

typedef double complex amplitude;

typedef struct class {
    char name;
    int points;
    int bands;
    // Conjugate-gradient steps of a band, one after the other.
    int steps;
} class;

static const class CLASSES[] = {{'S', 16, 4, 10}, {'W', 32, 6, 10}, {'A', 64, 6, 8}};

// The share of one process: whole columns along z of the waves' amplitudes, and whole planes of x and y of the wave functions.
typedef struct part {
    MPI_Comm comm;
    int ranks, rank;
    int n;
    // Planes of y with all of z, and planes of z with all of x and y, that this process has.
    int own;
    size_t total;
    // Half the square of the wave vector of each amplitude.
    double *kinetic;
    double *potential;
    amplitude *roots;
    amplitude *out, *in;
    long messages;
} part;

// The vectors of a band's conjugate gradient.
typedef struct vectors {
    amplitude *states[MOST_BANDS];
    amplitude *applied;
    amplitude *gradient;
    amplitude *preconditioned;
    amplitude *direction;
    amplitude *direction_applied;
} vectors;

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "planewave: no memory for %zu elements\n", count);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// The number of waves that a place of a transformed axis stands for.
static int wave(int place, int n) {
    return place <= n / 2 ? place : place - n;
}

static part new_part(MPI_Comm processes, int n) {
    part part = {.comm = processes, .n = n};
    MPI_Comm_size(processes, &part.ranks);
    MPI_Comm_rank(processes, &part.rank);
    part.own = n / part.ranks;
    part.total = (size_t)n * (size_t)n * (size_t)part.own;
    part.kinetic = allocate(part.total, sizeof(double));
    part.potential = allocate(part.total, sizeof(double));
    part.roots = allocate((size_t)n, sizeof(amplitude));
    part.out = allocate(part.total, sizeof(amplitude));
    part.in = allocate(part.total, sizeof(amplitude));
    for (int i = 0; i < n; i++) {
        part.roots[i] = cos(2 * PI * i / n) + I * sin(2 * PI * i / n);
    }
    size_t at = 0;
    for (int plane = 0; plane < part.own; plane++) {
        int own = part.rank * part.own + plane;
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++, at++) {
                double ky = wave(own, n), kx = wave(a, n), kz = wave(b, n);
                part.kinetic[at] = (kx * kx + ky * ky + kz * kz) / 2;
                double x = 2 * PI * b / n, y = 2 * PI * a / n, z = 2 * PI * own / n;
                part.potential[at] = -4 * cos(x) - 3 * cos(y) - 5 * cos(z) + 1.5 * cos(x + y - z);
            }
        }
    }
    return part;
}

static void free_part(part *part) {
    free(part->kinetic);
    free(part->potential);
    free(part->roots);
    free(part->out);
    free(part->in);
}

// Transforms a line of numbers `stride` apart; n is a power of two. `sign` is that of the exponent.
static void transform(const part *part, amplitude *line, size_t stride, int sign) {
    int n = part->n;
    amplitude work[n];
    for (int i = 0, reversed = 0; i < n; i++) {
        work[reversed] = line[(size_t)i * stride];
        int bit = n >> 1;
        while (bit > 0 && (reversed & bit) != 0) {
            reversed ^= bit;
            bit >>= 1;
        }
        reversed |= bit;
    }
    for (int half = 1; half < n; half *= 2) {
        for (int first = 0; first < n; first += 2 * half) {
            for (int i = 0; i < half; i++) {
                amplitude root = part->roots[i * (n / 2 / half)];
                double re = creal(root), im = sign * cimag(root);
                amplitude low = work[first + i], high = work[first + half + i];
                // Spelled out: the operator of C checks for infinities.
                amplitude turned = creal(high) * re - cimag(high) * im + I * (creal(high) * im + cimag(high) * re);
                work[first + i] = low + turned;
                work[first + half + i] = low - turned;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        line[(size_t)i * stride] = work[i];
    }
}

// Gives every process the planes of the other axis: from y to z, or from z to y. A place in a plane of y is x n + z, in one of z y n + x.
static void transpose(part *part, const amplitude *from, amplitude *to, bool to_z) {
    size_t n = (size_t)part->n, own = (size_t)part->own, block = own * own * n, at = 0;
    for (size_t other = 0; other < (size_t)part->ranks; other++) {
        for (size_t plane = 0; plane < own; plane++) {
            for (size_t theirs = other * own; theirs < (other + 1) * own; theirs++) {
                for (size_t x = 0; x < n; x++) {
                    part->out[at++] = from[to_z ? (plane * n + x) * n + theirs : (plane * n + theirs) * n + x];
                }
            }
        }
    }
    int count = (int)block * 2;
    MPI_Alltoall(part->out, count, MPI_DOUBLE, part->in, count, MPI_DOUBLE, part->comm);
    part->messages += part->ranks - 1;
    at = 0;
    for (size_t other = 0; other < (size_t)part->ranks; other++) {
        for (size_t theirs = other * own; theirs < (other + 1) * own; theirs++) {
            for (size_t plane = 0; plane < own; plane++) {
                for (size_t x = 0; x < n; x++) {
                    to[to_z ? (plane * n + theirs) * n + x : (plane * n + x) * n + theirs] = part->in[at++];
                }
            }
        }
    }
}

static void transform_planes(const part *part, amplitude *grid, int sign) {
    size_t n = (size_t)part->n;
    for (size_t plane = 0; plane < (size_t)part->own; plane++) {
        amplitude *of_plane = grid + plane * n * n;
        for (size_t i = 0; i < n; i++) {
            transform(part, of_plane + i * n, 1, sign);
        }
        for (size_t i = 0; i < n; i++) {
            transform(part, of_plane + i, n, sign);
        }
    }
}

static void transform_columns(const part *part, amplitude *grid, int sign) {
    size_t n = (size_t)part->n;
    for (size_t column = 0; column < (size_t)part->own * n; column++) {
        transform(part, grid + column * n, 1, sign);
    }
}

// applied = (kinetic energy + potential) state.
static void apply(part *part, const amplitude *state, amplitude *applied, amplitude *grid) {
    double scale = 1.0 / pow(part->n, 3);
    for (size_t i = 0; i < part->total; i++) {
        applied[i] = state[i];
    }
    transform_columns(part, applied, 1);
    transpose(part, applied, grid, true);
    transform_planes(part, grid, 1);
    for (size_t i = 0; i < part->total; i++) {
        grid[i] *= part->potential[i] * scale;
    }
    transform_planes(part, grid, -1);
    transpose(part, grid, applied, false);
    transform_columns(part, applied, -1);
    for (size_t i = 0; i < part->total; i++) {
        applied[i] += part->kinetic[i] * state[i];
    }
}

static amplitude product(part *part, const amplitude *a, const amplitude *b) {
    double mine[2] = {0, 0}, all[2];
    for (size_t i = 0; i < part->total; i++) {
        mine[0] += creal(a[i]) * creal(b[i]) + cimag(a[i]) * cimag(b[i]);
        mine[1] += creal(a[i]) * cimag(b[i]) - cimag(a[i]) * creal(b[i]);
    }
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, part->comm);
    part->messages++;
    return all[0] + I * all[1];
}

static void add(const part *part, amplitude *to, amplitude factor, const amplitude *what) {
    double re = creal(factor), im = cimag(factor);
    for (size_t i = 0; i < part->total; i++) {
        to[i] += re * creal(what[i]) - im * cimag(what[i]) + I * (re * cimag(what[i]) + im * creal(what[i]));
    }
}

// Takes out of a vector what it has of the states found so far, and of the one that is sought where `with_own`.
static void orthogonalize(part *part, const vectors *v, int band, bool with_own, amplitude *vector) {
    for (int other = 0; other < band + with_own; other++) {
        add(part, vector, -product(part, v->states[other], vector), v->states[other]);
    }
}

static void normalize(part *part, amplitude *vector) {
    double factor = 1.0 / sqrt(creal(product(part, vector, vector)));
    for (size_t i = 0; i < part->total; i++) {
        vector[i] *= factor;
    }
}

// A start that every number of processes begins with: some of each of the longest waves.
static void guess(part *part, const vectors *v, int band) {
    amplitude *state = v->states[band];
    size_t at = 0;
    for (int plane = 0; plane < part->own; plane++) {
        for (int a = 0; a < part->n; a++) {
            for (int b = 0; b < part->n; b++, at++) {
                int y = wave(part->rank * part->own + plane, part->n), x = wave(a, part->n), z = wave(b, part->n);
                double phase = (band + 1.0) * (1.7 * x + 2.3 * y + 3.1 * z + 0.4);
                state[at] = exp(-2.0 * part->kinetic[at]) * (cos(phase) + 0.3 * I * sin(2 * phase));
            }
        }
    }
    orthogonalize(part, v, band, false, state);
    normalize(part, state);
}

// Turns the state towards the direction by the angle at which its energy is least. Returns that energy.
static double turn(part *part, const vectors *v, int band, double energy) {
    double along = creal(product(part, v->direction, v->direction_applied));
    double across = creal(product(part, v->states[band], v->direction_applied));
    double angle = 0.5 * atan2(-across, (along - energy) / 2), c = cos(angle), s = sin(angle);
    for (size_t i = 0; i < part->total; i++) {
        v->states[band][i] = c * v->states[band][i] + s * v->direction[i];
        v->applied[i] = c * v->applied[i] + s * v->direction_applied[i];
    }
    return c * c * energy + s * s * along + 2 * s * c * across;
}

// The lowest state that is orthogonal to those found before. Writes the energy after each step.
static void find_band(part *part, const vectors *v, int band, int steps, amplitude *grid, double *energies) {
    guess(part, v, band);
    apply(part, v->states[band], v->applied, grid);
    double energy = creal(product(part, v->states[band], v->applied)), before = 0.0;
    amplitude *search = allocate(part->total, sizeof(amplitude));
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < part->total; i++) {
            v->gradient[i] = energy * v->states[band][i] - v->applied[i];
        }
        orthogonalize(part, v, band, true, v->gradient);
        for (size_t i = 0; i < part->total; i++) {
            v->preconditioned[i] = v->gradient[i] / (1.0 + part->kinetic[i]);
        }
        orthogonalize(part, v, band, true, v->preconditioned);
        double now = creal(product(part, v->gradient, v->preconditioned)), gamma = step > 0 ? now / before : 0.0;
        before = now;
        for (size_t i = 0; i < part->total; i++) {
            search[i] = v->preconditioned[i] + gamma * search[i];
            v->direction[i] = search[i];
        }
        orthogonalize(part, v, band, true, v->direction);
        normalize(part, v->direction);
        apply(part, v->direction, v->direction_applied, grid);
        energy = turn(part, v, band, energy);
        energies[step] = energy;
    }
    free(search);
}

typedef struct result {
    double energies[MOST_STEPS];
    double seconds;
    double messages;
} result;

// Finds all bands on all processes of the communicator.
static result solve(MPI_Comm processes, const class *class) {
    part part = new_part(processes, class->points);
    amplitude *memory = allocate(part.total * (MOST_BANDS + 6), sizeof(amplitude));
    vectors v;
    for (int band = 0; band < MOST_BANDS; band++) {
        v.states[band] = memory + (size_t)band * part.total;
    }
    amplitude **others[] = {&v.applied, &v.gradient, &v.preconditioned, &v.direction, &v.direction_applied};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        *others[i] = memory + (MOST_BANDS + i) * part.total;
    }
    amplitude *grid = memory + (MOST_BANDS + 5) * part.total;
    result result = {.energies = {0}};
    // Connections that are made at the first message are no part of what is timed.
    apply(&part, v.states[0], v.applied, grid);
    part.messages = 0;
    MPI_Barrier(part.comm);
    double start = MPI_Wtime();
    for (int band = 0; band < class->bands; band++) {
        find_band(&part, &v, band, class->steps, grid, result.energies + band * class->steps);
    }
    double mine = MPI_Wtime() - start, messages = (double)part.messages;
    MPI_Allreduce(&mine, &result.seconds, 1, MPI_DOUBLE, MPI_MAX, part.comm);
    MPI_Allreduce(&messages, &result.messages, 1, MPI_DOUBLE, MPI_SUM, part.comm);
    free(memory);
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

// Whether the energies agree with the serial run and become smaller with every step. Only the order of the sums differs.
static bool is_verified(const class *class, const result *parallel, const result *serial) {
    bool right = true;
    for (int i = 0; i < class->bands * class->steps; i++) {
        double energy = parallel->energies[i];
        right = right && fabs(energy - serial->energies[i]) <= 1e-9 * fabs(serial->energies[i]) + 1e-9;
        right = right && (i % class->steps == 0 || energy <= parallel->energies[i - 1] + 1e-9);
    }
    return right;
}

static void print_result(const class *class, int ranks, const result *parallel, const result *serial, bool successful) {
    for (int band = 0; band < class->bands; band++) {
        int last = (band + 1) * class->steps - 1;
        printf(" Energy of band %d         %.13e, of a serial run %.13e\n", band + 1, parallel->energies[last], serial->energies[last]);
    }
    double points = pow(class->points, 3), steps = (double)class->bands * class->steps;
    // Two transforms of 5 n log2 n for each step, and about 16 operations for each of the products and sums, 3 for each band below.
    double per_step = points * (2 * 5 * 3 * log2(class->points) + 16 * (8 + 3 * class->bands / 2.0));
    print_completed(&(completed){
        .name = "PW",
        .class = class->name,
        .points = class->points,
        .iterations = class->bands * class->steps,
        .ranks = ranks,
        .seconds = parallel->seconds,
        .operations = per_step * steps,
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
    if (class.points % ranks != 0) {
        if (rank == 0) {
            fprintf(stderr, "planewave: class %c cannot be divided among %d processes\n", class.name, ranks);
        }
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0) {
        printf(" Plane waves, conjugate gradients band by band\n Size: %4dx%4dx%4d  (class %c)\n Bands: %d\n Number of processes: %d\n\n",
               class.points, class.points, class.points, class.name, class.bands, ranks);
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
