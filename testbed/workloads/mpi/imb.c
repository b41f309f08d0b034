// Measures message passing as the Intel MPI Benchmarks do: the same patterns, names and shape of tables, written anew.
//
//     mpirun -np 4 imb [BENCHMARK...] [--sizes 0,16,4096] [--rounds 7] [--seconds 0.1] [--npmin N] [--json FILE]
//     mpirun -np 2 imb --overlap [--cores 0,1] [--longer 1] [--sizes 4194304] ...
//
// Each size is measured in several rounds. The time of a round is the mean over its repetitions and over the ranks; the
// table shows the least, the median and the greatest of the rounds, because one mean hides what the machine did meanwhile.
// Before a size is measured, each pattern is carried out once with bytes that are checked where they arrive.
#define _GNU_SOURCE

#include <dirent.h>
#include <errno.h>
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "usage.h"

enum { MOST_SIZES = 64, MOST_ROUNDS = 101, MOST_RANKS = 4096, TAG = 1 };

// The ranks that take part in a measurement, and their buffers.
typedef struct group {
    MPI_Comm comm;
    int rank;
    int ranks;
    int size;
    char *out;
    char *in;
} group;

// What a rank has in its buffer after a pattern was carried out once, with rank 0 as root.
typedef enum result {
    // Nothing that is checked.
    NOTHING,
    // In `in`, the message of the other rank, of the left or of the right neighbour.
    OF_OTHER,
    OF_LEFT,
    OF_RIGHT,
    // In `in`, the sums over all ranks: at each rank, or at the root.
    SUMS,
    SUMS_AT_ROOT,
    // In `in`, this rank's part of the sums over all ranks.
    PART_OF_SUMS,
    // In `in`, the messages of all ranks in their order: at each rank, or at the root.
    OF_ALL,
    OF_ALL_AT_ROOT,
    // In `in`, the part of the root's buffer that belongs to this rank, or such a part of each rank.
    PART_OF_ROOT,
    PARTS_OF_ALL,
    // In `out`, the message of the root.
    COPY_OF_ROOT,
} result;

typedef struct benchmark {
    const char *name;
    // Carries out the pattern so many times.
    void (*run)(const group *group, int repetitions);
    // Only the first two ranks take part.
    bool pair;
    // How often the size counts in Mbytes/sec; 0 where that column does not exist.
    int transfers;
    // In how many operations of the pattern a message crosses.
    int operations;
    bool has_sizes;
    result result;
} benchmark;

static void ping_pong(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        if (g->rank == 0) {
            MPI_Send(g->out, g->size, MPI_BYTE, 1, TAG, g->comm);
            MPI_Recv(g->in, g->size, MPI_BYTE, 1, TAG, g->comm, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(g->in, g->size, MPI_BYTE, 0, TAG, g->comm, MPI_STATUS_IGNORE);
            MPI_Send(g->out, g->size, MPI_BYTE, 0, TAG, g->comm);
        }
    }
}

static void ping_ping(const group *g, int repetitions) {
    int peer = 1 - g->rank;
    for (int i = 0; i < repetitions; i++) {
        MPI_Request request;
        MPI_Isend(g->out, g->size, MPI_BYTE, peer, TAG, g->comm, &request);
        MPI_Recv(g->in, g->size, MPI_BYTE, peer, TAG, g->comm, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void send_recv(const group *g, int repetitions) {
    int right = (g->rank + 1) % g->ranks, left = (g->rank + g->ranks - 1) % g->ranks;
    for (int i = 0; i < repetitions; i++) {
        MPI_Sendrecv(g->out, g->size, MPI_BYTE, right, TAG, g->in, g->size, MPI_BYTE, left, TAG, g->comm, MPI_STATUS_IGNORE);
    }
}

static void exchange(const group *g, int repetitions) {
    int right = (g->rank + 1) % g->ranks, left = (g->rank + g->ranks - 1) % g->ranks;
    for (int i = 0; i < repetitions; i++) {
        MPI_Request to_left, to_right;
        MPI_Isend(g->out, g->size, MPI_BYTE, right, TAG, g->comm, &to_right);
        MPI_Isend(g->out, g->size, MPI_BYTE, left, TAG, g->comm, &to_left);
        MPI_Recv(g->in, g->size, MPI_BYTE, left, TAG, g->comm, MPI_STATUS_IGNORE);
        MPI_Recv(g->in, g->size, MPI_BYTE, right, TAG, g->comm, MPI_STATUS_IGNORE);
        MPI_Wait(&to_right, MPI_STATUS_IGNORE);
        MPI_Wait(&to_left, MPI_STATUS_IGNORE);
    }
}

static void allreduce(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Allreduce(g->out, g->in, g->size / (int)sizeof(float), MPI_FLOAT, MPI_SUM, g->comm);
    }
}

// The root moves on with every repetition, as in the original, in this and the other operations with a root.
static void reduce(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Reduce(g->out, g->in, g->size / (int)sizeof(float), MPI_FLOAT, MPI_SUM, i % g->ranks, g->comm);
    }
}

// Each rank gets its part of the sums. The last one also gets what the ranks do not divide evenly.
static void reduce_scatter(const group *g, int repetitions) {
    int all = g->size / (int)sizeof(float), counts[MOST_RANKS];
    for (int rank = 0; rank < g->ranks; rank++) {
        counts[rank] = all / g->ranks + (rank == g->ranks - 1 ? all % g->ranks : 0);
    }
    for (int i = 0; i < repetitions; i++) {
        MPI_Reduce_scatter(g->out, g->in, counts, MPI_FLOAT, MPI_SUM, g->comm);
    }
}

static void allgather(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Allgather(g->out, g->size, MPI_BYTE, g->in, g->size, MPI_BYTE, g->comm);
    }
}

