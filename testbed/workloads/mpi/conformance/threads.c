// Checks of MPI_THREAD_MULTIPLE: four threads of each rank call MPI at one time.
#include "conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 25 };

typedef struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm;
    size_t longest;
    int rounds;
} worker;

static void run_threads(void *(*function)(void *), bool own_communicators, size_t longest, int rounds) {
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.number = i, .comm = comm, .longest = longest, .rounds = rounds};
        if (own_communicators) {
            MPI_Comm_dup(comm, &workers[i].comm);
        }
    }
    step("four threads");
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, function, &workers[i]) != 0) {
            fprintf(stderr, "conformance: a thread cannot be created\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (int i = 0; i < THREADS && own_communicators; i++) {
        MPI_Comm_free(&workers[i].comm);
    }
}

static size_t length_of(const worker *worker, int round) {
    static const size_t PARTS[] = {0, 1, 1000, 50, 4, 2};
    size_t part = PARTS[round % COUNT_OF(PARTS)];
    return part == 0 ? (size_t)round : worker->longest / part;
}

// Ring messages of various sizes, of the thread's own tag. Different threads use different calls.
static void *exchange(void *argument) {
    worker *worker = argument;
    unsigned char *out = new_bytes(worker->longest + ROUNDS), *in = new_bytes(worker->longest + ROUNDS);
    for (int round = 0; round < worker->rounds; round++) {
        size_t length = length_of(worker, round);
        int number = round * THREADS + worker->number;
        MPI_Request requests[2];
        MPI_Status status;
        fill(out, length, seed_of(rank, number));
        if (worker->number % 2 == 0) {
            MPI_Irecv(in, (int)length, MPI_BYTE, left(), worker->number, worker->comm, &requests[0]);
            MPI_Send(out, (int)length, MPI_BYTE, right(), worker->number, worker->comm);
            MPI_Wait(&requests[0], &status);
        } else {
            MPI_Isend(out, (int)length, MPI_BYTE, right(), worker->number, worker->comm, &requests[1]);
            MPI_Recv(in, (int)length, MPI_BYTE, MPI_ANY_SOURCE, worker->number, worker->comm, &status);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        }
        expect_status(&status, left(), worker->number, length, "message of a thread");
        expect_filled(in, length, seed_of(left(), number), "message of a thread");
    }
    free_bytes(out, worker->longest + ROUNDS);
    free_bytes(in, worker->longest + ROUNDS);
    return NULL;
}

void check_threads_tags(void) { run_threads(exchange, false, 40000, ROUNDS); }

void check_threads_communicators(void) { run_threads(exchange, true, 40000, ROUNDS); }

void check_threads_large(void) { run_threads(exchange, false, 2 << 20, 6); }

// Two threads send, two receive what a matching probe found. Each receiver takes messages of both tags, so the two compete
// for every message.
static void *probe_or_send(void *argument) {
    worker *worker = argument;
    unsigned char *bytes = new_bytes(worker->longest + ROUNDS);
    for (int round = 0; round < worker->rounds; round++) {
        if (worker->number < 2) {
            size_t length = length_of(worker, round);
            // The contents follow from the length and the tag, because the receiver does not know the round.
            fill(bytes, length, seed_of(rank, (int)length + worker->number));
            MPI_Send(bytes, (int)length, MPI_BYTE, right(), worker->number, worker->comm);
        } else {
            MPI_Message message;
            MPI_Status probed, received;
            int length = 0, found = worker->number == 2;
            if (found) {
                MPI_Mprobe(left(), MPI_ANY_TAG, worker->comm, &message, &probed);
            }
            while (!found) {
                MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, worker->comm, &found, &message, &probed);
            }
            MPI_Get_count(&probed, MPI_BYTE, &length);
            MPI_Mrecv(bytes, length, MPI_BYTE, &message, &received);
            expect_status(&received, left(), probed.MPI_TAG, (size_t)length, "matched receive of a thread");
            expect_filled(bytes, (size_t)length, seed_of(left(), length + probed.MPI_TAG), "matched receive of a thread");
        }
    }
    free_bytes(bytes, worker->longest + ROUNDS);
    return NULL;
}

void check_threads_probe(void) { run_threads(probe_or_send, false, 100000, ROUNDS); }

static void *collective(void *argument) {
    worker *worker = argument;
    for (int round = 0; round < worker->rounds; round++) {
        int mine[64], sums[64];
        for (int i = 0; i < 64; i++) {
            mine[i] = rank * i + worker->number + round;
        }
        MPI_Allreduce(mine, sums, 64, MPI_INT, MPI_SUM, worker->comm);
        for (int i = 0; i < 64; i++) {
            int expected = ranks * (ranks - 1) / 2 * i + ranks * (worker->number + round);
            EXPECT(sums[i] == expected, "MPI_Allreduce of a thread: %d, expected %d", sums[i], expected);
        }
        MPI_Barrier(worker->comm);
        int root = round % ranks;
        MPI_Bcast(mine, 64, MPI_INT, root, worker->comm);
        EXPECT(mine[63] == root * 63 + worker->number + round, "MPI_Bcast of a thread from rank %d: %d", root, mine[63]);
    }
    return NULL;
}

void check_threads_collectives(void) { run_threads(collective, true, 0, 10); }
