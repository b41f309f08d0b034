// Measures messages of several threads at once: four threads of each of two ranks exchange 16 MiB (Sendrecv), and three threads
// of one rank receive 200 kB each from the other rank (Receivers).
//
//     mpirun -np 2 threads [FILE OF JSON]
//
// The time of an operation is that of one message of every thread. The bytes of the first operation are checked.
#define _GNU_SOURCE

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "usage.h"

enum { EXCHANGERS = 4, RECEIVERS = 3, MOST_THREADS = 4, ROUNDS = 3, EXCHANGES = 4, RECEIVES = 100 };
enum { EXCHANGED_LENGTH = 16 << 20, RECEIVED_LENGTH = 200000 };

static const char USAGE[] = "mpirun -np 2 threads [FILE OF JSON]";

typedef struct pattern {
    const char *name;
    int threads;
    int length;
    int repetitions;
    void *(*run)(void *);
    // The first rank sends from one thread to all threads of the second.
    bool has_one_sender;
} pattern;

typedef struct worker {
    pthread_t thread;
    const pattern *pattern;
    int number;
    int rank;
    int repetitions;
    char *out;
    char *in;
} worker;

static void *exchange(void *argument) {
    worker *w = argument;
    for (int i = 0; i < w->repetitions; i++) {
        MPI_Sendrecv(w->out, w->pattern->length, MPI_BYTE, 1 - w->rank, w->number, w->in, w->pattern->length, MPI_BYTE,
                     1 - w->rank, w->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void *send_or_receive(void *argument) {
    worker *w = argument;
    for (int i = 0; i < w->repetitions; i++) {
        if (w->rank == 1) {
            MPI_Recv(w->in, w->pattern->length, MPI_BYTE, 0, w->number, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            continue;
        }
        for (int to = 0; to < w->pattern->threads; to++) {
            MPI_Send(w[to].out, w->pattern->length, MPI_BYTE, 1, to, MPI_COMM_WORLD);
        }
    }
    return NULL;
}

static const pattern PATTERNS[] = {
    {"Sendrecv", EXCHANGERS, EXCHANGED_LENGTH, EXCHANGES, exchange, false},
    {"Receivers", RECEIVERS, RECEIVED_LENGTH, RECEIVES, send_or_receive, true},
};
enum { PATTERN_COUNT = sizeof PATTERNS / sizeof PATTERNS[0] };

// The byte at a place of the message of a thread.
static char byte_of(int rank, int number, int place) {
    return (char)(1 + rank * 41 + number * 7 + place % 251);
}

static char *allocate(size_t bytes) {
    char *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "threads: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, bytes);
    return memory;
}

// Runs the threads of this rank, and returns the time until all of them are done, in µs.
static double run(worker *workers, const pattern *pattern, int repetitions) {
    int threads = pattern->has_one_sender && workers->rank == 0 ? 1 : pattern->threads;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < threads; i++) {
        workers[i].repetitions = repetitions;
        if (pthread_create(&workers[i].thread, NULL, pattern->run, &workers[i]) != 0) {
            fprintf(stderr, "threads: a thread cannot be created\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    // The receiving rank knows when all has arrived.
    MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - start) * 1e6;
}

static void check(const worker *w) {
    bool receives = !w->pattern->has_one_sender || w->rank == 1;
    for (int i = 0; receives && i < w->pattern->length; i++) {
        if (w->in[i] != byte_of(1 - w->rank, w->number, i)) {
            fprintf(stderr, "threads: %s: thread %d of rank %d received something else than was sent\n", w->pattern->name,
                    w->number, w->rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const pattern *pattern, int rank, FILE *json, bool is_first) {
    worker workers[MOST_THREADS];
    for (int i = 0; i < pattern->threads; i++) {
        workers[i] = (worker){.pattern = pattern, .number = i, .rank = rank};
        workers[i].out = allocate((size_t)pattern->length);
        workers[i].in = allocate((size_t)pattern->length);
        for (int at = 0; at < pattern->length; at++) {
            workers[i].out[at] = byte_of(rank, i, at);
        }
    }
    run(workers, pattern, 1);
    double times[ROUNDS];
    for (int i = 0; i < pattern->threads; i++) {
        check(&workers[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        times[round] = run(workers, pattern, pattern->repetitions) / pattern->repetitions;
    }
    for (int i = 0; i < pattern->threads; i++) {
        free(workers[i].out);
        free(workers[i].in);
    }
    if (rank != 0) {
        return;
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("%-10s %d threads, %9d bytes: %12.2f usec (%.2f to %.2f)\n", pattern->name, pattern->threads, pattern->length,
           times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    if (json != NULL) {
        fprintf(json,
                "%s\n  {\"benchmark\": \"%s\", \"ranks\": 2, \"threads\": %d, \"bytes\": %d, \"repetitions\": %d, \"rounds\": %d, "
                "\"min_us\": %.3f, \"median_us\": %.3f, \"max_us\": %.3f}",
                is_first ? "" : ",", pattern->name, pattern->threads, pattern->length, pattern->repetitions, ROUNDS, times[0],
                times[ROUNDS / 2], times[ROUNDS - 1]);
    }
}

int main(int count, char **arguments) {
    answer_help(count, arguments, USAGE);
    int provided, rank, ranks;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || provided != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "threads: needs 2 ranks, and an MPI whose threads may all call it\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    FILE *json = NULL;
    if (rank == 0 && count > 1) {
        json = fopen(arguments[1], "w");
        if (json == NULL) {
            perror(arguments[1]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        fputs("[", json);
    }
    for (int i = 0; i < PATTERN_COUNT; i++) {
        measure(&PATTERNS[i], rank, json, i == 0);
    }
    int failed = 0;
    if (json != NULL) {
        fputs("\n]\n", json);
        failed = fclose(json) != 0;
    }
    MPI_Finalize();
    return failed;
}