static void gather(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Gather(g->out, g->size, MPI_BYTE, g->in, g->size, MPI_BYTE, i % g->ranks, g->comm);
    }
}

static void scatter(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Scatter(g->out, g->size, MPI_BYTE, g->in, g->size, MPI_BYTE, i % g->ranks, g->comm);
    }
}

static void alltoall(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Alltoall(g->out, g->size, MPI_BYTE, g->in, g->size, MPI_BYTE, g->comm);
    }
}

static void bcast(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Bcast(g->out, g->size, MPI_BYTE, i % g->ranks, g->comm);
    }
}

static void barrier(const group *g, int repetitions) {
    for (int i = 0; i < repetitions; i++) {
        MPI_Barrier(g->comm);
    }
}

static const benchmark BENCHMARKS[] = {
    {"PingPong", ping_pong, true, 1, 2, true, OF_OTHER},
    {"PingPing", ping_ping, true, 1, 1, true, OF_OTHER},
    {"SendRecv", send_recv, false, 2, 1, true, OF_LEFT},
    {"Exchange", exchange, false, 4, 1, true, OF_RIGHT},
    {"Allreduce", allreduce, false, 0, 1, true, SUMS},
    {"Reduce", reduce, false, 0, 1, true, SUMS_AT_ROOT},
    {"Reduce_scatter", reduce_scatter, false, 0, 1, true, PART_OF_SUMS},
    {"Allgather", allgather, false, 0, 1, true, OF_ALL},
    {"Gather", gather, false, 0, 1, true, OF_ALL_AT_ROOT},
    {"Scatter", scatter, false, 0, 1, true, PART_OF_ROOT},
    {"Alltoall", alltoall, false, 0, 1, true, PARTS_OF_ALL},
    {"Bcast", bcast, false, 0, 1, true, COPY_OF_ROOT},
    {"Barrier", barrier, false, 0, 1, false, NOTHING},
};
enum { BENCHMARK_COUNT = sizeof BENCHMARKS / sizeof BENCHMARKS[0] };

static struct options {
    bool chosen[BENCHMARK_COUNT];
    int sizes[MOST_SIZES];
    int size_count;
    int rounds;
    double seconds;
    int npmin;
    const char *json;
    bool overlap;
    // The core of the rank that computes and that of all the rest, or -1: wherever the system puts them.
    int cores[2];
    // How many times as long as a transfer the computation beside it takes.
    int longer;
} options = {.rounds = 7, .seconds = 0.1, .cores = {-1, -1}, .longer = 1};

static FILE *json;
static int json_rows;

static const char USAGE[] =
    "mpirun -np N imb [BENCHMARK...] [--overlap [--cores A,B] [--longer N]] [--sizes BYTES,...] [--rounds N] [--seconds S]\n"
    "           [--npmin N] [--json FILE]\n"
    "benchmarks: PingPong PingPing SendRecv Exchange Allreduce Reduce Reduce_scatter Allgather Gather Scatter Alltoall Bcast Barrier";

static void usage(const char *problem, const char *what) {
    fprintf(stderr, "imb: %s %s\nusage: %s\n", problem, what, USAGE);
    exit(2);
}

static void parse_sizes(const char *list) {
    options.size_count = 0;
    for (const char *at = list; *at != 0; at += *at == ',') {
        char *end;
        long size = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != 0) || size < 0 || size > 1 << 30 || options.size_count == MOST_SIZES) {
            usage("bad list of sizes", list);
        }
        options.sizes[options.size_count++] = (int)size;
        at = end;
    }
}

static void parse_cores(const char *list) {
    int end = 0;
    if (sscanf(list, "%d,%d%n", &options.cores[0], &options.cores[1], &end) != 2 || list[end] != 0 || options.cores[0] < 0 ||
        options.cores[1] < 0 || options.cores[0] >= CPU_SETSIZE || options.cores[1] >= CPU_SETSIZE) {
        usage("not two cores:", list);
    }
}

static void parse_benchmark(const char *name) {
    for (int i = 0; i < BENCHMARK_COUNT; i++) {
        if (strcmp(BENCHMARKS[i].name, name) == 0) {
            options.chosen[i] = true;
            return;
        }
    }
    usage("no benchmark or option", name);
}

static void parse(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    bool any = false;
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i];
        if (strcmp(name, "--overlap") == 0) {
            options.overlap = true;
            continue;
        }
        if (strncmp(name, "--", 2) != 0) {
            parse_benchmark(name);
            any = true;
            continue;
        }
        const char *value = i + 1 < count ? arguments[++i] : NULL;
        if (value == NULL) {
            usage("no value for", name);
        } else if (strcmp(name, "--sizes") == 0) {
            parse_sizes(value);
        } else if (strcmp(name, "--rounds") == 0 && atoi(value) > 0 && atoi(value) <= MOST_ROUNDS) {
            options.rounds = atoi(value);
        } else if (strcmp(name, "--seconds") == 0 && atof(value) > 0) {
            options.seconds = atof(value);
        } else if (strcmp(name, "--npmin") == 0 && atoi(value) > 0) {
            options.npmin = atoi(value);
        } else if (strcmp(name, "--cores") == 0) {
            parse_cores(value);
        } else if (strcmp(name, "--longer") == 0 && atoi(value) > 0 && atoi(value) <= 100) {
            options.longer = atoi(value);
        } else if (strcmp(name, "--json") == 0) {
            options.json = value;
        } else {
            usage("bad option", name);
        }
    }
    for (int i = 0; i < BENCHMARK_COUNT && !any && !options.overlap; i++) {
        options.chosen[i] = true;
    }
    if (options.size_count == 0 && options.overlap) {
        parse_sizes("4194304");
    } else if (options.size_count == 0) {
        parse_sizes("0,1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576,"
                    "2097152,4194304");
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct summary {
    double least;
    double median;
    double greatest;
} summary;

static summary summarize(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return (summary){values[0], (values[(count - 1) / 2] + values[count / 2]) / 2, values[count - 1]};
}

// The byte at a place of a rank's message.
static char byte_of(int rank, int place) {
    return (char)(1 + rank * 41 + place % 251);
}

// The number at a place of what a rank adds; sums of them are exact.
static float number_of(int rank, int place) {
    return (float)(rank + place % 1021);
}

// Whether `count` bytes at `found` are those of a rank from a place on.
static bool are_bytes(const char *found, int count, int rank, int place) {
    for (int i = 0; i < count; i++) {
        if (found[i] != byte_of(rank, place + i)) {
            return false;
        }
    }
    return true;
}

// Whether `count` sums are those from a place on.
static bool are_sums(const group *g, int count, int place) {
    const float *found = (const float *)(const void *)g->in;
    for (int i = 0; i < count; i++) {
        float sum = 0;
        for (int rank = 0; rank < g->ranks; rank++) {
            sum += number_of(rank, place + i);
        }
        if (found[i] != sum) {
            return false;
        }
    }
    return true;
}

static bool are_all(const group *g, bool parts) {
    for (int rank = 0; rank < g->ranks; rank++) {
        if (!are_bytes(g->in + (long)rank * g->size, g->size, rank, parts ? g->rank * g->size : 0)) {
            return false;
        }
    }
    return true;
}

static bool is_right(result result, const group *g) {
    int sums = g->size / (int)sizeof(float);
    switch (result) {
    case OF_OTHER:
        return are_bytes(g->in, g->size, 1 - g->rank, 0);
    case OF_LEFT:
        return are_bytes(g->in, g->size, (g->rank + g->ranks - 1) % g->ranks, 0);
    case OF_RIGHT:
        return are_bytes(g->in, g->size, (g->rank + 1) % g->ranks, 0);
    case SUMS:
        return are_sums(g, sums, 0);
    case SUMS_AT_ROOT:
        return g->rank != 0 || are_sums(g, sums, 0);
    case PART_OF_SUMS:
        return are_sums(g, sums / g->ranks, g->rank * (sums / g->ranks));
    case OF_ALL:
        return are_all(g, false);
    case OF_ALL_AT_ROOT:
        return g->rank != 0 || are_all(g, false);
    case PART_OF_ROOT:
        return are_bytes(g->in, g->size, 0, g->rank * g->size);
    case PARTS_OF_ALL:
        return are_all(g, true);
    case COPY_OF_ROOT:
        return are_bytes(g->out, g->size, 0, 0);
    case NOTHING:
        break;
    }
    return true;
}

// Carries the pattern out once, with bytes that are checked where they arrive.
static void verify(const benchmark *benchmark, const group *g) {
    int bytes = g->size * g->ranks;
    bool is_sum = benchmark->result == SUMS || benchmark->result == SUMS_AT_ROOT || benchmark->result == PART_OF_SUMS;
    for (int i = 0; i < bytes && !is_sum; i++) {
        g->out[i] = byte_of(g->rank, i);
    }
    for (int i = 0; i < g->size / (int)sizeof(float) && is_sum; i++) {
        ((float *)(void *)g->out)[i] = number_of(g->rank, i);
    }
    memset(g->in, 0, (size_t)bytes);
    benchmark->run(g, 1);
    if (!is_right(benchmark->result, g)) {
        fprintf(stderr, "imb: %s with %d bytes: rank %d received something else than was sent\n", benchmark->name, g->size,
                g->rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    // Measured sums begin with zeros, so that they stay numbers.
    memset(g->out, 0, (size_t)bytes);
}

// The mean over the ranks of the time of one operation, in µs.
static double time_us(const benchmark *benchmark, const group *group, int repetitions) {
    MPI_Barrier(group->comm);
    double start = MPI_Wtime();
    benchmark->run(group, repetitions);
    double mine = (MPI_Wtime() - start) * 1e6 / repetitions / benchmark->operations, sum = 0.0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, group->comm);
    return sum / group->ranks;
}

// How many repetitions fill a round. Warms up on the way: it measures more and more repetitions until they take long enough
// to tell.
static int calibrate(const benchmark *benchmark, const group *group) {
    int repetitions = 2;
    double one_s = 0.0;
    for (double total_s = 0.0; total_s < options.seconds / 4 && repetitions < 1000000; repetitions *= 2) {
        one_s = time_us(benchmark, group, repetitions) * benchmark->operations * 1e-6;
        total_s = one_s * repetitions;
    }
    double wanted = options.seconds / (one_s + 1e-9);
    int most = 1000000;
    // All ranks computed this from one sum; the broadcast guards against a different rounding of that sum.
    repetitions = wanted < 3 ? 3 : wanted > most ? most : (int)wanted;
    MPI_Bcast(&repetitions, 1, MPI_INT, 0, group->comm);
    return repetitions;
}

static void write_json(const char *benchmark, const group *group, int repetitions, summary time, double mbytes_per_s) {
    if (json == NULL) {
        return;
    }
    fprintf(json, "%s\n  {\"benchmark\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"repetitions\": %d, \"rounds\": %d, "
                  "\"min_us\": %.3f, \"median_us\": %.3f, \"max_us\": %.3f",
            json_rows++ ? "," : "", benchmark, group->ranks, group->size, repetitions, options.rounds, time.least,
            time.median, time.greatest);
    if (mbytes_per_s >= 0) {
        fprintf(json, ", \"mbytes_per_s\": %.2f", mbytes_per_s);
    }
    fputs("}", json);
}

static void print_header(const benchmark *benchmark, int ranks) {
    puts("\n#----------------------------------------------------------------");
    printf("# Benchmarking %s\n# #processes = %d\n", benchmark->name, ranks);
    puts("#----------------------------------------------------------------");
    if (benchmark->has_sizes) {
        printf("%12s", "#bytes");
    }
    printf("%14s %12s %12s %12s%s\n", "#repetitions", "t_min[usec]", "t_med[usec]", "t_max[usec]",
           benchmark->transfers ? "   Mbytes/sec" : "");
}

static void measure(const benchmark *benchmark, const group *group) {
    double times[MOST_ROUNDS];
    verify(benchmark, group);
    int repetitions = calibrate(benchmark, group);
    for (int round = 0; round < options.rounds; round++) {
        times[round] = time_us(benchmark, group, repetitions);
    }
    if (group->rank != 0) {
        return;
    }
    summary time = summarize(times, options.rounds);
    double mbytes_per_s = benchmark->transfers ? (double)group->size * benchmark->transfers / time.median : -1.0;
    if (benchmark->has_sizes) {
        printf("%12d", group->size);
    }
    printf("%14d %12.2f %12.2f %12.2f", repetitions, time.least, time.median, time.greatest);
    if (benchmark->transfers) {
        printf(" %12.2f", mbytes_per_s);
    }
    putchar('\n');
    fflush(stdout);
    write_json(benchmark->name, group, repetitions, time, mbytes_per_s);
}

// Waits until all ranks are here, without keeping a processor busy that a measuring rank may need.
static void wait_quietly(void) {
    const struct timespec pause = {.tv_nsec = 1000000};
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; !done;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (!done) {
            nanosleep(&pause, NULL);
        }
    }
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "imb: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    // Touches every page, so that no round pays for it.
    memset(memory, 0, bytes);
    return memory;
}

// Calls `body` on the first `ranks` ranks while the others wait.
static void with_ranks(int ranks, const benchmark *chosen, void (*body)(const benchmark *, group *)) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    group group = {.ranks = ranks};
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &group.comm);
    if (group.comm != MPI_COMM_NULL) {
        MPI_Comm_rank(group.comm, &group.rank);
        size_t largest = 16;
        for (int i = 0; i < options.size_count; i++) {
            largest = (size_t)options.sizes[i] > largest ? (size_t)options.sizes[i] : largest;
        }
        group.out = allocate(largest * (size_t)ranks);
        group.in = allocate(largest * (size_t)ranks);
        body(chosen, &group);
        free(group.out);
        free(group.in);
        MPI_Comm_free(&group.comm);
    }
    wait_quietly();
}

static void run_benchmark(const benchmark *benchmark, group *group) {
    if (group->rank == 0) {
        print_header(benchmark, group->ranks);
    }
    for (int i = 0; i < (benchmark->has_sizes ? options.size_count : 1); i++) {
        group->size = benchmark->has_sizes ? options.sizes[i] : 0;
        measure(benchmark, group);
    }
}

// Computes without calling MPI. The work is counted, not timed, so that it takes longer when something disturbs it.
static void compute(long work) {
    volatile double sum = 0.0;
    for (long i = 1; i <= work; i++) {
        sum = sum + 1.0 / (double)i;
    }
}

static void bind_thread(pid_t thread, int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    // A thread may have ended since it was listed.
    if (sched_setaffinity(thread, sizeof cores, &cores) != 0 && errno != ESRCH) {
        perror("imb: cannot bind a thread to its core");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

// Gives the first core to the thread that computes alone, and the second one to all other threads of both ranks: the rank that
// waits, and what libraries do in threads of their own.
static void bind_threads(bool computes) {
    DIR *threads = opendir("/proc/self/task");
    if (threads == NULL) {
        perror("imb: cannot list threads");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
        pid_t thread = atoi(entry->d_name);
        if (thread > 0) {
            bind_thread(thread, options.cores[computes && thread == getpid() ? 0 : 1]);
        }
    }
    closedir(threads);
}

// The time of one transfer from rank 0 to rank 1 with so much work between its start and its end, as this rank sees it. The
// receive is posted before the send starts.
static double transfer_us(const group *group, bool transfer, long work) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (transfer && group->rank == 1) {
        MPI_Irecv(group->in, group->size, MPI_BYTE, 0, TAG, group->comm, &request);
    }
    MPI_Barrier(group->comm);
    double start = MPI_Wtime();
    if (transfer && group->rank == 0) {
        MPI_Issend(group->out, group->size, MPI_BYTE, 1, TAG, group->comm, &request);
    }
    compute(work);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - start) * 1e6;
}

// How much work takes as long as one transfer of this size, or so many times as long as was asked for; none for a rank that only
// waits. Both ranks call it.
static long work_for_transfer(const group *group, bool computes) {
    enum { TRIES = 5 };
    double transfers[TRIES], computations[TRIES];
    const long sample = 1000000;
    for (int i = 0; i < TRIES; i++) {
        transfers[i] = transfer_us(group, true, 0);
        computations[i] = transfer_us(group, false, computes ? sample : 0);
    }
    double ratio = summarize(transfers, TRIES).median / summarize(computations, TRIES).median;
    return computes ? (long)(ratio * (double)sample * options.longer) + 1 : 0;
}

// What a rank saw, in microseconds: the transfer, the computation, and both together.
typedef struct overlap {
    double pure;
    double compute;
    double both;
    double hidden_percent;
} overlap;

static overlap measure_overlap(const group *group, bool computes) {
    if (options.cores[0] >= 0) {
        bind_threads(computes);
    }
    double pure[MOST_ROUNDS], work[MOST_ROUNDS], both[MOST_ROUNDS];
    long amount = work_for_transfer(group, computes);
    for (int round = 0; round < options.rounds; round++) {
        pure[round] = transfer_us(group, true, 0);
        work[round] = transfer_us(group, false, amount);
        both[round] = transfer_us(group, true, amount);
    }
    overlap seen = {
        .pure = summarize(pure, options.rounds).median,
        .compute = summarize(work, options.rounds).median,
        .both = summarize(both, options.rounds).median,
    };
    double shorter = seen.pure < seen.compute ? seen.pure : seen.compute;
    double hidden = 100.0 * (seen.pure + seen.compute - seen.both) / shorter;
    seen.hidden_percent = hidden < 0 ? 0 : hidden > 100 ? 100 : hidden;
    return seen;
}

static void print_overlap(int size, int rank, const overlap *row) {
    printf("%12d %7d %13.2f %13.2f %12.2f %10.1f\n", size, rank, row->pure, row->compute, row->both, row->hidden_percent);
    if (json != NULL) {
        fprintf(json,
                "%s\n  {\"benchmark\": \"Overlap\", \"ranks\": 2, \"rank\": %d, \"bytes\": %d, \"rounds\": %d, "
                "\"pure_us\": %.3f, \"compute_us\": %.3f, \"overlapped_us\": %.3f, \"hidden_percent\": %.1f}",
                json_rows++ ? "," : "", rank, size, options.rounds, row->pure, row->compute, row->both, row->hidden_percent);
    }
}

// One rank computes while the other one only waits, then they change places: with both computing, two processors would leave
// none for the threads that are to move the message meanwhile.
static void run_overlap(const benchmark *unused, group *group) {
    (void)unused;
    if (group->rank == 0) {
        puts("\n#----------------------------------------------------------------");
        puts("# Benchmarking Overlap: Issend and Irecv, compute, Wait\n# #processes = 2, one of which computes");
        puts("#----------------------------------------------------------------");
        puts("      #bytes    rank  t_pure[usec]   t_CPU[usec] t_ovrl[usec]  hidden[%]");
    }
    for (int i = 0; i < options.size_count; i++) {
        group->size = options.sizes[i];
        for (int rank = 0; rank < 2; rank++) {
            overlap seen = measure_overlap(group, group->rank == rank), of_rank[2];
            MPI_Gather(&seen, 4, MPI_DOUBLE, of_rank, 4, MPI_DOUBLE, 0, group->comm);
            if (group->rank == 0) {
                print_overlap(group->size, rank, &of_rank[rank]);
            }
        }
    }
}

static void run_all(int world_ranks) {
    if (options.overlap) {
        with_ranks(2, NULL, run_overlap);
    }
    int npmin = options.npmin == 0 || options.npmin > world_ranks ? world_ranks : options.npmin;
    for (int i = 0; i < BENCHMARK_COUNT; i++) {
        const benchmark *benchmark = &BENCHMARKS[i];
        if (!options.chosen[i]) {
            continue;
        }
        if (benchmark->pair) {
            with_ranks(2, benchmark, run_benchmark);
            continue;
        }
        for (int ranks = npmin; ranks < world_ranks; ranks *= 2) {
            with_ranks(ranks, benchmark, run_benchmark);
        }
        with_ranks(world_ranks, benchmark, run_benchmark);
    }
}

int main(int count, char **arguments) {
    parse(count, arguments);
    MPI_Init(&count, &arguments);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks > MOST_RANKS) {
        fprintf(stderr, "imb: needs 2 to %d ranks\n", MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (rank == 0 && options.json != NULL) {
        json = fopen(options.json, "w");
        if (json == NULL) {
            perror(options.json);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        fputs("[", json);
    }
    run_all(ranks);
    int failed = 0;
    if (json != NULL) {
        fputs("\n]\n", json);
        failed = fclose(json) != 0;
    }
    MPI_Finalize();
    return failed;
}
